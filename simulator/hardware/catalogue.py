"""Clusters by name or description: the way from a scenario to a `Cluster`. Checking what was written is `spec`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from ..base.errors import UserError, fault
from ..base.files import beside, read_toml
from . import files
from .cluster import Cluster
from .fabric import Fabric
from .node import Node, NodeShape, build
from .spec import NodeSpec, merged, node_spec

Spec = str | Mapping[str, Any]

MAX_GPUS = 131_072
"""Larger clusters are refused: plans and Programs of that size have not been tried."""


def cluster_names() -> list[str]:
    """Names of all clusters in the catalogue."""
    return list(files.tables("clusters"))


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
    fabrics = [part.fabric for part, _ in parts]
    if nodes > 1 and any(fabric.kind == "single" for fabric in fabrics):
        raise UserError(fault(where, "nodes", nodes, 'fabric "single" has no network; use 1 node, or another fabric'))
    if len(kinds := sorted({fabric.network for fabric in fabrics})) > 1:
        raise UserError(fault(where, "mix", kinds, "expected one kind of network: set network in each entry"))
    _check_size(parts, nodes, where)
    return Cluster(_built(parts), min(fabrics, key=_reach))


def _reach(fabric: Fabric) -> tuple[bool, float, int, float]:
    """Of two fabrics the one that brings nodes less near to each other comes first."""
    return fabric.kind == "rail", -fabric.oversubscription, fabric.leaf_radix, -fabric.switch_latency_s


def _built(parts: Sequence[tuple[NodeSpec, int]]) -> list[Node]:
    """Every node; equal ones are one object, wherever they are listed."""
    shapes: list[NodeShape] = []
    for part, _ in parts:
        if part.shape not in shapes:
            shapes.append(part.shape)
    kinds = [build(shape) for shape in shapes]
    return [kinds[shapes.index(part.shape)] for part, count in parts for _ in range(count)]


def resolved(spec: Spec, nodes: int = 1, where: str = "cluster") -> dict[str, Any]:
    """Everything that a description resolves to, as plain JSON-able values, for hashing and printing."""
    return {"parts": [{"nodes": count, **_jsonable(asdict(part))} for part, count in _parts(spec, nodes, where)]}


def described(spec: Spec, where: str = "cluster") -> dict[str, Any]:
    """Every key that a description may change, as it stands for this one; not for a mix of nodes.

    Raises:
        UserError: no such cluster, an unknown base, or a mix.
    """
    table, where, prefix = _table(spec, where)
    if "mix" in table:
        raise UserError(f"{where}: {prefix}mix: nodes of several kinds: set the whole table")
    return merged(table, where, prefix)


def _jsonable(value: Any) -> Any:
    """Tuples as lists; without aliases, which change no result."""
    if isinstance(value, dict):
        return {key: _jsonable(x) for key, x in value.items() if key != "aliases"}
    return [_jsonable(x) for x in value] if isinstance(value, list | tuple) else value


def _parts(spec: Spec, nodes: int, where: str) -> list[tuple[NodeSpec, int]]:
    """Each kind of node with its count; equal neighbours are one entry however they are listed."""
    table, where, prefix = _table(spec, where)
    if "mix" not in table:
        return [(node_spec(table, where, prefix), nodes)]
    mix = table["mix"]
    if len(table) > 1 or not isinstance(mix, list) or not mix or not all(isinstance(p, Mapping) for p in mix):
        raise UserError(fault(where, f"{prefix}mix", mix, "expected only a list of { base, nodes, ... }"))
    parts = [_part(part, where, f"{prefix}mix[{i}].") for i, part in enumerate(mix)]
    _check_total(parts, nodes, where)
    alike = groupby(parts, key=lambda entry: entry[0])
    return [(part, sum(count for _, count in entries)) for part, entries in alike]


def _part(part: Mapping[str, Any], where: str, prefix: str) -> tuple[NodeSpec, int]:
    count = part.get("nodes")
    _check_nodes(count, where, f"{prefix}nodes")
    assert isinstance(count, int)
    return node_spec({k: v for k, v in part.items() if k != "nodes"}, where, prefix), count


def _check_nodes(count: object, where: str, key: str) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(fault(where, key, count, "expected a whole number, at least 1"))


def _check_size(parts: Sequence[tuple[NodeSpec, int]], nodes: int, where: str) -> None:
    gpus = sum(part.shape.gpus * count for part, count in parts)
    if gpus > MAX_GPUS:
        raise UserError(fault(where, "nodes", nodes, f"{gpus} GPUs; at most {MAX_GPUS} are supported yet"))


def _check_total(parts: Sequence[tuple[NodeSpec, int]], nodes: int, where: str) -> None:
    total = sum(count for _, count in parts)
    if total != nodes:
        raise UserError(fault(where, "nodes", nodes, f"the nodes of `mix` add up to {total}"))


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
