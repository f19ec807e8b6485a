"""The cells of a schedule as arrays: what all ranks run, in their order, and what is special about some of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....schedules.grid import BACKWARD, FORWARD, KINDS, WEIGHT
from .piece import Ints, Piece
from .plan import TrainPlan
from .script import Pass


class Cells(NamedTuple):
    """The cells of all ranks, rank by rank in their order: `columns[cell, i]` is kind, stage and micro-batch of its
    i-th action, -1 where it has one only.

    `opens` marks the first forward of a stage, `gathers` actions that gather weights for the whole step, and `reduces`
    those that send gradients on their way; shape [cells, 2].
    """

    rank: Ints
    columns: Ints
    opens: NDArray[np.bool_]
    gathers: NDArray[np.bool_]
    reduces: NDArray[np.bool_]

    @classmethod
    def of(cls, plan: TrainPlan) -> "Cells":
        """Those of a plan's grid."""
        grid, sharding = plan.grid, plan.sharding
        rank, columns = np.repeat(np.arange(grid.ranks), [len(row) for row in grid.rows]), np.concatenate(grid.columns)
        kind, stage, _ = np.moveaxis(columns, 2, 0)
        forward, gradient = kind == KINDS.index(FORWARD), np.isin(kind, [KINDS.index(BACKWARD), KINDS.index(WEIGHT)])
        of_stage = rank[:, None] * grid.stages + stage
        opens, last = _first_of_each(of_stage, forward), _first_of_each(of_stage[::-1], gradient[::-1])[::-1]
        each = sharding.level >= 2 and sharding.each_microbatch
        reduces = gradient if each else last & sharding.overlap_grads
        return cls(rank, columns, opens, opens & (sharding.level >= 3), reduces)

    def passes(self, cell: int) -> tuple[Pass, ...]:
        """What the actions of a cell are."""
        return tuple(
            Pass(stage, KINDS[kind], bool(self.gathers[cell, i]), bool(self.reduces[cell, i]))
            for i, (kind, stage, _) in enumerate(self.columns[cell].tolist())
            if kind >= 0
        )


def _first_of_each(of: Ints, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the entries that are marked, the first one of each kind."""
    cell, column = np.nonzero(which)
    kinds, found = of[cell, column], np.zeros_like(which)
    first = np.empty(int(kinds.max(initial=-1)) + 1, np.int64)
    first[kinds[::-1]] = np.arange(len(kinds))[::-1]  # of several values for one place, the last one stays
    own = first[kinds] == np.arange(len(kinds))
    found[cell[own], column[own]] = True
    return found


class Placed(NamedTuple):
    """The cells in the Program: the piece of each, and its first op."""

    cells: Cells
    pieces: Sequence[Piece]
    which: Ints
    first: Ints
    layers: Ints
