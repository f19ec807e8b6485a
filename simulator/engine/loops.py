"""The engine's rules once more, as loops over plain arrays: for Programs that no process touches.

`run_alone` is for Programs whose ops never slow each other, `run_together` for all others. Both give start, end and
cause of every op with the bits that `engine` and `flows` give: the order is the same (time, priority, sequence number),
speeds are settled once per instant, and sums are done in the same order. A rule that changes there changes here;
tests/engine/test_static.py compares the two on random Programs.

As in `sharing`, the same lines run interpreted (on lists) and compiled by numba (on arrays): hence no objects, and
functions longer than elsewhere. They write into `start`, `end` and `cause`, use up the other columns that change, and
return how many ops have ended: fewer than there are is a deadlock.
"""

from heapq import heappop, heappush
from typing import Any, NamedTuple

from .compiled import column, unowned
from .sharing import HELPERS as FILL_HELPERS
from .sharing import TIE, fill

_NEVER = float("inf")


class Waits(NamedTuple):
    """The ops `successors[first[i]:first[i + 1]]` wait for op i, in the order in which they are released.

    `left[i]` is how many ops it still waits for itself.
    """

    first: Any
    successors: Any
    left: Any


class Work(NamedTuple):
    """One entry per op that works: what is `remaining` (seconds at full speed) since its `speed` last changed.

    `cap` is the speed that its ranks leave it, `goal` the one that it gets when the instant is settled.
    """

    remaining: Any
    since: Any
    speed: Any
    cap: Any
    goal: Any
    finish_at: Any


class Links(NamedTuple):
    """What the op asks of links, by its row, in the columns of `sharing.fill`; `asked` is its scratch.

    `load` is what the active ops ask of each link at full speed; above `limit` the link is full, as `full[0]` are.
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
    """Who disturbs whom. Op i counts in `cells[start[i]:start[i + 1]]`, one for each place (or rank) that it works on.

    `count[cell * classes + c]` is the number of active ops of class c, and `touched[cell]` the last instant in which
    that changed. Active ops of a cell are a list with links both ways: entry k is of op `ops[k]`, the first one is
    `head[cell]`, `next[k]` and `last[k]` stand behind and before it, -1 where there is none. `capped[i]` is the last
    instant in which op i got its cap. Class c is disturbed by the classes `aggressor[k]`, k in `pairs[c]:pairs[c + 1]`;
    n of them leave it the speed `power[k][n]`.
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
    capped: Any
    pairs: Any
    aggressor: Any
    power: Any
    classes: int


