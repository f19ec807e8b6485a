"""Where nodes meet: the ports of their NICs, and the NVSwitch that neighbours share.

What lies between the ports is `fabrics`; how nodes become one graph is `cluster`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .node import Node


class Place(NamedTuple):
    """A vertex inside a node: `n3.gpu5` is (3, "gpu5")."""

    node: int
    local: str

    def __str__(self) -> str:
        return f"n{self.node}.{self.local}"


def port_of_nic(nic: str) -> str:
    """The port in which a NIC's cable starts: `port3` of `nic3`."""
    return nic.replace("nic", "port")


def nic_of_port(port: str) -> str:
    """The NIC of a port."""
    return port.replace("port", "nic")


def number_of_port(port: str) -> int:
    """The number of a port, and of its NIC."""
    return int(port.removeprefix("port"))


def nic_rates(node: Node) -> list[float]:
    """Bytes per second that each NIC sends to the network; a NIC without a cable sends nothing."""
    routes = [node.graph.route(nic, port_of_nic(nic)) for nic in node.nics]
    return [node.graph.links[route[0]].bytes_per_s if route else 0.0 for route in routes]


def nvlink_domains(nodes: Sequence[Node]) -> list[str | None]:
    """The NVSwitch that each node shares with its neighbours of the same type, or None."""
    names: list[str | None] = []
    start = rack = -1
    for i, node in enumerate(nodes):
        new_run = i == 0 or nodes[i - 1] is not node
        start = i if new_run else start
        if node.nvlink_domain_nodes > 1 and (i - start) % node.nvlink_domain_nodes == 0:
            rack += 1
        names.append(f"rack{rack}.nvswitch" if node.nvlink_domain_nodes > 1 else None)
    return names


def shared_vertices(leaves: Sequence[str], switch: str | None) -> dict[str, str]:
    """Cluster names of a node's vertices that other nodes share."""
    ports = {f"port{k}": leaf for k, leaf in enumerate(leaves)}
    return ports | ({"nvswitch": switch} if switch else {})
