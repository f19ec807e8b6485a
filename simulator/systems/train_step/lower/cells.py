"""The cells of a schedule as arrays: the actions of all ranks in their order, with flags for gathers and reductions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....base.arrays import Ints
from ....schedules.grid import BACKWARD, FORWARD, KINDS, WEIGHT
from .piece import Piece
from .plan import TrainPlan
from .script import Pass


class Cells(NamedTuple):
    """The cells of all ranks, rank by rank in their order.

    `columns[cell, i]` is (kind, stage, micro-batch) of its i-th action; -1 if it has only one. Flags of shape
    [cells, 2]: `opens` marks the first forward of a stage in each pass through the pipeline, `gathers` actions that
    gather weights for the whole pass, `reduces` actions that send gradients.
    """

    rank: Ints
    columns: Ints
    opens: NDArray[np.bool_]
    gathers: NDArray[np.bool_]
    reduces: NDArray[np.bool_]

    @classmethod
    def build(cls, plan: TrainPlan) -> "Cells":
        """The cells of a plan's grid."""
        grid, sharding = plan.grid, plan.sharding
        rank, columns = np.repeat(np.arange(grid.ranks), [len(row) for row in grid.rows]), np.concatenate(grid.columns)
        kind, stage, microbatch = np.moveaxis(columns, 2, 0)
        forward, gradient = kind == KINDS.index(FORWARD), np.isin(kind, [KINDS.index(BACKWARD), KINDS.index(WEIGHT)])
        passed = np.maximum(microbatch, 0) // (grid.microbatches // grid.passes)
        of_stage = (passed * grid.ranks + rank[:, None]) * grid.stages + stage
        opens, last = _first_of_each(of_stage, forward), _first_of_each(of_stage[::-1], gradient[::-1])[::-1]
        each = sharding.level >= 2 and sharding.each_microbatch
        reduces = gradient if each else last & sharding.overlap_grads
        kept = grid.ranks > 1 or not sharding.each_microbatch  # weights, from one micro-batch to the next
        gathers = (opens if kept else forward) & (sharding.level >= 3)
        return cls(rank, columns, opens, gathers, reduces)

    def passes(self, cell: int) -> tuple[Pass, ...]:
        """The actions of a cell."""
        return tuple(
            Pass(stage, KINDS[kind], bool(self.gathers[cell, i]), bool(self.reduces[cell, i]))
            for i, (kind, stage, _) in enumerate(self.columns[cell].tolist())
            if kind >= 0
        )


def _first_of_each(of: Ints, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask of the first marked entry of each kind."""
    cell, column = np.nonzero(which)
    kinds, found = of[cell, column], np.zeros_like(which)
    first = np.empty(int(kinds.max(initial=-1)) + 1, np.int64)
    first[kinds[::-1]] = np.arange(len(kinds))[::-1]  # of several values for one place, the last one stays
    own = first[kinds] == np.arange(len(kinds))
    found[cell[own], column[own]] = True
    return found


class Placed(NamedTuple):
    """The stamped cells: the piece of each, and its first op in the Program."""

    cells: Cells
    pieces: Sequence[Piece]
    which: Ints
    first: Ints
    layers: Ints
