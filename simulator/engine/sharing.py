"""Max-min fair sharing of links by progressive filling: a pure function, the only place where rates are decided.

Each flow has one speed s and puts s * rate[k] bytes per second on each link it crosses. All flows raise
r = s * max(rate) together until a link is full or a flow reaches its cap; those stop, the others go on (Bertsekas and
Gallager, Data Networks, 2nd ed., section 6.5.2, with weights).

`fill` is written with plain loops over indexable arrays so that the same lines run interpreted (few flows) and
compiled by numba (many flows); both give the same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .compiled import compiled

TIE = 1 + 1e-12  # levels this close are one level


def fill(
    rows: Any,
    start: Any,
    links: Any,
    rates: Any,
    top: Any,
    caps: Any,
    capacity: Any,
    room: Any,
    weight: Any,
    speeds: Any,
) -> None:
    """Write the speed of each flow into `speeds`.

    Flow f crosses the links of row `r = rows[f]`: `links[start[r]:start[r + 1]]` at full-speed `rates` (bytes/s), the
    largest of which is `top[r]`; `caps[f]` bounds its speed. `capacity`, and the scratch `room` and `weight`, have one
    entry per link.
    """
    n = len(rows)
    for f in range(n):
        for k in range(start[rows[f]], start[rows[f] + 1]):
            room[links[k]] = capacity[links[k]]
            weight[links[k]] = 0.0
    for f in range(n):
        speeds[f] = -1.0
        for k in range(start[rows[f]], start[rows[f] + 1]):
            weight[links[k]] += rates[k] / top[rows[f]]
    left = n
    while left > 0:
        before = left
        level = np.inf
        for f in range(n):
            if speeds[f] < 0.0:
                level = min(level, caps[f] * top[rows[f]])
                for k in range(start[rows[f]], start[rows[f] + 1]):
                    level = min(level, room[links[k]] / weight[links[k]])
        level = max(level, 0.0)
        for f in range(n):
            if speeds[f] < 0.0:
                stop = caps[f] * top[rows[f]] <= level * TIE
                for k in range(start[rows[f]], start[rows[f] + 1]):
                    stop = stop or room[links[k]] <= level * TIE * weight[links[k]]
                if stop:
                    speeds[f] = -2.0
        for f in range(n):
            if speeds[f] == -2.0:
                speeds[f] = min(caps[f], level / top[rows[f]])
                left -= 1
                for k in range(start[rows[f]], start[rows[f] + 1]):
                    room[links[k]] -= level * rates[k] / top[rows[f]]
                    weight[links[k]] -= rates[k] / top[rows[f]]
        assert left < before, "every level stops a flow"


def max_min(
    demands: Sequence[dict[int, float]], capacity: Sequence[float], caps: Sequence[float] | None = None
) -> list[float]:
    """The speed of each flow, given {link: bytes/s at full speed} per flow and the links' capacities.

    A flow that crosses no link runs at its cap (default 1).
    """
    start, links, rates = [0], list[int](), list[float]()
    for demand in demands:
        links.extend(demand)
        rates.extend(demand.values())
        start.append(len(links))
    n = len(demands)
    top = [max(demand.values(), default=1.0) for demand in demands]
    speeds = [0.0] * n
    room, weight = [0.0] * len(capacity), [0.0] * len(capacity)
    fill(range(n), start, links, rates, top, caps or [1.0] * n, capacity, room, weight, speeds)
    return speeds


Fill = Callable[..., None]


def compiled_fill() -> Fill:
    """`fill` compiled by numba, or as it is where numba is not installed."""
    return compiled(fill)
