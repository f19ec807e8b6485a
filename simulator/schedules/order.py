"""In which order a Grid can run at all, and who waits for whom if it cannot."""

from collections.abc import Iterator

from .grid import Action, Cell, Grid, cell_text, needs


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
    lines = [f"rank {rank} {heads[rank]} waits for {_place(where, blockers[rank])}" for rank in cycle]
    return f"deadlock: {len(blockers)} of {grid.ranks} ranks are stuck; " + "; ".join(lines)


def _place(where: dict[Action, int], action: Action) -> str:
    return f"{action} of rank {where[action]}" if action in where else f"{action}, which no rank runs"
