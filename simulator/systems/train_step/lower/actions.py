"""Actions as Pieces: those of equal stages are written once. What an action is made of is in `script`."""

from collections.abc import Hashable
from functools import cached_property
from itertools import chain, zip_longest
from typing import NamedTuple

from .held import Holdings
from .layers import LayerWriter
from .piece import Piece, PieceWriter, Tables
from .plan import TrainPlan
from .script import Pass, Script, interleaved
from .summa import GridWriter

_AXES = ("tp", "cp", "ep", "etp", "dp_cp", "dp_shard", "dp_replicate", "edp")
"""Along which groups exchange."""


class Written(NamedTuple):
    """A piece, and by how much the numbers of its layers and ranks are larger where it is used."""

    piece: Piece
    layers: int = 0
    ranks: int = 0


Pieces = dict[Hashable, tuple[Piece, int, int]]
"""Each with its first layer and the first rank of its stage."""


class ActionWriter:
    """Writes the pieces of one pipeline rank.

    `written` is for all writers of a step: stages of equal layers have equal pieces but for the numbers of layers and
    ranks, so that such a piece is written once.
    """

    def __init__(self, plan: TrainPlan, pipeline_rank: int, tables: Tables, written: Pieces | None = None):
        self.plan, self.tables = plan, tables
        self._written: Pieces = {} if written is None else written
        self.holdings = Holdings(plan, pipeline_rank)
        self._rank, self._first = pipeline_rank, plan.first_rank(pipeline_rank)
        self._pieces: dict[tuple[Pass, ...], Piece] = {}
        self._used: dict[tuple[Pass, ...], Written] = {}

    def piece(self, *passes: Pass) -> Piece:
        """The piece of one action, or of a forward and a backward that overlap."""
        if passes not in self._pieces:
            piece, layers, ranks = self.written(*passes)
            self._pieces[passes] = piece.moved(layers, ranks, self.tables) if layers or ranks else piece
        return self._pieces[passes]

    def written(self, *passes: Pass) -> Written:
        """The same as it was written, for this stage or another one of equal layers."""
        if passes not in self._used:
            self._used[passes] = self._made(passes)
        return self._used[passes]

    def _made(self, passes: tuple[Pass, ...]) -> Written:
        stages = [self.plan.stages[one.stage] for one in passes]
        if self.plan.mirrored or any(stage.has_ends or not stage.layers for stage in stages):
            return Written(self._write(passes))
        layer = stages[0].layers[0]
        like = tuple(
            (one.kind, one.first, one.reduce, *((number - layer, id(self.plan.layer(number))) for number in of.layers))
            for one, of in zip(passes, stages, strict=True)
        )
        key = like, self._groups
        if key not in self._written:
            self._written[key] = self._write(passes), layer, self._first
        piece, its_layer, its_first = self._written[key]
        return Written(piece, layer - its_layer, self._first - its_first)

    @cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of the first rank, counted from it."""
        groups = (self.plan.dims.group(axis, self._first) for axis in _AXES)
        return tuple(tuple(rank - self._first for rank in group) for group in groups)

    def _write(self, passes: tuple[Pass, ...]) -> Piece:
        plan = self.plan
        group = plan.dims.group("tp", self._first)
        w = GridWriter(self.tables, plan, group) if plan.shard.side > 1 else PieceWriter(self.tables)
        scripts = [
            Script(plan, self.holdings, one, LayerWriter(self.plan, self._rank, w, one.kind == "B"), number)
            for number, one in enumerate(passes)
        ]
        steps = interleaved(scripts) if len(scripts) == 2 else scripts[0].steps
        for step in steps:
            step()
        ends = [list(chain(*ops)) for ops in zip_longest(*(script.ends for script in scripts), fillvalue=[])]
        heads, tails = [script.heads for script in scripts], [script.tail for script in scripts]
        return w.piece(heads, tails, ends, [script.passes for script in scripts])
