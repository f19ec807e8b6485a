"""Actions as Pieces, each written once. What an action is made of is in `script`."""

from itertools import chain, zip_longest

from .held import Holdings
from .layers import LayerWriter
from .piece import Piece, PieceWriter, Tables
from .plan import TrainPlan
from .script import Pass, Script, interleaved
from .summa import GridWriter


class ActionWriter:
    """Writes the pieces of one pipeline rank."""

    def __init__(self, plan: TrainPlan, pipeline_rank: int, tables: Tables):
        self.plan, self.tables, self.holdings = plan, tables, Holdings(plan, pipeline_rank)

    def piece(self, *passes: Pass) -> Piece:
        """The piece of one action, or of a forward and a backward that overlap."""
        plan = self.plan
        w = GridWriter(self.tables, plan) if plan.shard.side > 1 else PieceWriter(self.tables)
        scripts = [
            Script(plan, self.holdings, one, LayerWriter(plan, w, one.kind == "B"), number)
            for number, one in enumerate(passes)
        ]
        steps = interleaved(scripts) if len(scripts) == 2 else scripts[0].steps
        for step in steps:
            step()
        ends = [list(chain(*ops)) for ops in zip_longest(*(script.ends for script in scripts), fillvalue=[])]
        heads, tails = [script.heads for script in scripts], [script.tail for script in scripts]
        return w.piece(heads, tails, ends, [script.passes for script in scripts])
