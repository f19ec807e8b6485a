"""Clusters by name or description: the way from what a user writes to a `Cluster`.

A description is laid over its `base` (a catalogue cluster), that over its node file, so that any key of either may be
changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from ..base.errors import UserError, fault
from ..base.files import beside, read_toml
from ..base.schema import MOST, Section, count, number, one_of, quantity, validate
from ..base.units import parse
from . import files
from .cluster import Cluster
from .device import Rate, device
from .fabric import Fabric, FabricKind
from .node import NicAttach, Node, NodeShape, NvLinkKind, build

Spec = str | Mapping[str, Any]

MAX_GPUS = 131_072
"""Larger clusters are refused: plans and Programs of that size have not been tried."""


def _wires(value: Any) -> tuple[tuple[int, int, int], ...]:
    """Pairs of GPUs and the number of links that join them."""
    if not isinstance(value, list | tuple) or not all(map(_is_wire, value)):
        raise ValueError("expected a list of [gpu, gpu, links] between two GPUs, with at least one link")
    if len({frozenset(wire[:2]) for wire in value}) < len(value):
        raise ValueError("expected a list of [gpu, gpu, links] with no pair of GPUs twice")
    return tuple((a, b, links) for a, b, links in value)


def _is_wire(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not all(type(x) is int and 0 <= x <= MOST for x in value):
        return False
    return len(value) == 3 and value[0] != value[1] and value[2] > 0


_Generation = Annotated[int, one_of(lambda: [int(generation) for generation in files.wires()["pcie"]])]
_RateOrNone = Annotated[float, quantity("bytes_per_s", zero=True)]


class ClusterKeys(Section):
    """The keys of a Cluster file and of the node file under it."""

    about: str = ""
    node: str
    device: Any
    gpus_per_node: Annotated[int, count(1, 1024)]
    sockets: Annotated[int, count(1, 64)]
    pcie_switches: Annotated[int, count(0, 256)]
    pcie_gen: _Generation
    upstream_pcie_gen: _Generation
    upstream_ports: Annotated[int, count(1)]
    nvlink: NvLinkKind
    nvlink_bytes_per_s: _RateOrNone = 0.0
    nvlink_wires: Annotated[tuple[tuple[int, int, int], ...], BeforeValidator(_wires)] = ()
    nvlink_domain_nodes: Annotated[int, count(1)] = 1
    c2c_bytes_per_s: _RateOrNone = 0.0
    host_power: Annotated[float, quantity("watts")] | None = None
    host_memory: Annotated[float, quantity("bytes")]
    host_memory_bytes_per_s: Rate
    socket_bytes_per_s: _RateOrNone = 0.0
    nics: Annotated[int, count(0, 1024)]
    nic: Rate
    nic_attach: NicAttach
    network: Annotated[str, one_of(files.networks)]
    fabric: FabricKind
    oversubscription: Annotated[float, number(1, MOST)]
    leaf_radix: Annotated[int, count(2)]


class _Part(NamedTuple):
    """So many nodes of one kind in a cluster."""

    shape: NodeShape
    fabric: Fabric
    nodes: int


def cluster_names() -> list[str]:
    """Names of all clusters in the catalogue."""
    return list(files.names("clusters"))


def cluster(spec: Spec, nodes: int, where: str = "cluster") -> Cluster:
    """The cluster of `nodes` nodes that a name, a TOML file or a mapping describes.

    A mapping names a `base` (or a `node`) and changes any of its keys, such as
    `{ base = "h20-hgx", nics = 4, nic = "200 Gb/s", network = "roce" }`, or lists node types as
    `{ mix = [{ base = "dgx-h100", nodes = 2 }, { base = "dgx-a100", nodes = 1 }] }`; they are on one kind of network,
    with the smallest leaves of all, and equal neighbours share NVLink domains as if they were listed in one entry.

    Raises:
        UserError: an unknown name or key, or a value that is not allowed; one line each.
    """
    _check_nodes(nodes, where, "nodes")
    parts = _parts(spec, nodes, where)
    fabrics = [part.fabric for part in parts]
    if nodes > 1 and any(fabric.kind == "single" for fabric in fabrics):
        raise UserError(fault(where, "nodes", nodes, 'fabric "single" has no network; use 1 node, or another fabric'))
    if len(kinds := sorted({fabric.network for fabric in fabrics})) > 1:
        raise UserError(fault(where, "mix", kinds, "expected one kind of network: set network in each entry"))
    if (gpus := sum(part.shape.gpus * part.nodes for part in parts)) > MAX_GPUS:
        raise UserError(fault(where, "nodes", nodes, f"{gpus} GPUs; at most {MAX_GPUS} are supported yet"))
    return Cluster(_build_nodes(parts), min(fabrics, key=_reach))


def _reach(fabric: Fabric) -> tuple[bool, float, int, float]:
    """Of two fabrics the one that brings nodes less near to each other comes first."""
    return fabric.kind == "rail", -fabric.oversubscription, fabric.leaf_radix, -fabric.switch_latency_s


def _build_nodes(parts: Sequence[_Part]) -> list[Node]:
    """Every node; equal ones are one object, wherever they are listed."""
    shapes: list[NodeShape] = []
    for part in parts:
        if part.shape not in shapes:
            shapes.append(part.shape)
    kinds = [build(shape) for shape in shapes]
    return [kinds[shapes.index(part.shape)] for part in parts for _ in range(part.nodes)]


def resolved(spec: Spec, nodes: int = 1, where: str = "cluster") -> dict[str, Any]:
    """Everything that a description resolves to, as plain JSON-able values, for hashing and printing."""
    return {"parts": [_jsonable(part) for part in _parts(spec, nodes, where)]}


def _jsonable(part: _Part) -> dict[str, Any]:
    shape = vars(part.shape) | {
        "device": part.shape.device.model_dump(exclude={"aliases"}),  # they change no result
        "nvlink_wires": list(map(list, part.shape.nvlink_wires)),
    }
    return {"nodes": part.nodes, "shape": shape, "fabric": asdict(part.fabric)}


def described(spec: Spec, where: str = "cluster") -> dict[str, Any]:
    """Every key that a description may change, as it stands for this one; not for a mix of nodes.

    Raises:
        UserError: no such cluster, an unknown base, or a mix.
    """
    table, where, prefix = _table(spec, where)
    if "mix" in table:
        raise UserError(f"{where}: {prefix}mix: nodes of several kinds: set the whole table")
    return _over_bases(table, where, prefix)


def _parts(spec: Spec, nodes: int, where: str) -> list[_Part]:
    """Each kind of node with its count; equal neighbours are one entry however they are listed."""
    table, where, prefix = _table(spec, where)
    if "mix" not in table:
        return [_part(table, nodes, where, prefix)]
    mix = table["mix"]
    if len(table) > 1 or not isinstance(mix, list) or not mix or not all(isinstance(p, Mapping) for p in mix):
        raise UserError(fault(where, f"{prefix}mix", mix, "expected only a list of { base, nodes, ... }"))
    parts = []
    for i, entry in enumerate(mix):
        keys, place = dict(entry), f"{prefix}mix[{i}]."
        _check_nodes(several := keys.pop("nodes", None), where, f"{place}nodes")
        parts.append(_part(keys, several, where, place))
    if (total := sum(part.nodes for part in parts)) != nodes:
        raise UserError(fault(where, "nodes", nodes, f"the nodes of `mix` add up to {total}"))
    alike = groupby(parts, key=lambda part: part[:2])
    return [_Part(shape, fabric, sum(part.nodes for part in same)) for (shape, fabric), same in alike]


def _check_nodes(nodes: object, where: str, key: str) -> None:
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
        raise UserError(fault(where, key, nodes, "expected a whole number, at least 1"))


def _table(spec: Spec, where: str) -> tuple[Mapping[str, Any], str, str]:
    """The description as a mapping, and how its keys are called in messages."""
    if isinstance(spec, Mapping):
        return spec, where, "cluster."
    if not isinstance(spec, str):
        raise UserError(fault(where, "cluster", spec, "expected a cluster's name, a .toml file or a table"))
    if spec.endswith(".toml"):
        path = beside(spec, where)
        return read_toml(path), str(path), ""
    return {"base": files.find("clusters", spec, where, "cluster")[0]}, where, "cluster."


def _over_bases(table: Mapping[str, Any], where: str, prefix: str) -> dict[str, Any]:
    """A description over its base, over its node file, as they are written.

    Raises:
        UserError: an unknown base or node.
    """
    keys = files.plain(table)
    if "base" in keys:
        if not isinstance(base := keys.pop("base"), str):
            raise UserError(fault(where, f"{prefix}base", base, "expected the name of a cluster"))
        known = files.plain(files.find("clusters", base, where, f"{prefix}base")[1])
        keys = {key: value for key, value in known.items() if key != "aliases"} | keys
    if not isinstance(node := keys.get("node"), str):
        raise UserError(fault(where, f"{prefix}node", node, "give `base` (a cluster) or `node` (a node type)"))
    entry, below = files.find("nodes", node, where, f"{prefix}node")
    return files.plain(below) | keys | {"node": entry}


def _part(table: Mapping[str, Any], nodes: int, where: str, prefix: str) -> _Part:
    """Nodes of one kind, from a description that is checked with everything that it rests on."""
    keys = validate(ClusterKeys, _over_bases(table, where, prefix), where, prefix)
    needs = (
        ("nvlink", keys.nvlink != "none" and not keys.nvlink_bytes_per_s, "nvlink_bytes_per_s above zero"),
        ("nvlink", keys.nvlink == "wires" and not keys.nvlink_wires, "nvlink_wires, a list of [gpu, gpu, links]"),
        ("sockets", keys.sockets > 1 and not keys.socket_bytes_per_s, "socket_bytes_per_s above zero"),
    )
    for key, lacks, what in needs:
        if lacks:
            raise UserError(fault(where, f"{prefix}{key}", getattr(keys, key), f"needs {what}"))
    switch_s = files.network_value(keys.network, "network.switch_s")
    latency = {kind: parse(x["value"], "seconds") for kind, x in files.wires()["latency"].items()}
    shape = NodeShape(
        name=keys.node,
        device=device(keys.device, where, f"{prefix}device"),
        gpus=keys.gpus_per_node,
        sockets=keys.sockets,
        pcie_switches=keys.pcie_switches,
        pcie_bytes_per_s=_pcie_bytes_per_s(keys.pcie_gen),
        upstream_bytes_per_s=_pcie_bytes_per_s(keys.upstream_pcie_gen) * keys.upstream_ports,
        pcie_latency_s=latency["pcie"],
        nvlink=keys.nvlink,
        nvlink_bytes_per_s=keys.nvlink_bytes_per_s,
        nvlink_latency_s=latency["nvlink"],
        nvlink_wires=keys.nvlink_wires,
        nvlink_domain_nodes=keys.nvlink_domain_nodes,
        c2c_bytes_per_s=keys.c2c_bytes_per_s,
        c2c_latency_s=latency["c2c"],
        host_memory_bytes=keys.host_memory,
        host_memory_bytes_per_s=keys.host_memory_bytes_per_s,
        socket_bytes_per_s=keys.socket_bytes_per_s,
        socket_latency_s=latency["socket"],
        nics=keys.nics,
        nic_bytes_per_s=keys.nic,
        nic_latency_s=files.network_value(keys.network, "network.message_s") - switch_s,
        switch_latency_s=switch_s,
        nic_attach=keys.nic_attach,
        host_power_w=keys.host_power,
    )
    fabric = Fabric(keys.fabric, keys.oversubscription, keys.leaf_radix, switch_s, keys.network)
    return _Part(shape, fabric, nodes)


def _pcie_bytes_per_s(generation: int) -> float:
    """16 lanes, one direction, after line coding."""
    return parse(files.wires()["pcie"][str(generation)]["line"]["value"], "bytes_per_s")
