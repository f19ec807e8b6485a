"""Schedules cut short: as many micro-batches as show the most that a rank ever holds, for bounds of long steps.

1F1B repeats itself after p forwards on rank 0. Interleaved schedules of full groups of g micro-batches repeat after
each g v entries of their table: the same chunks, g micro-batches later. So the warm-up and one such period hold what
any number of periods does, and the cool-down only lets go.
"""

import numpy as np
from numpy.typing import NDArray

from ...base.memo import Memo
from ...schedules import Grid
from ...schedules.grid import BACKWARD, FORWARD, KINDS, WEIGHT
from ...schedules.interleaved import warmup
from ...systems.train_step.resolve import ResolvedTrain

Floats = NDArray[np.float64]
InFlight = tuple[tuple[tuple[int, ...], Floats], ...]  # of each rank: its stages, and counts [moments, stages]


def shorten(resolved: ResolvedTrain) -> ResolvedTrain:
    """The same step on a grid of fewer micro-batches, where its schedule repeats itself; `microbatches` stays.

    Raises:
        UserError: the step itself is not allowed.
    """
    ranks, given = resolved.dims.pp, resolved.scenario.schedule
    most = enough_microbatches(given.name, ranks, resolved.microbatches, given.vpp or 1, given.group)
    if most >= resolved.microbatches:
        return resolved
    # Schedules of both numbers of micro-batches are refused for the same reasons, or neither is.
    return resolved.on(resolved.shorter_grid(most))


def enough_microbatches(name: str, ranks: int, microbatches: int, chunks: int, group: int | None) -> int:
    """Micro-batches of a shorter schedule in which every rank holds as much; all of them where none is known."""
    if name == "1f1b":
        return min(ranks, microbatches)
    each = group or ranks
    if not name.startswith("interleaved") or microbatches % each:
        return microbatches
    periods = -(-warmup(0, ranks, chunks, each, 1) // (each * chunks)) + 1
    return min(periods * each, microbatches)


def in_flight(grid: Grid, memo: Memo) -> InFlight:
    """Of each rank, its stages and how many micro-batches each of them holds, at every moment that differs."""
    ranks = range(grid.ranks)
    return memo.get("in flight", grid, lambda: tuple(_of_rank(grid, rank) for rank in ranks), lambda _: grid.cells)


def _of_rank(grid: Grid, rank: int) -> tuple[tuple[int, ...], Floats]:
    """Counts when the forwards of a cell have begun and its backwards have not ended."""
    stages, cells = grid.stages_of(rank), grid.columns[rank]
    kind, stage, microbatch = (column[..., None] for column in np.moveaxis(cells, 2, 0))
    halved = np.zeros((grid.stages, grid.microbatches), bool)
    halved[tuple(np.array(list(grid.split), np.int64).reshape(-1, 2).T)] = True
    last = np.where(halved[stage, microbatch], KINDS.index(WEIGHT), KINDS.index(BACKWARD))
    own = stage == np.array(stages)
    begun = np.cumsum((own & (kind == KINDS.index(FORWARD))).sum(axis=1), axis=0)
    ended = np.cumsum((own & (kind == last)).sum(axis=1), axis=0)
    ended[1:], ended[:1] = ended[:-1].copy(), 0
    return stages, np.unique(begun - ended, axis=0).astype(np.float64)
