"""Which links a broadcast loads, and how fast it can go alone: NCCL's ring, over all rails between nodes.

NCCL broadcasts along a pipelined ring with several channels. Inside an NVLink domain every GPU passes the bytes on to
the next; between nodes each NIC carries an equal share. The hop that would return to the root's node carries nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..hardware import Cluster


@dataclass(frozen=True, eq=False)
class RingBroadcast:
    """The ring over one group of ranks.

    Per byte that the root sends, hop entry k puts `share[k]` bytes on link `link[k]`; entries with `into[k] >= 0`
    belong to the hop between islands that ends in that island. The ring moves at most
    capacity[link] / `limit` bytes per second: a link inside an island bounds the whole stream.
    """

    link: NDArray[np.int64]
    share: NDArray[np.float64]
    limit: NDArray[np.float64]
    into: NDArray[np.int64]
    island_of: NDArray[np.int64]
    islands: int

    def rate_bytes_per_s(self, capacity: NDArray[np.float64]) -> float:
        """Bytes per second that every rank receives when nothing else runs."""
        if not len(self.link):
            return float("inf")
        return float((capacity[self.link] / self.limit).min())

    def hops(self) -> tuple[int, int]:
        """Hops inside islands and between them, from the root to the last rank."""
        return len(self.island_of) - self.islands, self.islands - 1

    def shares_from(self, root: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Links and their shares when rank `root` of the group sends, each link once."""
        used = self.into != self.island_of[root]
        links, where = np.unique(self.link[used], return_inverse=True)
        return links, np.bincount(where, self.share[used], minlength=len(links)).astype(np.float64)


def ring_broadcast(cluster: Cluster, ranks: Sequence[int]) -> RingBroadcast:
    """The ring over `ranks` (GPU numbers) of a cluster."""
    islands = _islands(cluster, ranks)
    entries = [entry for island in islands for entry in _inside(cluster, island)]
    if len(islands) > 1:
        for target, (a, b) in enumerate(pairwise([islands[-1], *islands])):
            entries += _between(cluster, a, b, target)
    link, share, limit, into = zip(*entries, strict=True) if entries else ((), (), (), ())
    island_of = {rank: i for i, island in enumerate(islands) for rank in island}
    return RingBroadcast(
        link=np.array(link, np.int64),
        share=np.array(share, np.float64),
        limit=np.array(limit, np.float64),
        into=np.array(into, np.int64),
        island_of=np.array([island_of[rank] for rank in ranks], np.int64),
        islands=len(islands),
    )


_Entry = tuple[int, float, float, int]  # link, share, limit, into


def _islands(cluster: Cluster, ranks: Sequence[int]) -> list[list[int]]:
    """Ranks that reach each other without a NIC: a node, or the nodes of one NVLink domain."""
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


def _inside(cluster: Cluster, island: list[int]) -> list[_Entry]:
    """Every GPU passes the stream to the next; over all channels each hop of the ring carries (m-1)/m of it."""
    if len(island) == 1:
        return []
    share = (len(island) - 1) / len(island)
    hops = pairwise([island[-1], *island])
    return [
        (link, share, 1.0, -1) for a, b in hops for link in cluster.route(cluster.gpu(a), cluster.gpu(b))
    ]  # fmt: skip


def _between(cluster: Cluster, a: list[int], b: list[int], target: int) -> list[_Entry]:
    """One hop between islands, striped over the rails: each pair of NICs carries an equal share."""
    rails = list(zip(_nics(cluster, a), _nics(cluster, b), strict=False))
    share = 1 / len(rails)
    return [
        (link, share, share, target)
        for (gpu_a, nic_a), (gpu_b, nic_b) in rails
        for link in (
            *cluster.nic_out_route(gpu_a, nic_a),
            *cluster.route(nic_a, nic_b),
            *cluster.nic_in_route(gpu_b, nic_b),
        )
    ]


def _nics(cluster: Cluster, island: list[int]) -> list[tuple[int, str]]:
    """The island's NICs, each with the first of its GPUs."""
    first: dict[str, int] = {}
    for gpu in island:
        for nic in cluster.nics_of_gpu(gpu):
            first.setdefault(nic, gpu)
    return [(gpu, nic) for nic, gpu in first.items()]
