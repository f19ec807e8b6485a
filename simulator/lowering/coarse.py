"""The coarser level: one op per action, which takes as long as its kernels take alone.

`coarse` gives the step and, as a second Program, the distinct actions, each at a place of its own: what an action takes
is what its place takes. Sends, gathers, reductions and the end of the step are the same ops as at the level of kernels.
What is reduced beside the last backward, or gathered beside the first forward, is cut in two: what one layer has, which
stays in front of the action or behind it, and the rest, which runs beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..program import Place, Program
from ..schedules.grid import Cell
from .actions import Pass
from .assembly import Assembly
from .held import Share
from .piece import COMPUTE, Piece
from .plan import TrainPlan
from .step import Placed, Step

KIND = "actions"


@dataclass(frozen=True)
class Coarse:
    """A step whose ops of kind `actions` have as shape the place of `actions` that says what they do."""

    program: Program
    actions: Program


def coarse(plan: TrainPlan) -> Coarse:
    """The step with one op per action; not for sharded weights (ZeRO-3), whose gathers run from action to action."""
    assert plan.sharding.level < 3, "weights are gathered across actions"
    step = _CoarseStep(plan)
    return Coarse(step.program(), step.actions())


class _CoarseStep(Step):
    """A step that stamps one op where another stamps a piece."""

    def __init__(self, plan: TrainPlan):
        super().__init__(plan)
        self._pieces: dict[int, tuple[Piece, int, int]] = {}  # by identity: the piece, its number, its rank
        self._tables = self.assembly.tables

    def actions(self) -> Program:
        """Every distinct action once, at a place of its own."""
        alone = Assembly(self._tables, [Place(f"action {i}", (i,)) for i in range(len(self._pieces))])
        for piece, number, _ in self._pieces.values():
            alone.stamp(piece, number, -1, -1, "F")
        return alone.program()

    def place(self, rank: int, cell: Cell, passes: tuple[Pass, ...], before: Sequence[int]) -> list[Placed]:
        """One op for the whole cell."""
        piece = self.writers[rank].piece(*(replace(one, reduce=False) for one in passes))
        _, number, _ = self._pieces.setdefault(id(piece), (piece, len(self._pieces), rank))
        lead = cell[0]
        early = [self._reduce_beside(rank, one, before) for one in passes if one.reduce]
        op = self.assembly.op(
            KIND, [(rank, COMPUTE)], name=cell_name(cell), shape=(number,), stage=lead.stage,
            microbatch=lead.microbatch, action="FB" if len(cell) > 1 else lead.kind,
        )  # fmt: skip
        for parts in early:
            for share, size in parts:
                self._reduce_share(rank, share, size, [op])
        layers = [number for one in cell if one.kind == "F" for number in self.plan.stages[one.stage].layers]
        return [Placed([op], [op], op, op, dict.fromkeys(layers, op)) for _ in cell]

    def _wait_for_weights(self, rank: int, one: Placed, gathered: dict[int, list[int]]) -> None:
        """The first layer's weights hold the action up; what uses it waits for the rest."""
        waits = [gathered.pop(layer, []) for layer in one.weights]
        for first in waits[:1]:
            self.assembly.wait(one.heads[0], first)
        one.tails.extend(op for rest in waits[1:] for op in rest)

    def _reduce_beside(self, rank: int, one: Pass, before: Sequence[int]) -> list[tuple[Share, float]]:
        """Start reducing all layers but one beside the action; returns what is left for behind it."""
        holdings = self.writers[rank].holdings
        units = holdings.units(self.plan.stages[one.stage])
        left: dict[str, tuple[Share, float]] = {}
        for number, held in units:
            for share in holdings.shares(holdings.trained(number, held)):
                _, size = left.get(share.lane, (share, 0.0))
                left[share.lane] = (share, size + share.parameters * self.plan.types.reduced)
        early = 1 - 1 / len(units)
        for share, size in left.values():
            if early:
                self._reduce_share(rank, share, size * early, before)
        return [(share, size * (1 - early)) for share, size in left.values()]

    def _reduce_share(self, rank: int, share: Share, size: float, after: Sequence[int]) -> None:
        kind = "reduce_scatter" if self.plan.sharding.level else "all_reduce"
        lanes = [(rank, share.lane)]
        self.assembly.op(kind, lanes, after, name="reduce gradients", size_bytes=size, group=share.group)


def cell_name(cell: Cell) -> str:
    """What an op of a whole cell is called; stage and micro-batch are tags."""
    return " & ".join(action.kind for action in cell)