class Slots(NamedTuple):
    """Op i takes a slot of each pool in `acquires[taken[i]:taken[i + 1]]` and gives back one of each in
    `releases[given[i]:given[i + 1]]`.

    `free[p]` is how many slots pool p has; ops that wait for it are `queue[head[p]:tail[p]]`, and `queued[i]` says that
    op i is one of those, in all of its pools.
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


def run_alone(waits: Waits, slots: Slots, delay: Any, start: Any, end: Any, cause: Any) -> int:
    """Every op takes its delay, whatever else runs."""
    waits, slots = unowned((waits, slots))
    left = waits.left
    heap, begun = [(0.0, 0, 0)], column(len(left), 0)
    heap.clear()
    sequence = ended = 0
    for op in range(len(left)):
        if left[op] == 0 and _take(op, slots):
            heappush(heap, (delay[op], sequence, op))
            sequence += 1
    while heap:
        now, _, op = heappop(heap)
        end[op] = now
        ended += 1
        for k in range(_let_begin(op, waits, slots, begun)):
            after = begun[k]
            start[after] = now
            cause[after] = op
            heappush(heap, (now + delay[after], sequence, after))
            sequence += 1
    return ended


def run_together(
    waits: Waits, slots: Slots, delay: Any, is_flow: Any, work: Work, links: Links, crowds: Crowds, start: Any,
    end: Any, cause: Any,
) -> int:  # fmt: skip
    """Every op takes its delay; those that are flows then work, as fast as the other active ones let them.

    One round of the loop: what begins to work now joins the active ops, then comes the next event: a delay is over, or
    ops end at the alarm. After the last event of an instant all speeds are settled, and the alarm set anew.
    """
    waits, slots, work, links, crowds = unowned((waits, slots, work, links, crowds))
    left = waits.left
    heap = [(0.0, 0, 0)]
    active, joining, due, begun = [0], [0], [0], column(len(left), 0)
    fresh, stale, shared = [0], [0], [0]
    heap.clear()
    active.clear()
    joining.clear()
    due.clear()
    fresh.clear()
    stale.clear()
    shared.clear()
    now, alarm, alarm_at, alarm_sequence = 0.0, _NEVER, _NEVER, 0
    sequence = ended = instant = 0
    touched = moved = False
    for op in range(len(left)):
        if left[op] == 0 and _take(op, slots):
            if is_flow[op] and delay[op] == 0.0:
                joining.append(op)
            else:
                heappush(heap, (delay[op], sequence, op))
                sequence += 1
    while ended < len(left):
        if joining:
            for op in joining:
                active.append(op)
                fresh.append(op)
                work.since[op] = now
                _join(op, crowds)
                moved |= _enter(op, 1, links, crowds, instant, stale)
            joining.clear()
            touched = True
        if not due:
            of_heap = bool(heap) and (heap[0][0] < alarm or (heap[0][0] == alarm and heap[0][1] < alarm_sequence))
            following = heap[0][0] if of_heap else alarm
            if touched and following > now:
                _settle(now, instant, moved, active, fresh, stale, shared, work, links, crowds)
                soonest = _NEVER
                for op in active:
                    soonest = min(soonest, work.finish_at[op])
                if soonest != alarm_at:
                    alarm_at, alarm_sequence = soonest, sequence
                    alarm = now + (soonest - now) if soonest < _NEVER else _NEVER
                    sequence += 1
                touched = moved = False
                instant += 1
                continue
            if following == _NEVER:
                break
            now = following
            if of_heap:
                op = heappop(heap)[2]
                if is_flow[op]:
                    joining.append(op)
                    continue
                due.append(op)
            else:
                for k in range(len(active) - 1, -1, -1):
                    if work.finish_at[active[k]] <= alarm_at * TIE:
                        due.append(active[k])
                alarm = alarm_at = _NEVER
        op = due.pop()
        if is_flow[op]:
            active.remove(op)
            _leave(op, crowds)
            moved |= _enter(op, -1, links, crowds, instant, stale)
            touched = True
        end[op] = now
        ended += 1
        for k in range(_let_begin(op, waits, slots, begun)):
            after = begun[k]
            start[after] = now
            cause[after] = op
            if is_flow[after] and delay[after] == 0.0:
                joining.append(after)
            else:
                heappush(heap, (now + delay[after], sequence, after))
                sequence += 1
    return ended


def _let_begin(op: int, waits: Waits, slots: Slots, begun: Any) -> int:
    """Write into `begun` what the end of an op lets begin: who waited for its slots, then who waited for itself; how
    many these are.
    """
    many = _give(op, slots, begun)
    for k in range(waits.first[op], waits.first[op + 1]):
        after = waits.successors[k]
        waits.left[after] -= 1
        if waits.left[after] == 0 and _take(after, slots):
            begun[many] = after
            many += 1
    return many


def _take(op: int, slots: Slots) -> bool:
    """The rule of `pools`: take all slots that the op needs, or queue it for them; whether it has them."""
    taken, acquires, _, _, free, queue, head, tail, queued = slots
    first, end = taken[op], taken[op + 1]
    for k in range(first, end):
        pool, needed = acquires[k], 0
        for other in range(first, end):
            needed += 1 if acquires[other] == pool else 0
        if free[pool] < needed or (head[pool] < tail[pool] and queue[head[pool]] != op):
            if not queued[op]:
                queued[op] = True
                _append(op, slots)
            return False
    for k in range(first, end):
        pool = acquires[k]
        free[pool] -= 1
        if head[pool] < tail[pool] and queue[head[pool]] == op:
            head[pool] += 1
    return True


def _append(op: int, slots: Slots) -> None:
    """At the end of the queue of each of its pools."""
    for k in range(slots.taken[op], slots.taken[op + 1]):
        pool = slots.acquires[k]
        if slots.head[pool] == slots.tail[pool] or slots.queue[slots.tail[pool] - 1] != op:
            slots.queue[slots.tail[pool]] = op
            slots.tail[pool] += 1


def _give(op: int, slots: Slots, begun: Any) -> int:
    """Give back the op's slots; write into `begun` the ops that have got theirs by that, and return how many."""
    taken, acquires, given, releases, free, queue, head, tail, _ = slots
    if given[op] == given[op + 1]:
        return 0
    changed = [releases[k] for k in range(given[op], given[op + 1])]
    for pool in changed:
        free[pool] += 1
    at = many = 0
    while at < len(changed):  # grows: behind who leaves a queue may stand one whose slots are free
        pool = changed[at]
        at += 1
        while head[pool] < tail[pool]:
            first = queue[head[pool]]
            if not _take(first, slots):
                break
            for k in range(taken[first], taken[first + 1]):
                if acquires[k] != pool:
                    changed.append(acquires[k])
            begun[many] = first
            many += 1
    return many


def _join(op: int, crowds: Crowds) -> None:
    """The op is one of those that work in its cells."""
    cells, head, behind, before = crowds.cells, crowds.head, crowds.next, crowds.last
    for k in range(crowds.start[op], crowds.start[op + 1]):
        first = head[cells[k]]
        behind[k], before[k], head[cells[k]] = first, -1, k
        if first >= 0:
            before[first] = k


