"""The links that a broadcast loads, and its rate without contention: NCCL's ring, over all rails between islands.

NCCL broadcasts along a pipelined ring with several channels. Inside an island (ranks that reach each other without a
NIC) every GPU forwards the bytes to the next one, except the share that it sends to the next island: m GPUs make m - 1
hops in total. Between islands each pair of NICs carries an equal share. The hop back to the root's island is idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..hardware import Cluster, Shares


@dataclass(frozen=True, eq=False)
class RingBroadcast:
    """The ring over one group of ranks; rank and island numbers are positions in the group.

    Per byte that a root sends, the whole ring puts `share[k]` bytes on `link[k]`, minus the shares of the idle hop back
    to the root's island: `unused[island]` holds their positions in `link` and their values. A link inside an island
    bounds the whole stream, so it counts with at least `least[k] = 1`. `latency_s` is the wire latency of one hop
    between islands, without links between sites: `site_latency_s[island]` is what these add on all hops from a root
    in it.
    """

    link: NDArray[np.int64]
    share: Floats
    least: Floats
    unused: tuple[tuple[NDArray[np.int64], Floats], ...]
    island_of: NDArray[np.int64]
    latency_s: float
    site_latency_s: Floats

    @property
    def islands(self) -> int:
        """Number of islands."""
        return len(self.unused)

    def shares_from(self, island: int) -> Floats:
        """Bytes on each link of `link` per byte that a root in this island sends."""
        share = self.share.copy()
        np.subtract.at(share, *self.unused[island])
        return np.where(share > 1e-12, share, 0.0)

    def rate_bytes_per_s(self, capacity: Floats, island: int = 0) -> tuple[float, int]:
        """(bytes per second that every rank receives without contention, the link that bounds it).

        For a single rank: (infinity, -1).
        """
        if not len(self.link):
            return float("inf"), -1
        share = self.shares_from(island)
        asked = np.where(share > 0, np.maximum(share, self.least), 0.0)
        with np.errstate(divide="ignore"):
            rates = capacity[self.link] / asked
        slowest = int(rates.argmin())
        return float(rates[slowest]), int(self.link[slowest])

    def bounds(self, capacity: Floats) -> list[tuple[float, int]]:
        """`rate_bytes_per_s` for a root in each of the islands."""
        everywhere = np.where(self.share > 1e-12, np.maximum(self.share, self.least), 0.0)
        with np.errstate(divide="ignore"):
            rates = capacity[self.link] / everywhere
        at = int(rates.argmin())
        usual = float(rates[at]), int(self.link[at])
        return [
            self.rate_bytes_per_s(capacity, island) if at in places else usual  # other links only get more room
            for island, (places, _) in enumerate(self.unused)
        ]

    def link_bytes(self, size_bytes: Floats) -> Floats:
        """Bytes on each link of `link` if roots in island i send `size_bytes[i]`."""
        found = self.share * size_bytes.sum()
        for island, (places, shares) in enumerate(self.unused):
            np.subtract.at(found, places, shares * size_bytes[island])
        return np.asarray(np.where(found > 1e-12 * size_bytes.sum(), found, 0.0))

    def hops(self) -> tuple[int, int]:
        """(hops inside islands, hops between islands) from the root to the last rank."""
        return len(self.island_of) - self.islands, self.islands - 1


def ring_broadcast(cluster: Cluster, ranks: Sequence[int]) -> RingBroadcast:
    """The ring over these ranks (GPU numbers) of a cluster."""
    islands = [ring_order(cluster, island) for island in islands_of(cluster, ranks)]
    hops = _hops(cluster, islands)
    leaving = [_leaving(cluster, island) if len(islands) > 1 else {} for island in islands]
    inside = [entry for island, left in zip(islands, leaving, strict=True) for entry in _inside(cluster, island, left)]
    link, where = np.unique([entry[0] for hop in (inside, *hops) for entry in hop], return_inverse=True)
    share = np.array([entry[1] for hop in (inside, *hops) for entry in hop])
    ends = np.cumsum([len(inside), *map(len, hops)])
    least = np.zeros(len(link))
    least[where[: len(inside)]] = 1.0
    island_of = {rank: i for i, island in enumerate(islands) for rank in island}
    return RingBroadcast(
        link=link.astype(np.int64),
        share=np.bincount(where, share, minlength=len(link)).astype(np.float64),
        least=least,
        unused=tuple((where[a:b], share[a:b]) for a, b in pairwise(ends.tolist())),
        island_of=np.array([island_of[rank] for rank in ranks], np.int64),
        latency_s=_latency(cluster, islands),
        site_latency_s=_site_latency_s(cluster, islands),
    )


def side_by_side(rings: Sequence[RingBroadcast]) -> RingBroadcast:
    """Merge rings over groups of equal size that gather equally many bytes at the same time.

    Their shares on a link add up. In a gather no hop is idle. Hops, islands and latency are those of the longest ring,
    and what links between sites add is that of the slowest.
    """
    longest = max(rings, key=lambda ring: ring.islands)
    link, where = np.unique(np.concatenate([ring.link for ring in rings]), return_inverse=True)
    share = np.concatenate([ring.share for ring in rings])
    asked = np.maximum(share, np.concatenate([ring.least for ring in rings]))
    idle = (np.empty(0, np.int64), np.empty(0))
    return replace(
        longest,
        link=link,
        share=np.bincount(where, share, minlength=len(link)).astype(np.float64),
        least=np.bincount(where, asked, minlength=len(link)).astype(np.float64),
        unused=(idle,) * longest.islands,
        site_latency_s=np.full(longest.islands, max(float(ring.site_latency_s.max()) for ring in rings)),
    )


_Entry = tuple[int, float]  # link, share
_Nic = tuple[int, str]  # GPU, NIC


def islands_of(cluster: Cluster, ranks: Sequence[int]) -> list[list[int]]:
    """Group ranks into islands, which reach each other without a NIC: a node, or the nodes of one NVLink domain."""
    island_of_node: dict[int, int] = {}
    islands: dict[int, list[int]] = {}
    for rank in ranks:
        node = cluster.node_of(rank)
        if node not in island_of_node:
            domain = cluster.nvlink_domain(cluster.gpus_of(node)[0])
            for member in {cluster.node_of(gpu) for gpu in domain} | {node}:
                island_of_node.setdefault(member, node)
        islands.setdefault(island_of_node[node], []).append(rank)
    return list(islands.values())


def ring_order(cluster: Cluster, island: list[int]) -> list[int]:
    """The order in which a ring visits an island: along NVLink wires if these form a ring, else by rank number.

    Of all rings along wires it is one with the widest bottleneck, as NCCL's search prefers.
    """
    if not _wired(cluster, island):
        return island
    wires = {(a, b): nvlink_bytes_per_s(cluster, a, b) for a, b in permutations(island, 2)}
    for width in sorted({rate for rate in wires.values() if rate > 0}, reverse=True):
        ring = _cycle([island[0]], set(island[1:]), {pair for pair, rate in wires.items() if rate >= width})
        if ring:
            return ring
    return island


def _wired(cluster: Cluster, island: list[int]) -> bool:
    """Whether NVLink joins some, but not all, neighbours of this island directly."""
    if not 2 < len(island) <= 16:
        return False
    rates = [nvlink_bytes_per_s(cluster, a, b) for a, b in pairwise([island[-1], *island])]
    return not all(rates) and len(cluster.nvlink_domain(island[0])) > 1


def nvlink_bytes_per_s(cluster: Cluster, a: int, b: int) -> float:
    """The rate of the NVLink route from GPU a to GPU b in bytes/s; 0 if the route has any other link."""
    route = [cluster.links[link] for link in cluster.route(cluster.gpu(a), cluster.gpu(b))]
    return min(link.bytes_per_s for link in route) if all(link.kind == "nvlink" for link in route) else 0.0


def _cycle(path: list[int], left: set[int], wires: set[tuple[int, int]]) -> list[int] | None:
    """Extend `path` to a ring over all ranks in `left`, by depth-first search; None if there is none."""
    if not left:
        return path if (path[-1], path[0]) in wires else None
    for following in sorted(left):
        if (path[-1], following) in wires and (found := _cycle([*path, following], left - {following}, wires)):
            return found
    return None


def _inside(cluster: Cluster, island: list[int], leaving: dict[int, float]) -> Iterator[_Entry]:
    """(link, share) inside an island: every GPU forwards all bytes that do not leave the island there.

    With a single island of m GPUs one of m hops is idle, so on average each carries (m - 1)/m.
    """
    if len(island) == 1:
        return
    for a, b in pairwise([*island, island[0]]):
        share = 1 - leaving.get(a, 0.0) if leaving else (len(island) - 1) / len(island)
        yield from ((link, share) for link in cluster.route(cluster.gpu(a), cluster.gpu(b)) if share > 0)


def _hops(cluster: Cluster, islands: list[list[int]]) -> list[list[_Entry]]:
    """(link, share) of each hop between islands, striped over the rails: each pair of NICs carries an equal share.

    The first hop is that from the last island. All hops send at the same time.
    """
    if len(islands) == 1:
        return [[]]
    hops = [_rails(cluster, a, b) for a, b in pairwise([islands[-1], *islands])]
    over = iter(cluster.spread([(a[1], b[1]) for rails in hops for a, b in rails]))
    return [[entry for ends in rails for entry in _rail(cluster, *ends, next(over), len(rails))] for rails in hops]


def _rail(cluster: Cluster, a: _Nic, b: _Nic, over: Shares, rails: int) -> Iterator[_Entry]:
    """(link, share) of one pair of NICs, from GPU to GPU."""
    yield from ((link, 1 / rails) for link in cluster.nic_out_route(*a))
    yield from ((link, share / rails) for link, share in over.items())
    yield from ((link, 1 / rails) for link in cluster.nic_in_route(*b))


def _leaving(cluster: Cluster, island: list[int]) -> dict[int, float]:
    """The share of the stream that leaves the island at each GPU that has a NIC."""
    nics = _nics(cluster, island)
    shares: dict[int, float] = {}
    for gpu, _ in nics:
        shares[gpu] = shares.get(gpu, 0.0) + 1 / len(nics)
    return shares


def _rails(cluster: Cluster, a: list[int], b: list[int]) -> list[tuple[_Nic, _Nic]]:
    """Pairs of NICs of two islands. If one island has more NICs, those on the other's rails are used first."""
    ours, theirs = _nics(cluster, a), _nics(cluster, b)
    if len(ours) > len(theirs):
        return list(zip(_on_rails_of(theirs, ours), theirs, strict=False))
    return list(zip(ours, _on_rails_of(ours, theirs), strict=False))


