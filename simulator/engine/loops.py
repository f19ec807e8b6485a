"""The engine's rules as loops over plain arrays, for Programs without processes.

`run_alone` is for Programs whose ops never slow each other, `run_together` for all others. Start, end and cause of
every op have the same bits as in `engine` and `flows`: events have the same order (time, priority, sequence number),
speeds are set once per instant, and sums are computed in the same order. If you change a rule there, change it here
too; tests/engine/test_static.py compares the two on random Programs.

As in `sharing`, the same lines run interpreted (on lists) and compiled by numba (on arrays). This is why there are no
objects, and why functions are longer than elsewhere. They write to `start`, `end` and `cause` and modify other columns.
They return the number of ops that have ended; if it is less than the number of ops, there is a deadlock.
"""

from heapq import heappop, heappush
from typing import Any

from .columns import Crowds, Links, Moment, Slots, Stack, Waits, Work
from .compiled import column, drop_owners
from .sharing import HELPERS as FILL_HELPERS
from .sharing import TIE, fill

_NEVER = float("inf")


def run_alone(waits: Waits, slots: Slots, delay: Any, start: Any, end: Any, cause: Any) -> int:
    """Run a Program in which every op takes its delay, whatever else runs. Returns the number of ops that ended."""
    waits, slots = drop_owners((waits, slots))
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
    waits: Waits, slots: Slots, delay: Any, is_flow: Any, work: Work, links: Links, crowds: Crowds, moment: Moment,
    start: Any, end: Any, cause: Any,
) -> int:  # fmt: skip
    """Run a Program: every op takes its delay, then flows work as fast as the other active ops allow.

    In one round of the loop, ops that begin to work join the active ops, and then the next event occurs: a delay ends,
    or ops end at the alarm. After the last event of an instant all speeds and the alarm (the next end) are set.
    Returns the number of ops that ended.
    """
    waits, slots, work, links, crowds, moment = drop_owners((waits, slots, work, links, crowds, moment))
    left, (joining, due, active, fresh, stale, _) = waits.left, moment
    heap, begun = [(0.0, 0, 0)], column(len(left), 0)
    heap.clear()
    now, alarm, alarm_at, alarm_sequence = 0.0, _NEVER, _NEVER, 0
    sequence = ended = instant = 0
    touched = moved = False
    for op in range(len(left)):
        if left[op] == 0 and _take(op, slots):
            if is_flow[op] and delay[op] == 0.0:
                _push(op, joining)
            else:
                heappush(heap, (delay[op], sequence, op))
                sequence += 1
    while ended < len(left):
        if joining.size[0] > 0:
            for k in range(joining.size[0]):
                op = joining.items[k]
                _push(work.seat[op], active)
                _push(work.seat[op], fresh)
                _sit(op, now, work)
                _join(op, crowds)
                moved |= _enter(op, 1, links, crowds, instant, stale)
            joining.size[0] = 0
            touched = True
        if due.size[0] == 0:
            of_heap = bool(heap) and (heap[0][0] < alarm or (heap[0][0] == alarm and heap[0][1] < alarm_sequence))
            following = heap[0][0] if of_heap else alarm
            if touched and following > now:
                _settle(now, instant, moved, moment, work, links, crowds)
                soonest = _NEVER
                for k in range(active.size[0]):
                    soonest = min(soonest, work.finish_at[active.items[k]])
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
                    _push(op, joining)
                    continue
                _push(op, due)
            else:
                for k in range(active.size[0] - 1, -1, -1):
                    if work.finish_at[active.items[k]] <= alarm_at * TIE:
                        _push(work.op[active.items[k]], due)
                alarm = alarm_at = _NEVER
        due.size[0] -= 1
        op = due.items[due.size[0]]
        if is_flow[op]:
            _remove(work.seat[op], active)
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
                _push(after, joining)
            else:
                heappush(heap, (now + delay[after], sequence, after))
                sequence += 1
    return ended


def _let_begin(op: int, waits: Waits, slots: Slots, begun: Any) -> int:
    """Write the ops that can begin after the end of an op to `begun`, and return their number.

    First come the ops that waited for its slots, then those that waited for the op itself.
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
    """The rule of `pools`: take all slots that the op needs, or queue it. Returns whether it has its slots."""
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
    """Add an op to the end of the queue of each of its pools."""
    for k in range(slots.taken[op], slots.taken[op + 1]):
        pool = slots.acquires[k]
        if slots.head[pool] == slots.tail[pool] or slots.queue[slots.tail[pool] - 1] != op:
            slots.queue[slots.tail[pool]] = op
            slots.tail[pool] += 1


def _give(op: int, slots: Slots, begun: Any) -> int:
    """Give back an op's slots. Write the ops that get their slots now to `begun`, and return their number."""
    taken, acquires, given, releases, free, queue, head, tail, _ = slots
    if given[op] == given[op + 1]:
        return 0
    changed = [releases[k] for k in range(given[op], given[op + 1])]
    for pool in changed:
        free[pool] += 1
    at = many = 0
    while at < len(changed):  # `changed` grows: after an op that leaves a queue, the next one may find its slots free
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


def _push(value: int, stack: Stack) -> None:
    stack.items[stack.size[0]] = value
    stack.size[0] += 1


