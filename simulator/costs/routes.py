"""The links of one-sided transfers (RDMA reads and writes) between the memories of two ranks."""

from collections.abc import Sequence

from ..hardware import Cluster

Route = tuple[int, ...]


def read_route(cluster: Cluster, owner: int, receiver: int) -> Route:
    """From the owner's nearest host memory to the receiver's device, through the NICs of both."""
    out, into = cluster.nic_of(owner), cluster.nic_of(receiver)
    fetched = cluster.route(cluster.numa_of(owner), out)
    return _distinct([*fetched, *between_nics(cluster, out, into), *cluster.nic_in_route(receiver, into)])


def write_route(cluster: Cluster, source: int, target: int, *, from_host: bool) -> Route:
    """From the source's device, or its nearest host memory, to the target's device, through the NICs of both."""
    out, into = cluster.nic_of(source), cluster.nic_of(target)
    fetched = cluster.route(cluster.numa_of(source), out) if from_host else cluster.nic_out_route(source, out)
    return _distinct([*fetched, *between_nics(cluster, out, into), *cluster.nic_in_route(target, into)])


def peer_route(cluster: Cluster, source: int, target: int) -> Route:
    """From device to device: over NVLink where it joins them, else through the NICs of both."""
    if target in cluster.nvlink_domain(source):
        return cluster.route(cluster.gpu(source), cluster.gpu(target))
    return write_route(cluster, source, target, from_host=False)


def between_nics(cluster: Cluster, out: str, into: str) -> Route:
    """What bytes cross from one NIC to another: inside a node they leave through one and come back by the other."""
    if _node(out) != _node(into):
        return cluster.route(out, into)
    return (cluster.nic_tx(out), cluster.nic_rx(into))


def _node(vertex: str) -> str:
    return vertex.partition(".")[0]


def _distinct(links: Sequence[int]) -> Route:
    """A link that is crossed twice counts once: both crossings are of the same bytes at the same time."""
    return tuple(dict.fromkeys(links))
