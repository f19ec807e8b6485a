"""What makes a Grid a schedule: every pass once, on one rank, in an order that can run."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

from .grid import BACKWARD, FORWARD, INPUT, KINDS, WEIGHT, Action, Cell, Grid, cell_text, needs

_WHOLE = (sorted([FORWARD, BACKWARD]), sorted([FORWARD, INPUT, WEIGHT]))  # passes of a stage and micro-batch


def faults(grid: Grid) -> list[str]:
    """One line per fault; empty if every pass runs once, where and when it can."""
    return [*_outside(grid), *_cells(grid), *_passes(grid), *_own_order(grid)] or _deadlock(grid)


def validate(grid: Grid) -> Grid:
    """Return the Grid if it has no fault; ValueError with one line per fault."""
    if found := faults(grid):
        raise ValueError("\n".join(found))
    return grid


def _outside(grid: Grid) -> Iterator[str]:
    for rank in range(grid.ranks):
        for action in grid.actions(rank):
            if not (0 <= action.stage < grid.stages and 0 <= action.microbatch < grid.microbatches):
                size = f"{grid.stages} stages and {grid.microbatches} micro-batches"
                yield f"rank {rank}: {action} lies outside {size}"
            if action.kind not in KINDS:
                yield f"rank {rank}: {action} is of kind {action.kind!r}; known: {', '.join(KINDS)}"


def _cells(grid: Grid) -> Iterator[str]:
    for rank, row in enumerate(grid.rows):
        for cell in row:
            if not _well_formed(cell):
                yield f"rank {rank}: cell {cell_text(cell)!r}; expected one action, or a forward and a backward"


def _well_formed(cell: Cell) -> bool:
    return len(cell) == 1 or (len(cell) == 2 and cell[0].kind == FORWARD and cell[1].kind in (BACKWARD, INPUT))


def _passes(grid: Grid) -> Iterator[str]:
    kinds: dict[tuple[int, int], list[str]] = {key: [] for key in product(range(grid.stages), range(grid.microbatches))}
    ranks: dict[tuple[int, int], set[int]] = {key: set() for key in kinds}
    for rank in range(grid.ranks):
        for action in grid.actions(rank):
            kinds.setdefault((action.stage, action.microbatch), []).append(action.kind)
            ranks.setdefault((action.stage, action.microbatch), set()).add(rank)
    for (stage, microbatch), found in kinds.items():
        what = f"stage {stage}, micro-batch {microbatch}"
        if sorted(found) not in _WHOLE:
            counts = " ".join(f"{count}x{kind}" for kind, count in sorted(Counter(found).items())) or "nothing"
            yield f"{what}: {counts}; expected one F and one B, or one F, one I and one W"
        if len(ranks[stage, microbatch]) > 1:
            yield f"{what}: runs on ranks {', '.join(map(str, sorted(ranks[stage, microbatch])))}; expected one"


def _own_order(grid: Grid) -> Iterator[str]:
    """Needs on the same rank that stand behind, or in the same cell."""
    for rank, row in enumerate(grid.rows):
        at = {action: place for place, cell in enumerate(row) for action in cell}
        for action, place in at.items():
            for need in needs(grid, action):
                if at.get(need, -1) >= place:
                    beside = "beside" if at[need] == place else "before"
                    yield f"rank {rank}: {action} stands {beside} {need}, which it needs"


def _deadlock(grid: Grid) -> list[str]:
    try:
        for _ in walk(grid):
            pass
    except DeadlockError as error:
        return [str(error)]
    return []


class DeadlockError(RuntimeError):
    """No rank can go on; the message names the cycle, or the action that no rank runs."""


def walk(grid: Grid) -> Iterator[tuple[int, Cell]]:
    """(rank, cell) so that whatever a cell needs came before it.

    Raises:
        DeadlockError: at the end, if cells are left.
    """
    done: set[Action] = set()
    at = [0] * grid.ranks
    waiting: dict[Action, list[int]] = {}
    awake = list(reversed(range(grid.ranks)))
    while awake:
        rank = awake.pop()
        while at[rank] < len(grid.rows[rank]):
            cell = grid.rows[rank][at[rank]]
            if (blocker := _missing(grid, cell, done)) is not None:
                waiting.setdefault(blocker, []).append(rank)
                break
            yield rank, cell
            done.update(cell)
            at[rank] += 1
            for action in cell:
                awake.extend(waiting.pop(action, ()))
    if waiting:
        raise DeadlockError(_cycle(grid, at, {rank: blocker for blocker in waiting for rank in waiting[blocker]}))


def _missing(grid: Grid, cell: Cell, done: set[Action]) -> Action | None:
    """The first need of a cell that is not done; a cell is one step, so its own actions are not."""
    for action in cell:
        for need in needs(grid, action):
            if need not in done:
                return need
    return None


def _cycle(grid: Grid, at: list[int], blockers: dict[int, Action]) -> str:
    """Follow the waits from the first stuck rank until a rank repeats."""
    where = {action: rank for rank in range(grid.ranks) for action in grid.actions(rank)}
    path: list[int] = []
    rank: int | None = min(blockers)
    while rank is not None and rank not in path:
        path.append(rank)
        rank = where.get(blockers[rank])
    cycle = path[path.index(rank) :] if rank is not None else path[-1:]
    heads = {rank: cell_text(grid.rows[rank][at[rank]]) for rank in cycle}
    lines = [f"rank {rank} stands at {heads[rank]}, which waits for {_place(where, blockers[rank])}" for rank in cycle]
    return f"deadlock: {len(blockers)} of {grid.ranks} ranks are stuck; " + "; ".join(lines)


def _place(where: dict[Action, int], action: Action) -> str:
    return f"{action} of rank {where[action]}" if action in where else f"{action}, which no rank runs"
