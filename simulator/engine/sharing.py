"""Bottleneck max fair sharing of links: a pure function, and the only place that decides rates.

Each flow has one speed s and puts s * rate[k] bytes per second on each link k that it crosses. Speeds are bottleneck
max fair: every flow runs at its cap, or crosses a full link on which no other flow gets more bytes per second (Bonald
and Roberts, "Multi-Resource Fairness", SIGMETRICS 2015). Flows that put the same rate on all their links share max-min
fairly.

So a full link has a level: the most bytes per second that a flow gets there. A flow runs at the lowest of its cap and
level / rate over its links. The level of a link follows from the levels of the others, so links are updated in turns
until no level changes. Turns converge slowly if flows compete on two links in almost equal ratios. So after 2, 4, 8,
… turns, the levels that still change are solved together, assuming that each flow stays bound by the same link.

`fill` uses plain loops over indexable arrays, so that the same lines run interpreted (few flows) and compiled by numba
(many flows). Both give the same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .compiled import column, compile_numba

TIE = 1 + 1e-12  # rates this close count as equal
_SETTLED = 1e-13  # relative change below which a level counts as settled
_MOST_TURNS = 1_000  # one of 50,000 random sets with almost equal ratios needs more; a link is then overfull by 2e-5
_NONE = float("inf")


class Crossings(NamedTuple):
    """The full links that each flow crosses: flow f crosses `link[k]` at `rate[k]`, k in `start[f]:start[f + 1]`.

    `flow[k]` is the flow of crossing k. The crossings of link l are `of_link[first[l]:first[l + 1]]`; `asked` is
    scratch space with one entry for each of these. `stale[l]`: the level of link l must be computed again.
    """

    start: Any
    link: Any
    rate: Any
    flow: Any
    first: Any
    of_link: Any
    asked: Any
    stale: Any


class Bounds(NamedTuple):
    """The two lowest bounds on the speed of each flow, and the full link that sets each one (-1: its cap, or none)."""

    lowest: Any
    by: Any
    second: Any
    second_by: Any


def fill(rows: Any, start: Any, links: Any, rates: Any, caps: Any, capacity: Any, load: Any, speeds: Any) -> None:
    """Write the speed of each flow into `speeds`.

    Flow f crosses the links of row `r = rows[f]`: `links[start[r]:start[r + 1]]`, with `rates` (bytes/s) at full speed.
    `caps[f]` bounds its speed. `capacity` (bytes/s) and the scratch space `load` have one entry per link.
    """
    room = _full_links(rows, start, links, rates, caps, capacity, load)
    crossings = _crossings(rows, start, links, rates, load, len(room))
    flows = len(rows)
    bounds = Bounds(column(flows, 0.0), column(flows, -1), column(flows, _NONE), column(flows, -1))
    for f in range(flows):
        bounds.lowest[f] = caps[f]
    level, moved, solve_at = column(len(room), _NONE), [0], 2
    for turn in range(_MOST_TURNS):
        change = 0.0
        moved.clear()
        for link in range(len(room)):
            if not crossings.stale[link]:
                continue
            crossings.stale[link] = False
            new = _level(link, room[link], crossings, bounds)
            if new != level[link]:
                change = max(change, abs(new - level[link]) / new if max(new, level[link]) < _NONE else 1.0)
                level[link] = new
                moved.append(link)
                _rebound(link, level, caps, crossings, bounds)
        if change <= _SETTLED:
            break
        if turn == solve_at:
            solve_at += solve_at
            _solve_levels(moved, level, room, caps, crossings, bounds)
    for f in range(len(rows)):
        speeds[f] = bounds.lowest[f]


def _full_links(rows: Any, start: Any, links: Any, rates: Any, caps: Any, capacity: Any, load: Any) -> Any:
    """The capacities of the links that flows at their caps would overfill; `load` becomes -1 - i for the i-th."""
    for row in rows:
        for k in range(start[row], start[row + 1]):
            load[links[k]] = 0.0
    for f in range(len(rows)):
        for k in range(start[rows[f]], start[rows[f] + 1]):
            load[links[k]] += caps[f] * rates[k]
    room = [0.0]
    room.clear()
    for row in rows:
        for k in range(start[row], start[row + 1]):
            if load[links[k]] > capacity[links[k]] * TIE:
                load[links[k]] = -1.0 - len(room)
                room.append(capacity[links[k]])
    return room


def _crossings(rows: Any, start: Any, links: Any, rates: Any, load: Any, many: int) -> Any:
    """The crossings of the `many` full links, which `_full_links` numbered in `load`."""
    most = 0
    for row in rows:
        most += start[row + 1] - start[row]
    link, rate, flow, of_link = column(most, 0), column(most, 0.0), column(most, 0), column(most, 0)
    begin, first, found = column(len(rows) + 1, 0), column(many + 1, 0), 0
    for f in range(len(rows)):
        for k in range(start[rows[f]], start[rows[f] + 1]):
            if load[links[k]] < 0.0 and rates[k] > 0.0:
                link[found], rate[found], flow[found] = int(-1.0 - load[links[k]]), rates[k], f
                first[link[found] + 1] += 1
                found += 1
        begin[f + 1] = found
    for i in range(many):
        first[i + 1] += first[i]
    free = first.copy()
    for k in range(found):
        of_link[free[link[k]]] = k
        free[link[k]] += 1
    return Crossings(begin, link, rate, flow, first, of_link, column(most, 0.0), column(many, True))


def _level(link: int, room: float, crossings: Crossings, bounds: Bounds) -> float:
    """The level of a link in bytes per second, given the levels of the other links; infinite if all flows fit."""
    first, end, asked = crossings.first[link], crossings.first[link + 1], crossings.asked
    total = 0.0
    for i in range(first, end):
        k = crossings.of_link[i]
        f = crossings.flow[k]
        elsewhere = bounds.second[f] if bounds.by[f] == link else bounds.lowest[f]
        asked[i] = elsewhere * crossings.rate[k]
        total += asked[i]
    if total <= room * TIE:
        return _NONE
    many, level, lowered = end - first, room / (end - first), True
    while lowered:
        lowered = False
        for i in range(first, end):
            if 0.0 <= asked[i] < level:  # this flow gets all that it asks for; the others share the rest
                room -= asked[i]
                asked[i] = -1.0
                many -= 1
                lowered = True
        level = room / many
    return level


def _rebound(link: int, level: Any, caps: Any, crossings: Crossings, bounds: Bounds) -> None:
    """Update the bounds of all flows on a link for its new level, and mark their other links as stale."""
    for at in range(crossings.first[link], crossings.first[link + 1]):
        k = crossings.of_link[at]
        f = crossings.flow[k]
        for other in range(crossings.start[f], crossings.start[f + 1]):
            if crossings.link[other] != link:
                crossings.stale[crossings.link[other]] = True
        if link in (bounds.by[f], bounds.second_by[f]):
            bounds.lowest[f], bounds.by[f], bounds.second[f], bounds.second_by[f] = caps[f], -1, _NONE, -1
            for other in range(crossings.start[f], crossings.start[f + 1]):
                _bound(f, crossings.link[other], level[crossings.link[other]] / crossings.rate[other], bounds)
        else:
            _bound(f, link, level[link] / crossings.rate[k], bounds)


def _bound(f: int, link: int, speed: float, bounds: Bounds) -> None:
    """Add a link's bound on the speed of a flow, if it is one of the two lowest bounds."""
    if speed < bounds.lowest[f]:
        bounds.second[f], bounds.second_by[f] = bounds.lowest[f], bounds.by[f]
        bounds.lowest[f], bounds.by[f] = speed, link
    elif speed < bounds.second[f]:
        bounds.second[f], bounds.second_by[f] = speed, link


