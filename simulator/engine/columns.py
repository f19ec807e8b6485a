"""What the loops of `loops` work on: plain arrays, grouped by what they are about. `static` fills them for each run.

The loops modify some of them. Columns of ops are by the number of the op in its Program.
"""

from typing import Any, NamedTuple


class Waits(NamedTuple):
    """The ops `successors[first[i]:first[i + 1]]` wait for op i, in the order in which they are released.

    `left[i]` is the number of ops for which op i still waits.
    """

    first: Any
    successors: Any
    left: Any


class Work(NamedTuple):
    """The work of active ops by seat: few numbers, which stay in the processor's cache.

    The seat of op i is `seat[i]`, its first lane, where no other op works meanwhile; `total[i]` is its work in seconds
    at full speed. `op` works at a seat; its `remaining` work is that at the time `since` when its `speed` last changed.
    `cap` is the highest speed that interference on its ranks allows, computed in the instant `capped`; `goal` is its
    speed from the end of this instant.
    """

    seat: Any
    total: Any
    op: Any
    capped: Any
    remaining: Any
    since: Any
    speed: Any
    cap: Any
    goal: Any
    finish_at: Any


class Stack(NamedTuple):
    """The numbers `items[:size[0]]`. A list would get new memory each time that it is emptied."""

    items: Any
    size: Any


class Moment(NamedTuple):
    """What changes within an instant, as Stacks: ops that are `joining` the active ones and that are `due` to end,
    seats of the `active` ops and of `fresh` ones among them, `stale` cells, seats of ops that have `shared` links.

    `_settle` says what `fresh`, `stale` and `shared` are for.
    """

    joining: Any
    due: Any
    active: Any
    fresh: Any
    stale: Any
    shared: Any


class Links(NamedTuple):
    """The rates that ops ask of links, by row, as columns of `sharing.fill`; `asked` is its scratch space.

    `load` is the sum of the active ops' full-speed rates on each link. A link is full if this is above `limit`;
    `full[0]` is the number of full links.
    """

    row: Any
    start: Any
    links: Any
    rates: Any
    capacity: Any
    asked: Any
    limit: Any
    load: Any
    full: Any


class Crowds(NamedTuple):
    """Which ops slow which. Op i counts in `cells[start[i]:start[i + 1]]`, one for each place (or rank) of the op.

    `count[cell * classes + c]` is the number of active ops of class c, and `touched[cell]` the last instant in which
    it changed. The active ops of a cell are a doubly linked list: entry k is op `ops[k]`, `head[cell]` is the first
    entry, `next[k]` and `last[k]` are the entries after and before k, -1 for none. Class c is disturbed by the classes
    `aggressor[k]`, k in `pairs[c]:pairs[c + 1]`; beside n of their ops it keeps the share `power[k][n]` of its speed.
    """

    class_of: Any
    start: Any
    cells: Any
    count: Any
    touched: Any
    ops: Any
    head: Any
    next: Any
    last: Any
    pairs: Any
    aggressor: Any
    power: Any
    classes: int


class Slots(NamedTuple):
    """Op i takes a slot of each pool in `acquires[taken[i]:taken[i + 1]]` and gives back one of each in
    `releases[given[i]:given[i + 1]]`.

    `free[p]` is the number of free slots of pool p. The ops that wait for it are `queue[head[p]:tail[p]]`. `queued[i]`:
    op i waits, in the queues of all its pools.
    """

    taken: Any
    acquires: Any
    given: Any
    releases: Any
    free: Any
    queue: Any
    head: Any
    tail: Any
    queued: Any