def _on_rails_of(few: list[_Nic], many: list[_Nic]) -> list[_Nic]:
    """For each NIC of `few` one of `many`: the NIC with the same name in its node, else the next free one."""
    if len(few) == len(many):
        return many
    left = list(many)
    found = []
    for _, nic in few:
        chosen = next((entry for entry in left if _local(entry[1]) == _local(nic)), left[0])
        left.remove(chosen)
        found.append(chosen)
    return found


def _local(nic: str) -> str:
    """A NIC's name within its node, which identifies its rail."""
    return nic.partition(".")[2]


def _nics(cluster: Cluster, island: list[int]) -> list[tuple[int, str]]:
    """(GPU, NIC) for the island's NICs, in the order of its GPUs; the GPU is the first one that the NIC serves."""
    first: dict[str, int] = {}
    for gpu in sorted(island):
        for nic in cluster.nics_of_gpu(gpu):
            first.setdefault(nic, gpu)
    return [(gpu, nic) for nic, gpu in first.items()]


def _latency(cluster: Cluster, islands: list[list[int]]) -> float:
    """Wire latency in seconds of one hop between islands, from NIC to NIC, without links between sites."""
    if len(islands) == 1:
        return 0.0
    (_, nic_a), (_, nic_b) = _rails(cluster, islands[0], islands[1])[0]
    route = [link for link in cluster.route(nic_a, nic_b) if link not in cluster.site_links]
    return sum(cluster.links[link].latency_s for link in route)


def _site_latency_s(cluster: Cluster, islands: list[list[int]]) -> Floats:
    """Seconds that links between sites add on all hops but the one into an island, for each island."""
    sites = [cluster.site_of(island[0]) for island in islands]
    into = np.array([cluster.site_latency_s[a, b] for a, b in pairwise([sites[-1], *sites])])
    return into.sum() - into
