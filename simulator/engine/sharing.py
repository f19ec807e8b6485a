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

TIE = 1 + 1e-12  # levels this close are one level


def fill(
    start: Any, links: Any, rates: Any, top: Any, caps: Any, capacity: Any, room: Any, weight: Any, speeds: Any
) -> None:
    """Write the speed of each flow into `speeds`.

    Flow f crosses `links[start[f]:start[f+1]]` at full-speed `rates` (bytes/s), the largest of which is `top[f]`;
    `caps[f]` bounds its speed. `capacity`, and the scratch `room` and `weight`, have one entry per link.
    """
    n = len(caps)
    for k in range(start[n]):
        room[links[k]] = capacity[links[k]]
        weight[links[k]] = 0.0
    for f in range(n):
        speeds[f] = -1.0
        for k in range(start[f], start[f + 1]):
            weight[links[k]] += rates[k] / top[f]
    left = n
    while left > 0:
        level = np.inf
        for f in range(n):
            if speeds[f] < 0.0:
                level = min(level, caps[f] * top[f])
                for k in range(start[f], start[f + 1]):
                    level = min(level, room[links[k]] / weight[links[k]])
        level = max(level, 0.0)
        for f in range(n):
            if speeds[f] < 0.0:
                stop = caps[f] * top[f] <= level * TIE
                for k in range(start[f], start[f + 1]):
                    stop = stop or room[links[k]] <= level * TIE * weight[links[k]]
                if stop:
                    speeds[f] = -2.0
        for f in range(n):
            if speeds[f] == -2.0:
                speeds[f] = min(caps[f], level / top[f])
                left -= 1
                for k in range(start[f], start[f + 1]):
                    room[links[k]] -= level * rates[k] / top[f]
                    weight[links[k]] -= rates[k] / top[f]


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
    top = [max(demand.values(), default=1.0) for demand in demands]
    speeds = [0.0] * len(demands)
    scratch = [0.0] * len(capacity)
    fill(start, links, rates, top, caps or [1.0] * len(demands), capacity, scratch, scratch.copy(), speeds)
    return speeds


def compiled_fill() -> Callable[..., None]:
    """`fill` compiled by numba, or as it is where numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return fill
    compiled: Callable[..., None] = njit(cache=True)(fill)
    return compiled