def _remove(value: int, stack: Stack) -> None:
    """Remove a value that is there once; the others keep their order."""
    items, at = stack.items, 0
    while items[at] != value:
        at += 1
    stack.size[0] -= 1
    for k in range(at, stack.size[0]):
        items[k] = items[k + 1]


def _sit(op: int, now: float, work: Work) -> None:
    """Give an op that begins to work its seat. It has no speed until the end of this instant."""
    seat = work.seat[op]
    work.op[seat], work.remaining[seat], work.since[seat] = op, work.total[op], now
    work.speed[seat], work.cap[seat], work.goal[seat], work.finish_at[seat] = 0.0, 1.0, 1.0, _NEVER


def _join(op: int, crowds: Crowds) -> None:
    """Add an op to the active ops of its cells."""
    cells, head, behind, before = crowds.cells, crowds.head, crowds.next, crowds.last
    for k in range(crowds.start[op], crowds.start[op + 1]):
        first = head[cells[k]]
        behind[k], before[k], head[cells[k]] = first, -1, k
        if first >= 0:
            before[first] = k


def _leave(op: int, crowds: Crowds) -> None:
    """Remove an op from the active ops of its cells."""
    cells, head, behind, before = crowds.cells, crowds.head, crowds.next, crowds.last
    for k in range(crowds.start[op], crowds.start[op + 1]):
        if before[k] >= 0:
            behind[before[k]] = behind[k]
        else:
            head[cells[k]] = behind[k]
        if behind[k] >= 0:
            before[behind[k]] = before[k]


def _enter(op: int, step: int, links: Links, crowds: Crowds, instant: int, stale: Stack) -> bool:
    """Count an op that begins to work (`step` 1) or stops (-1), and mark its cells as `stale`.

    Returns whether it crosses a link that was full before or is full now, so that other ops' speeds change.
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
            _push(cell, stale)
    return felt


def _settle(now: float, instant: int, moved: bool, moment: Moment, work: Work, links: Links, crowds: Crowds) -> None:
    """Set the speeds of active ops from now on.

    They change only for ops that are `fresh`, whose cells are `stale`, or that share links now or did so until now.
    `moved`: an op on a full link began or stopped. An op that sits where one that shared has left begins now, so that
    its goal is its cap already.
    """
    cap, goal, (_, _, active, fresh, stale, shared) = work.cap, work.goal, moment
    for i in range(stale.size[0]):
        k = crowds.head[stale.items[i]]
        while k >= 0:
            op = crowds.ops[k]
            seat = work.seat[op]
            if work.capped[seat] != instant:
                work.capped[seat] = instant
                own = _cap(op, crowds)
                if own != cap[seat]:
                    moved |= _on_full_link(links.row[op], links)
                    cap[seat] = goal[seat] = own
                    _push(seat, fresh)
            k = crowds.next[k]
    if moved and (links.full[0] > 0 or shared.size[0] > 0):
        for i in range(shared.size[0]):
            seat = shared.items[i]
            goal[seat] = cap[seat]
            _push(seat, fresh)
        _share(active, shared, work, links)
        for i in range(shared.size[0]):
            _push(shared.items[i], fresh)
    for i in range(fresh.size[0]):
        seat = fresh.items[i]
        if goal[seat] != work.speed[seat]:
            _change_speed(seat, now, work)
    fresh.size[0] = stale.size[0] = 0


def _change_speed(seat: int, now: float, work: Work) -> None:
    """Let the op at a seat run at its goal speed from now on."""
    remaining, since, speed, goal = work.remaining, work.since, work.speed, work.goal
    remaining[seat] -= speed[seat] * (now - since[seat])
    since[seat], speed[seat] = now, goal[seat]
    work.finish_at[seat] = now + max(remaining[seat], 0.0) / goal[seat] if goal[seat] > 0.0 else _NEVER


def _cap(op: int, crowds: Crowds) -> float:
    """The highest speed of an op, by the rule of `disturbance`: factors multiply, and its slowest rank counts."""
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


def _share(active: Stack, shared: Stack, work: Work, links: Links) -> None:
    """Share full links among the ops on them: set their goals, and list their seats in `shared`."""
    n = len(links.row)
    shared.size[0] = 0
    if links.full[0] == 0:
        return
    ops = [work.op[active.items[k]] for k in range(active.size[0])]
    keys = [links.row[op] * n + op for op in ops if _on_full_link(links.row[op], links)]
    keys.sort()
    rows, caps, speeds = column(len(keys), 0), column(len(keys), 0.0), column(len(keys), 0.0)
    for f in range(len(keys)):
        _push(work.seat[keys[f] % n], shared)
        rows[f], caps[f] = keys[f] // n, work.cap[shared.items[f]]
    fill(rows, links.start, links.links, links.rates, caps, links.capacity, links.asked, speeds)
    for f in range(len(keys)):
        work.goal[shared.items[f]] = speeds[f]


def _on_full_link(row: int, links: Links) -> bool:
    for k in range(links.start[row], links.start[row + 1]):
        if links.load[links.links[k]] > links.limit[links.links[k]]:
            return True
    return False


HELPERS = (
    *FILL_HELPERS, fill, drop_owners, _append, _take, _give, _let_begin, _push, _remove, _sit, _join, _leave, _enter,
    _settle, _change_speed, _cap, _share, _on_full_link,
)  # fmt: skip
"""The functions that `run_alone` and `run_together` call, for numba."""
