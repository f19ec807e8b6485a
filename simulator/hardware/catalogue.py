"""Clusters by name or description: the way from what a user writes to a `Cluster`.

A description is laid over its `base` (a catalogue cluster), that over its node file, so that any key of either may be
changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import UserError, fault
from ..base.files import find_beside, path_beside, read_toml, toml_value
from ..base.named_files import rename_files
from ..base.schema import validate
from . import files
from .cluster import Cluster
from .device import device
from .fabrics import IDEAL, Fabric, FabricError, has_sharp
from .network_keys import NetworkKeys
from .node import Node, NodeShape, build, wires_left

Spec = str | Mapping[str, Any]

MAX_GPUS = 131_072
"""Larger clusters are refused: plans and Programs of that size have not been tried."""


class _ClusterKeys(NodeShape, NetworkKeys):
    """The keys of a Cluster file and of the node file under it."""

    about: str = ""


class _Part(NamedTuple):
    """A number of nodes of one kind in a cluster."""

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
        raise UserError(
            fault(*_place(spec, where, "mix"), kinds, "expected one kind of network: set network in each entry")
        )
    if (gpus := sum(part.shape.gpus_per_node * part.nodes for part in parts)) > MAX_GPUS:
        raise UserError(fault(where, "nodes", nodes, f"{gpus} GPUs; at most {MAX_GPUS} are supported yet"))
    try:
        return Cluster(_build_nodes(parts), _joint(fabrics))
    except FabricError as error:
        raise UserError(fault(*_place(spec, where, error.key), error.value, error.allowed)) from None


def _place(spec: Spec, where: str, key: str) -> tuple[str, str]:
    """The file that says a key of a cluster, and how messages call the key there."""
    _, place, prefix = _table(spec, where)
    return place, f"{prefix}{key}"


def _joint(fabrics: Sequence[Fabric]) -> Fabric:
    """The fabric of nodes that each name one; only those with an ideal spine may differ.

    Raises:
        FabricError: they differ otherwise.
    """
    plain = {replace(fabric, switch_latency_s=0.0) for fabric in fabrics}
    if len(plain) > 1 and any(fabric != _usual(fabric) for fabric in plain):
        kinds = sorted({fabric.kind for fabric in fabrics})
        raise FabricError("mix", kinds, "expected one fabric: the same keys of it in each entry")
    return replace(min(fabrics, key=_reach), sharp=all(fabric.sharp for fabric in fabrics))


def _usual(fabric: Fabric) -> Fabric:
    """An ideal fabric with no keys but its own."""
    kind = fabric.kind if fabric.kind in IDEAL else IDEAL[0]
    own = fabric.oversubscription, fabric.leaf_radix, fabric.switch_latency_s, fabric.network
    return Fabric(kind, *own, sharp=fabric.sharp)


def _reach(fabric: Fabric) -> tuple[bool, float, int, float]:
    """A sort key: the fabric that connects nodes less closely comes first."""
    return fabric.kind == "rail", -fabric.oversubscription, fabric.leaf_radix, -fabric.switch_latency_s


def _build_nodes(parts: Sequence[_Part]) -> list[Node]:
    """Every node; equal ones are one object, wherever they are listed."""
    shapes: list[NodeShape] = []
    for part in parts:
        if part.shape not in shapes:
            shapes.append(part.shape)
    kinds = [build(shape) for shape in shapes]
    return [kinds[shapes.index(part.shape)] for part in parts for _ in range(part.nodes)]


def some_nodes(spec: Spec, nodes: range, where: str = "cluster") -> Spec:
    """The description of some neighbours in a cluster that was built: as it is, or of a mix the entries with them."""
    table, place, _ = _table(spec, where)
    if "mix" not in table:
        return spec
    kept, first = [], 0
    for entry in table["mix"]:
        last = first + entry["nodes"]
        if inside := range(max(first, nodes.start), min(last, nodes.stop)):
            kept.append({**entry, "nodes": len(inside)})
        first = last
    return rename_files({"mix": kept}, place, str)


def cluster_inputs(spec: Spec, nodes: int = 1, where: str = "cluster") -> dict[str, Any]:
    """The resolved description of a cluster as plain JSON values, for hashing and printing."""
    parts = [
        {
            "nodes": part.nodes,
            "shape": part.shape.model_dump(mode="json", exclude={"device": {"aliases"}, "nvls": True}),  # no result
            "fabric": part.fabric.inputs(),
            "wires": {"nic_s": part.shape.nic_s, **files.plain(files.wires())},
        }
        for part in _parts(spec, nodes, where)
    ]
    return {"parts": parts}


def cluster_keys(spec: Spec, where: str = "cluster") -> dict[str, Any]:
    """Every key that a description may change, as it stands for this one; not for a mix of nodes.

    Raises:
        UserError: no such cluster, an unknown base, or a mix.
    """
    return _over_bases(*_unmixed(spec, where))


def own_keys(spec: Spec, where: str = "cluster") -> dict[str, Any]:
    """The keys that a description itself says, over its `base`: a file's own, or of a name its `base` alone.

    Raises:
        UserError: no such cluster or file, or a mix.
    """
    return dict(files.plain(*_unmixed(spec, where)))


def _unmixed(spec: Spec, where: str) -> tuple[Mapping[str, Any], str, str]:
    table, where, prefix = _table(spec, where)
    if "mix" in table:
        raise UserError(f"{where}: {prefix}mix: nodes of several kinds: set the whole table")
    return table, where, prefix


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
        path = find_beside(spec, where, "cluster")
        return _read_beside(path, "device", "node"), str(path), ""
    return {"base": files.find("clusters", spec, where, "cluster")[0]}, where, "cluster."


def _read_beside(path: Path, *keys: str) -> dict[str, Any]:
    """A file in which these keys may name files beside it: their paths are made those from here."""
    table = read_toml(path)
    named = {key: table[key] for key in keys if str(table.get(key)).endswith(".toml")}
    return table | {key: str(path_beside(name, str(path))) for key, name in named.items()}


def _over_bases(table: Mapping[str, Any], where: str, prefix: str) -> dict[str, Any]:
    """A description over its base, over its node file, as they are written.

    Raises:
        UserError: an unknown base or node.
    """
    keys = files.plain(table, where, prefix)
    if "base" in keys:
        if not isinstance(base := keys.pop("base"), str):
            raise UserError(fault(where, f"{prefix}base", base, "expected the name of a cluster"))
        if base.endswith(".toml"):
            allowed = "expected a cluster of the catalogue, not a file: give its `node` here, or change that file"
            raise UserError(fault(where, f"{prefix}base", base, allowed))
        known = files.plain(files.find("clusters", base, where, f"{prefix}base")[1])
        keys = _lay_over(known, keys)
    keys.pop("aliases", None)  # of a shipped cluster, or of a copy of its file
    if "node" not in keys:
        allowed = "expected a cluster of the catalogue, such as 'dgx-h100', or node, a node type"
        raise UserError(f"{where}: {prefix}base: is missing; {allowed}")
    if not isinstance(node := keys["node"], str):
        raise UserError(fault(where, f"{prefix}node", node, "expected the name of a node type, or its .toml file"))
    entry, below = _node_table(node, where, f"{prefix}node")
    whole = _lay_over(files.plain(below, entry), keys) | {"node": entry}
    if lacks := [key for key in _BETWEEN_NODES if key not in whole]:
        raise UserError(f"{where}: {prefix}{', '.join(lacks)}: missing beside node; {_as_in_a_base(entry, lacks)}")
    return whole


_BETWEEN_NODES = ("network", *(key for key, field in NetworkKeys.model_fields.items() if field.is_required()))
"""Keys that a cluster has beside its node."""


def _as_in_a_base(node: str, lacks: Sequence[str]) -> str:
    """How a description of a node alone goes on: on a cluster of such nodes, or with keys as those of one."""
    known = {name: files.plain(table) for name, table in files.tables("clusters").items()}
    base = next((name for name, table in known.items() if table["node"] == node), "dgx-h100")
    said = ", ".join(f"{key} = {toml_value(known[base][key])}" for key in lacks)
    return f"expected base = {toml_value(base)}, or keys such as its {said}"


def _lay_over(below: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """Keys over those below, without the wires below to GPUs that the keys take away."""
    if "nvlink_wires" in below:
        below = below | {"nvlink_wires": wires_left(below["nvlink_wires"], keys.get("gpus_per_node"))}
    return below | keys


def _node_table(node: str, where: str, key: str) -> tuple[str, Mapping[str, Any]]:
    """A node type of the catalogue, or of a TOML file of the same form, with its name or path."""
    if not node.endswith(".toml"):
        return files.find("nodes", node, where, key)
    path = find_beside(node, where, key)
    return str(path), _read_beside(path, "device")


def _part(table: Mapping[str, Any], nodes: int, where: str, prefix: str) -> _Part:
    """Nodes of one kind, from a description that is checked with everything that it rests on."""
    keys = validate(_ClusterKeys, _over_bases(table, where, prefix), where, prefix)
    if "sharp" not in table and not has_sharp(keys.fabric, keys.network):  # of its base, whose switches these are not
        keys = keys.model_copy(update={"sharp": False})
    if "nvls" not in table and keys.nvlink != "switch":
        keys = keys.model_copy(update={"nvls": False})
    needs = (
        ("nics", keys.nics > 0 and not keys.nic, "nic, the rate of one"),
        ("nvlink", keys.nvlink != "none" and not keys.nvlink_bytes_per_s, "nvlink_bytes_per_s above zero"),
        (
            "nvlink",
            keys.nvlink == "wires" and not keys.nvlink_wires and keys.gpus_per_node > 1,
            "nvlink_wires, a list of [gpu, gpu, links]",
        ),
        (
            "nvls",
            keys.nvls and keys.nvlink != "switch",
            f"nvlink = 'switch': an NVSwitch adds (given: {keys.nvlink!r})",
        ),
        ("sockets", keys.sockets > 1 and not keys.socket_bytes_per_s, "socket_bytes_per_s above zero"),
    )
    for key, lacks, what in needs:
        if lacks:
            raise UserError(fault(where, f"{prefix}{key}", getattr(keys, key), f"needs {what}"))
    for wire in keys.nvlink_wires:
        if max(wire[:2]) >= keys.gpus_per_node:
            allowed = f"a node has {keys.gpus_per_node} GPUs, numbered from 0"
            raise UserError(fault(where, f"{prefix}nvlink_wires", list(wire), allowed))
    own = {name: getattr(keys, name) for name in NodeShape.model_fields}
    own |= {"node": Path(keys.node).name, "device": device(keys.device, where, f"{prefix}device")}
    shape = NodeShape.model_construct(**own)
    fabric = keys.as_fabric(shape.switch_s, keys.network)
    return _Part(shape, fabric, nodes)
