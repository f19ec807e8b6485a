"""Actions as Pieces, each written once. What an action is made of is in `script`."""

from itertools import chain, zip_longest

from .held import Holdings
from .layers import LayerWriter
from .piece import Piece, PieceWriter, Tables
from .plan import TrainPlan
from .script import Fragments, Pass, Script, interleaved
from .summa import GridWriter


class ActionWriter:
    """Writes the pieces of one pipeline rank; what layers are made of is kept in `fragments`."""

    def __init__(self, plan: TrainPlan, pipeline_rank: int, tables: Tables, fragments: Fragments | None = None):
        self.plan, self.tables, self.holdings = plan, tables, Holdings(plan, pipeline_rank)
        self._fragments: Fragments = {} if fragments is None else fragments

    def piece(self, *passes: Pass) -> Piece:
        """The piece of one action, or of a forward and a backward that overlap."""
        plan = self.plan
        w = GridWriter(plan) if plan.shard.side > 1 else PieceWriter()
        scripts = [
            Script(plan, self.holdings, one, LayerWriter(plan, w, one.kind == "B"), number)
            for number, one in enumerate(passes)
        ]
        if len(scripts) == 2:
            for step in interleaved(scripts):
                step()
        else:
            scripts[0].write(self._fragments)
        ends = [list(chain(*ops)) for ops in zip_longest(*(script.ends for script in scripts), fillvalue=[])]
        heads, tails = [script.heads for script in scripts], [script.tail for script in scripts]
        return w.piece(self.tables, heads, tails, ends, [script.passes for script in scripts])