def _leave(op: int, crowds: Crowds) -> None:
    """The op is no longer one of them."""
    cells, head, behind, before = crowds.cells, crowds.head, crowds.next, crowds.last
    for k in range(crowds.start[op], crowds.start[op + 1]):
        if before[k] >= 0:
            behind[before[k]] = behind[k]
        else:
            head[cells[k]] = behind[k]
        if behind[k] >= 0:
            before[behind[k]] = before[k]


def _enter(op: int, step: int, links: Links, crowds: Crowds, instant: int, stale: Any) -> bool:
    """The op begins to work (step 1) or stops (-1); whether others feel it: it crosses a link that was full or is now.

    Its cells become `stale`.
    """
    row, load, limit, felt = links.row[op], links.load, links.limit, False
    for k in range(links.start[row], links.start[row + 1]):
        link = links.links[k]
        before = load[link] > limit[link]
        load[link] += step * links.rates[k]
        after = load[link] > limit[link]
        links.full[0] += after - before
        felt |= before or after
    for k in range(crowds.start[op], crowds.start[op + 1]):
        cell = crowds.cells[k]
        crowds.count[cell * crowds.classes + crowds.class_of[op]] += step
        if crowds.touched[cell] != instant:
            crowds.touched[cell] = instant
            stale.append(cell)
    return felt


def _settle(
    now: float, instant: int, moved: bool, active: Any, fresh: Any, stale: Any, shared: Any, work: Work, links: Links,
    crowds: Crowds,
) -> None:  # fmt: skip
    """Give active ops the speeds that they have from now on: those that are `fresh`, that have others in their cells
    than before, or that share links or did so until now. The others keep theirs. `moved`: something on a full link did.
    """
    cap, goal = work.cap, work.goal
    for cell in stale:
        k = crowds.head[cell]
        while k >= 0:
            op = crowds.ops[k]
            if crowds.capped[op] != instant:
                crowds.capped[op] = instant
                own = _cap(op, crowds)
                if own != cap[op]:
                    moved |= _on_full_link(links.row[op], links)
                    cap[op] = goal[op] = own
                    fresh.append(op)
            k = crowds.next[k]
    if moved and (links.full[0] > 0 or len(shared) > 0):
        for op in shared:
            goal[op] = cap[op]
            fresh.append(op)
        _share(active, shared, cap, goal, links)
        fresh.extend(shared)
    for op in fresh:
        if goal[op] != work.speed[op]:
            _change_speed(op, now, work)
    fresh.clear()
    stale.clear()


def _change_speed(op: int, now: float, work: Work) -> None:
    """From now on the op runs at its goal."""
    remaining, since, speed, _, goal, finish_at = work
    remaining[op] -= speed[op] * (now - since[op])
    since[op], speed[op] = now, goal[op]
    finish_at[op] = now + max(remaining[op], 0.0) / goal[op] if goal[op] > 0.0 else _NEVER


def _cap(op: int, crowds: Crowds) -> float:
    """The rule of `disturbance`: factors multiply, and an op takes the slowest of its ranks."""
    own = crowds.class_of[op]
    slowest = _NEVER
    for k in range(crowds.start[op], crowds.start[op + 1]):
        here = crowds.cells[k] * crowds.classes
        left = 1.0
        for pair in range(crowds.pairs[own], crowds.pairs[own + 1]):
            other = crowds.aggressor[pair]
            count = crowds.count[here + other] - (1 if other == own else 0)
            left *= crowds.power[pair][count]
        slowest = min(slowest, left)
    return slowest


def _share(active: Any, shared: Any, cap: Any, goal: Any, links: Links) -> None:
    """Ops on full links share them, and are listed in `shared`."""
    n = len(links.row)
    shared.clear()
    if links.full[0] == 0:
        return
    keys = [links.row[op] * n + op for op in active if _on_full_link(links.row[op], links)]
    keys.sort()
    rows, caps, speeds = column(len(keys), 0), column(len(keys), 0.0), column(len(keys), 0.0)
    for f in range(len(keys)):
        shared.append(keys[f] % n)
        rows[f], caps[f] = keys[f] // n, cap[shared[f]]
    fill(rows, links.start, links.links, links.rates, caps, links.capacity, links.asked, speeds)
    for f in range(len(keys)):
        goal[shared[f]] = speeds[f]


def _on_full_link(row: int, links: Links) -> bool:
    for k in range(links.start[row], links.start[row + 1]):
        if links.load[links.links[k]] > links.limit[links.links[k]]:
            return True
    return False


HELPERS = (
    *FILL_HELPERS, fill, unowned, _append, _take, _give, _let_begin, _join, _leave, _enter, _settle, _change_speed,
    _cap, _share, _on_full_link,
)  # fmt: skip
"""What `run_alone` and `run_together` call."""
