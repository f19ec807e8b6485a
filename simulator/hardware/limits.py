"""The data-sheet numbers of one GPU, its links and its node that cost models are written relative to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ..base.schema import HUGE, count, number
from .cluster import Cluster


@dataclass(frozen=True)
class Limits:
    """Rates are per direction and in bytes/s or FLOP/s (dense).

    `link_bytes_per_s` is what one GPU may send to its neighbours in the node (NVLink, else PCIe), `host_bytes_per_s`
    what host memory may send to it, `nic_bytes_per_s` what one NIC of its node may send through its slot.
    """

    flop_per_s: Mapping[str, Annotated[float, number(1, HUGE)]] = field(hash=False)
    memory_bytes_per_s: Annotated[float, number(1, HUGE)]
    sms: Annotated[int, count(1)]
    l2_bytes: Annotated[float, number(0, HUGE)]
    link_bytes_per_s: Annotated[float, number(0, HUGE)]
    host_bytes_per_s: Annotated[float, number(0, HUGE)]
    nic_bytes_per_s: Annotated[float, number(0, HUGE)]
    nics: Annotated[int, count(0)]

    @property
    def network_bytes_per_s(self) -> float:
        """The rate of all NICs of a node together, in bytes/s."""
        return self.nic_bytes_per_s * self.nics


def limits(cluster: Cluster, gpu: int = 0) -> Limits:
    """The limits of one GPU of a cluster, its first if none is named, and of its node."""
    node = cluster.node_of(gpu)
    device, nics = cluster.device(gpu), cluster.nics_of(node)
    return Limits(
        flop_per_s=device.peak_flop_per_s,
        memory_bytes_per_s=device.memory_bytes_per_s,
        sms=device.sms,
        l2_bytes=device.l2_bytes,
        link_bytes_per_s=_link(cluster, gpu),
        host_bytes_per_s=_narrowest(cluster, cluster.h2d_route(gpu)),
        nic_bytes_per_s=cluster.nodes[node].nic_bytes_per_s,
        nics=len(nics),
    )


def _link(cluster: Cluster, gpu: int) -> float:
    """All that leaves a GPU over NVLink, or the narrowest link to its neighbour where there is none."""
    node = cluster.node_of(gpu)
    near, local = cluster.gpus_of(node), cluster.gpu(gpu).partition(".")[2]
    wires = (wire for wire in cluster.nodes[node].graph.wires if wire.src == local)
    leaving = [wire.link.bytes_per_s for wire in wires if wire.link.kind == "nvlink"]
    if leaving or len(near) < 2:
        return sum(leaving)
    return _narrowest(cluster, cluster.route(cluster.gpu(gpu), cluster.gpu(near[1] if gpu == near[0] else near[0])))


def _narrowest(cluster: Cluster, route: tuple[int, ...]) -> float:
    return min((cluster.links[link].bytes_per_s for link in route), default=0.0)
