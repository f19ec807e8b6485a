"""From what a user writes about a cluster to a checked `NodeShape` and `Fabric`.

A description is laid over its `base` (a catalogue cluster), that over its node file, so that any key of either may be
changed. Every fault is one line. Building the cluster from the result is `catalogue`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import UserError, fault
from ..base.units import parse
from . import files
from .checks import MOST, Check, anything, checked, count, number, one_of, quantity, text
from .devices import device
from .fabric import FABRICS, Fabric
from .node import NodeShape


@dataclass(frozen=True)
class NodeSpec:
    """One kind of node in a cluster, everything resolved."""

    shape: NodeShape
    fabric: Fabric


def _wires(value: Any) -> tuple[tuple[int, int, int], ...]:
    """Pairs of GPUs and the number of links that join them."""
    if not isinstance(value, list) or not all(map(_is_wire, value)):
        raise ValueError("expected a list of [gpu, gpu, links] between two GPUs, with at least one link")
    if len({frozenset(wire[:2]) for wire in value}) < len(value):
        raise ValueError("expected a list of [gpu, gpu, links] with no pair of GPUs twice")
    return tuple((a, b, links) for a, b, links in value)


def _is_wire(value: Any) -> bool:
    if not isinstance(value, list) or not all(type(x) is int and 0 <= x <= MOST for x in value):
        return False
    return len(value) == 3 and value[0] != value[1] and value[2] > 0


_generation = one_of(lambda: [int(gen) for gen in files.wires()["pcie"]])

_CHECKS: dict[str, Check] = {
    "about": text,
    "node": text,
    "device": anything,
    "gpus_per_node": count(1, 1024),
    "sockets": count(1, 64),
    "pcie_switches": count(0, 256),
    "pcie_gen": _generation,
    "upstream_pcie_gen": _generation,
    "upstream_ports": count(1),
    "nvlink": one_of(lambda: ("switch", "wires", "none")),
    "nvlink_bytes_per_s": quantity("bytes_per_s", zero=True),
    "nvlink_wires": _wires,
    "nvlink_domain_nodes": count(1),
    "c2c_bytes_per_s": quantity("bytes_per_s", zero=True),
    "host_power": quantity("watts"),
    "host_memory": quantity("bytes"),
    "host_memory_bytes_per_s": quantity("bytes_per_s"),
    "socket_bytes_per_s": quantity("bytes_per_s", zero=True),
    "nics": count(0, 1024),
    "nic": quantity("bytes_per_s"),
    "nic_attach": one_of(lambda: ("switch", "socket")),
    "network": one_of(files.networks),
    "fabric": one_of(lambda: FABRICS),
    "oversubscription": number(1, MOST),
    "leaf_radix": count(2),
}
_DEFAULTS = {
    "nvlink_wires": [],
    "nvlink_domain_nodes": 1,
    "c2c_bytes_per_s": 0,
    "nvlink_bytes_per_s": 0,
    "socket_bytes_per_s": 0,
}


def node_spec(changes: Mapping[str, Any], where: str, prefix: str) -> NodeSpec:
    """Check a description and everything it rests on.

    Raises:
        UserError: one line for each unknown key and each value that is not allowed.
    """
    values = checked(
        _DEFAULTS | merged(changes, where, prefix), _CHECKS, where, prefix, optional=("about", "host_power")
    )
    faults = _conflicts(values, where, prefix)
    if faults:
        raise UserError(*faults)
    return NodeSpec(_shape(values, where, prefix), _fabric(values))


def merged(changes: Mapping[str, Any], where: str, prefix: str) -> dict[str, Any]:
    """A description over its base, over its node file, as they are written.

    Raises:
        UserError: an unknown base or node.
    """
    return _over_node(_over_base(files.plain(changes), where, prefix), where, prefix)


def _over_base(changes: dict[str, Any], where: str, prefix: str) -> dict[str, Any]:
    if "base" not in changes:
        return changes
    name = changes.pop("base")
    if not isinstance(name, str):
        raise UserError(fault(where, f"{prefix}base", name, "expected the name of a cluster"))
    _, base = files.find("clusters", name, where, f"{prefix}base")
    return {k: v for k, v in files.plain(base).items() if k != "aliases"} | changes


def _over_node(changes: dict[str, Any], where: str, prefix: str) -> dict[str, Any]:
    name = changes.get("node")
    if not isinstance(name, str):
        raise UserError(fault(where, f"{prefix}node", name, "give `base` (a cluster) or `node` (a node type)"))
    entry, node = files.find("nodes", name, where, f"{prefix}node")
    return files.plain(node) | changes | {"node": entry}


def _conflicts(v: Mapping[str, Any], where: str, prefix: str) -> list[str]:
    """Faults of values that are fine alone but not together."""
    if v["nvlink"] != "none" and v["nvlink_bytes_per_s"] == 0:
        return [fault(where, f"{prefix}nvlink", v["nvlink"], "needs nvlink_bytes_per_s above zero")]
    if v["sockets"] > 1 and v["socket_bytes_per_s"] == 0:
        return [fault(where, f"{prefix}sockets", v["sockets"], "needs socket_bytes_per_s above zero")]
    if v["nvlink"] == "wires" and not v["nvlink_wires"]:
        return [fault(where, f"{prefix}nvlink", v["nvlink"], "needs nvlink_wires, a list of [gpu, gpu, links]")]
    return []


def _shape(v: Mapping[str, Any], where: str, prefix: str) -> NodeShape:
    wires = files.wires()
    latency = {kind: parse(x["value"], "seconds") for kind, x in wires["latency"].items()}
    switch_s = files.network_value(v["network"], "network.switch_s")
    return NodeShape(
        name=v["node"],
        device=device(v["device"], where, f"{prefix}device"),
        gpus=v["gpus_per_node"],
        sockets=v["sockets"],
        pcie_switches=v["pcie_switches"],
        pcie_bytes_per_s=_pcie(v["pcie_gen"]),
        upstream_bytes_per_s=_pcie(v["upstream_pcie_gen"]) * v["upstream_ports"],
        pcie_latency_s=latency["pcie"],
        nvlink=v["nvlink"],
        nvlink_bytes_per_s=v["nvlink_bytes_per_s"],
        nvlink_latency_s=latency["nvlink"],
        nvlink_wires=v["nvlink_wires"],
        nvlink_domain_nodes=v["nvlink_domain_nodes"],
        c2c_bytes_per_s=v["c2c_bytes_per_s"],
        c2c_latency_s=latency["c2c"],
        host_memory_bytes=v["host_memory"],
        host_memory_bytes_per_s=v["host_memory_bytes_per_s"],
        socket_bytes_per_s=v["socket_bytes_per_s"],
        socket_latency_s=latency["socket"],
        nics=v["nics"],
        nic_bytes_per_s=v["nic"],
        nic_latency_s=files.network_value(v["network"], "network.message_s") - switch_s,
        switch_latency_s=switch_s,
        nic_attach=v["nic_attach"],
        host_power_w=v.get("host_power"),
    )


def _pcie(generation: int) -> float:
    """Bytes per second of 16 lanes, one direction, after line coding."""
    return parse(files.wires()["pcie"][str(generation)]["line"]["value"], "bytes_per_s")


def _fabric(v: Mapping[str, Any]) -> Fabric:
    switch_s = files.network_value(v["network"], "network.switch_s")
    return Fabric(v["fabric"], v["oversubscription"], v["leaf_radix"], switch_s, v["network"])
