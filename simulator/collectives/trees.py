"""Broadcasts along binomial trees whose senders send to all their children at once, as Gloo's do.

Counted from the root, rank v sends to v + 2^i for each 2^i above v (gloo/broadcast.cc). It starts all of these messages
together, so they share its links. With equal links and n = 2^k ranks, S bytes take k (k + 1)/2 S/B; one message after
the other would take k S/B.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.arrays import Floats
from ..hardware import Cluster, Shares
from .wires import peer_route


@dataclass(frozen=True, eq=False)
class TreeBroadcast:
    """Seconds per byte from the root to the last rank, messages on the way there, the link that bounds the longest one.

    `shares` are the bytes on each link for each byte that is sent.
    """

    s_per_byte: float
    hops: int
    slowest: int
    shares: Shares


def tree_broadcast(cluster: Cluster, ranks: Sequence[int], root: int, capacity: Floats) -> TreeBroadcast:
    """The tree over these ranks (GPU numbers), on links of these rates.

    Limit: only messages of one sender share links; those of several senders meet where uplinks are narrow.
    """
    first, many = ranks.index(root), len(ranks)
    place = [ranks[(first + v) % many] for v in range(many)]
    ends, hops, total = {0: 0.0}, {0: 0}, Counter[int]()
    longest = (0.0, -1)
    for v in range(many):
        routes = {child: peer_route(cluster, place[v], place[child]) for child in children(v, many)}
        load = Counter[int]()
        for route in routes.values():
            load.update(route)
        for child, route in routes.items():
            s_per_byte, link = max((load[link] / float(capacity[link]), link) for link in route)
            ends[child], hops[child] = ends[v] + s_per_byte, hops[v] + 1
            longest = max(longest, (s_per_byte, link))
        total.update(load)
    last = max(ends, key=ends.__getitem__)
    return TreeBroadcast(ends[last], hops[last], longest[1], dict(total))


def children(v: int, many: int) -> list[int]:
    """To whom rank v sends, of so many; the root is 0."""
    return [v + (1 << i) for i in range(v.bit_length(), many.bit_length()) if v + (1 << i) < many]
