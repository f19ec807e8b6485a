"""When nothing can run any more: find the ops that wait for each other and say so."""

from collections.abc import Callable


class DeadlockError(RuntimeError):
    """No event is left but ops are; the message names the cycle, or the op that waits for what never comes."""


def describe(stuck: list[int], waits_for: Callable[[int], tuple[int | None, str]], name: Callable[[int], str]) -> str:
    """Follow the waits from the first stuck op until one repeats, and print that cycle.

    `waits_for(op)` gives the op that blocks it and why, or (None, why) if no op can unblock it.
    """
    path: list[tuple[int, str]] = []
    seen: dict[int, int] = {}
    op: int | None = stuck[0]
    while op is not None and op not in seen:
        seen[op] = len(path)
        blocker, why = waits_for(op)
        path.append((op, why))
        op = blocker
    cycle = path[seen[op] :] if op is not None else path[-1:]
    lines = [f"  {name(one)} {why}" for one, why in cycle]
    title = "deadlock" if op is not None else "an op can never start"
    what = "the cycle is" if op is not None else "the first of them"
    return "\n".join([f"{title}: {len(stuck)} ops cannot run; {what}", *lines])