def _solve_levels(moved: Any, level: Any, room: Any, caps: Any, crossings: Crossings, bounds: Bounds) -> None:
    """Set the levels of these links so that they are exactly full, each flow bound by the same link as now.

    Without a solution the levels stay unchanged.
    """
    links = [link for link in moved if level[link] < _NONE and _binds(link, crossings, bounds)]
    at = column(len(room), -1)
    for i in range(len(links)):
        at[links[i]] = i
    factors = [[0.0 for _ in links] for _ in links]
    full = [room[link] for link in links]
    for i in range(len(links)):
        for k in crossings.of_link[crossings.first[links[i]] : crossings.first[links[i] + 1]]:
            f = crossings.flow[k]
            asked, by = bounds.lowest[f] * crossings.rate[k], bounds.by[f]
            if by >= 0 and at[by] >= 0:
                factors[i][at[by]] += asked / level[by]
            else:
                full[i] -= asked
    if _solve(factors, full):
        for i in range(len(links)):
            if not 0.0 < full[i] <= room[links[i]]:
                return
        for i in range(len(links)):
            level[links[i]] = full[i]
        for link in links:
            _rebound(link, level, caps, crossings, bounds)


def _binds(link: int, crossings: Crossings, bounds: Bounds) -> bool:
    """Whether a link bounds the speed of any flow."""
    for k in crossings.of_link[crossings.first[link] : crossings.first[link + 1]]:
        if bounds.by[crossings.flow[k]] == link:
            return True
    return False


def _solve(factors: Any, values: Any) -> bool:
    """Solve linear equations by Gaussian elimination with pivots, into `values`; False if they are singular."""
    for i in range(len(values)):
        most = i
        for j in range(i + 1, len(values)):
            if abs(factors[j][i]) > abs(factors[most][i]):
                most = j
        factors[i], factors[most] = factors[most], factors[i]
        values[i], values[most] = values[most], values[i]
        if abs(factors[i][i]) < 1e-12:
            return False
        for j in range(i + 1, len(values)):
            part = factors[j][i] / factors[i][i]
            if part != 0.0:
                values[j] -= part * values[i]
                for k in range(i, len(values)):
                    factors[j][k] -= part * factors[i][k]
    for i in range(len(values) - 1, -1, -1):
        for k in range(i + 1, len(values)):
            values[i] -= factors[i][k] * values[k]
        values[i] /= factors[i][i]
    return True


HELPERS = (column, _full_links, _crossings, _level, _rebound, _bound, _solve_levels, _binds, _solve)
"""The functions that `fill` calls, for numba."""


def fair_speeds(
    demands: Sequence[dict[int, float]], capacity: Sequence[float], caps: Sequence[float] | None = None
) -> list[float]:
    """The speed of each flow, given {link: bytes/s at full speed} per flow, and the capacity of each link in bytes/s.

    A flow that crosses no link runs at its cap (default 1).
    """
    start, links, rates = [0], list[int](), list[float]()
    for demand in demands:
        links.extend(demand)
        rates.extend(demand.values())
        start.append(len(links))
    flows, load, speeds = len(demands), [0.0] * len(capacity), [0.0] * len(demands)
    fill(range(flows), start, links, rates, caps or [1.0] * flows, capacity, load, speeds)
    return speeds


Fill = Callable[..., None]


def numba_fill() -> Fill:
    """`fill` compiled by numba; the plain function if numba is not installed."""
    return compile_numba(fill, HELPERS)
