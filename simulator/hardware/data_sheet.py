"""A GPU known by data sheet as three files, of a device, a node and a cluster, that scenarios can name.

The device has the stated numbers and is `like` a device of the catalogue, whose profile serves it: models of kernels
are formulas in peak FLOP/s, bandwidths, SMs and caches, and take those of the new device. What no data sheet needs to
say comes from the catalogue, and its source says so. Price, power, NVLink and network never do, unless a server is
named.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.errors import Fault, UserError, fault
from ..base.files import to_toml, write_atomic
from . import files
from .catalogue import cluster, cluster_names
from .device import Device, device
from .fabrics import has_sharp
from .node import wires_left

STATED = "data sheet, stated on the command line"
_NONE = "not stated, so there is none"

_FLAGS = {
    "like": "--like", "memory": "--memory", "memory_bytes_per_s": "--bandwidth", "sms": "--sms", "l2": "--l2",
    "power": "--power", "price_usd_per_hour": "--price", "gpus_per_node": "--gpus", "nvlink_bytes_per_s": "--nvlink",
    "nics": "--nics", "nic": "--nic", "network": "--network", "peak_flop_per_s.bf16": "--peak-bf16",
}  # fmt: skip
"""The flag that states a key."""

_NEEDED = {
    "like": "the device of the catalogue whose profile serves it, such as h100-sxm",
    "peak_flop_per_s.bf16": 'dense bf16 FLOP/s, such as "1.2 PFLOP/s"',
    "memory": 'a quantity such as "96 GiB"',
    "memory_bytes_per_s": 'a rate such as "4 TB/s"',
}
_KEPT = ("sms", "l2", "copy_engines")
"""Keys of a device that are those of the one that it is like, unless they are stated."""
_HOST = ("sockets", "pcie_switches", "pcie_gen", "upstream_pcie_gen", "upstream_ports", "c2c_bytes_per_s",
         "host_memory", "host_memory_bytes_per_s", "socket_bytes_per_s", "nic_attach")  # fmt: skip
"""Keys of a node that have nothing to do with its GPUs and its network."""
_BOARD = ("nvlink", "nvlink_bytes_per_s", "nvlink_wires", "nvlink_domain_nodes", "nvls", "nics", "nic", "host_power")
"""Keys of a node that are those of a named server only."""
_FABRIC = ("network", "fabric", "oversubscription", "leaf_radix", "sharp")
"""Keys of a cluster."""

_FAR = 20.0
"""How many times a number is that of the device that it is like, or a part of it, from which it may be a slip."""

Entries = dict[str, Any]
"""Keys with `{ value, source }`."""


@dataclass(frozen=True)
class DataSheet:
    """What a user states of a GPU: `keys` of device, node and cluster as their files have them; None is not stated.

    `peaks` are dense FLOP/s by dtype. `server` is the cluster of the catalogue in whose servers it stands.
    """

    name: str
    keys: Mapping[str, Any]
    peaks: Mapping[str, Any]
    server: str | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """The keys that are stated, as entries with their source."""
        return {key: _stated(value) for key, value in self.keys.items() if value is not None}

    @property
    def stem(self) -> str:
        """The name of its files, without their endings."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-.")


@dataclass(frozen=True)
class Description:
    """The three files before they are text, by name; `notes` say what is assumed, and what is not known."""

    files: Mapping[str, Entries]
    device: Device
    notes: tuple[str, ...] = field(default=())


def add_device(sheet: DataSheet, folder: Path, replace: bool = False) -> tuple[list[Path], Description]:
    """Write the files of a GPU into a folder, which is made; the last path is the cluster's.

    Raises:
        UserError: something is missing or not allowed, or a file is there already; nothing is written then.
    """
    found = describe(sheet)
    paths = [folder / name for name in found.files]
    if there := [path for path in paths if path.exists() and not replace]:
        raise UserError(*(f"{path}: is there already; give another --out, or --force" for path in there))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out = {str(folder)!r}: cannot be made: {error.strerror}") from None
    for path, table in zip(paths, found.files.values(), strict=True):
        comment = f"Written by `runcast device add` for {sheet.name}. Each value has its source beside it."
        write_atomic(path, to_toml(table, [comment], inline=True).encode())
    return paths, found


def describe(sheet: DataSheet) -> Description:
    """The files of a GPU, checked.

    Raises:
        UserError: one line for each flag that is missing, and each value that is not allowed.
    """
    _check_given(sheet)
    like, table = files.find("devices", str(sheet.keys["like"]), "--like", "")
    try:
        gpu = _device_entries(sheet, str(table.get("name", like)), table)
        made = device(files.plain(gpu), "device")
        server = sheet.server or _server_of(device(like))
        node, over = _node_entries(sheet, server), _cluster_entries(sheet, server)
        _check_cluster(node | over | {"device": gpu})
    except UserError as error:
        raise UserError(*map(_by_flag, error.faults)) from None
    named = {
        f"{sheet.stem}.toml": gpu,
        f"{sheet.stem}-node.toml": {"about": f"a server of {sheet.name}", "device": f"{sheet.stem}.toml", **node},
        f"{sheet.stem}-cluster.toml": {"about": f"servers of {sheet.name}", "node": f"{sheet.stem}-node.toml", **over},
    }
    return Description(named, made, tuple(_notes(sheet, made, server, node)))


def _check_given(sheet: DataSheet) -> None:
    keys = {**sheet.keys, **{f"peak_flop_per_s.{dtype}": rate for dtype, rate in sheet.peaks.items()}}
    faults = [f"{_FLAGS[key]}: is missing; expected {what}" for key, what in _NEEDED.items() if keys.get(key) is None]
    if not sheet.stem or len(sheet.name) > 64:
        faults.append(
            fault("NAME", "", sheet.name, "expected a name with a letter or a digit, of at most 64 characters")
        )
    elif any(files.loose(sheet.name) == files.loose(known) for known in _names_in_catalogue()):
        faults.append(fault("NAME", "", sheet.name, "is a device of the catalogue; give another name"))
    if (keys.get("nics") is None) != (keys.get("nic") is None) and sheet.server is None:
        lacks, other = ("--nic", "--nics") if keys.get("nic") is None else ("--nics", "--nic")
        faults.append(f"{lacks}: is missing; expected with {other}, or name a --server")
    if keys.get("nics") and keys.get("network") is None and sheet.server is None:
        faults.append(f"--network: is missing; expected one of {', '.join(files.networks())}, or name a --server")
    if sheet.server is not None and sheet.server not in cluster_names():
        faults.append(fault("--server", "", sheet.server, f"expected one of {', '.join(cluster_names())}"))
    if faults:
        raise UserError(*faults)


def _names_in_catalogue() -> Iterator[str]:
    for entry, table in files.tables("devices").items():
        yield from (entry, table.get("name", entry), *table.get("aliases", ()))


def _server_of(like: Device) -> str:
    """The first cluster of the catalogue with this device, or with what that one is like."""
    first = {cluster(name, 1).device(0).name: name for name in reversed(cluster_names())}
    for name in like.lineage:
        if name in first:
            return first[name]
    raise UserError(f"--server: is missing; the catalogue has no cluster of {like.name}")


def _stated(value: Any) -> Entries:
    return {"value": value, "source": STATED}


def _from_catalogue(table: files.Table, key: str, of: str) -> Entries:
    """A key of the catalogue with its source."""
    said = table[key] if isinstance(table[key], Mapping) else {"value": table[key], "source": ""}
    return {"value": said["value"], "source": f"not stated; as {of}: {said['source']}".rstrip(": ")}


def _device_entries(sheet: DataSheet, like: str, table: files.Table) -> Entries:
    keys = ("memory", "memory_bytes_per_s", *_KEPT, "power", "price_usd_per_hour")
    stated = sheet.stated
    entries = {
        key: stated.get(key) or _from_catalogue(table, key, like) for key in keys if key in stated or key in _KEPT
    }
    peaks = {dtype: _stated(rate) for dtype, rate in sheet.peaks.items()}
    return {"name": sheet.name, "like": {"value": like, "source": STATED}, **entries, "peak_flop_per_s": peaks}


def _node_entries(sheet: DataSheet, server: str) -> Entries:
    """The keys of its server: the host's are those of a catalogue node, NVLink and NICs are stated, or it has none."""
    over = files.table("clusters", server)
    table = {**files.table("nodes", over["node"]), **over}
    of, stated = f"cluster {server}", sheet.stated
    taken = ("gpus_per_node", *_HOST, *(_BOARD if sheet.server else ()))
    node = {key: _from_catalogue(table, key, of) for key in taken if key in table}
    if not sheet.server:
        node |= {"nvlink": {"value": "none", "source": _NONE}, "nics": {"value": 0, "source": _NONE}}
    if "nvlink_bytes_per_s" in stated:
        node = {key: entry for key, entry in node.items() if key != "nvlink_wires"} | {"nvlink": _stated("switch")}
    node |= {key: stated[key] for key in ("gpus_per_node", "nvlink_bytes_per_s", "nics", "nic") if key in stated}
    if "nvlink_wires" in node:
        node["nvlink_wires"]["value"] = wires_left(node["nvlink_wires"]["value"], node["gpus_per_node"]["value"])
    return node


def _cluster_entries(sheet: DataSheet, server: str) -> Entries:
    table, stated = files.table("clusters", server), sheet.stated
    entries = {key: _from_catalogue(table, key, f"cluster {server}") for key in _FABRIC if key in table}
    entries |= {"network": stated["network"]} if "network" in stated else {}
    alone = not sheet.server and not sheet.keys.get("nics")
    entries |= {"fabric": {"value": "single", "source": _NONE}} if alone else {}
    plain = files.plain(entries)
    kept = has_sharp(plain["fabric"], plain["network"])
    return {key: entry for key, entry in entries.items() if kept or key != "sharp"}


def _check_cluster(table: Entries) -> None:
    """Build it, of one node and, where there is a network, of two."""
    node = next(iter(files.names("nodes")))  # its own keys lie over it
    said = {"about": "", "nvlink_bytes_per_s": 0, "nvlink_wires": [], "nvlink_domain_nodes": 1, "socket_bytes_per_s": 0,
            "c2c_bytes_per_s": 0, "host_power": None, **table, "node": node}  # fmt: skip
    for nodes in (1,) if files.plain(table)["fabric"] == "single" else (1, 2):
        cluster(said, nodes, "cluster")


def _by_flag(line: str) -> str:
    """The line for a fault, by the flag that states the key."""
    if not isinstance(line, Fault):
        return line
    key = line.key.removeprefix("cluster.").removeprefix("device.")
    dtype = key.removeprefix("peak_flop_per_s.")
    flag = _FLAGS.get(key) or (f"--peak {dtype}" if dtype != key else None)
    return fault(flag, "", line.value, line.allowed) if flag else line


def _far_from(made: Device, like: Device) -> Iterator[str]:
    numbers = {
        "--memory": (made.memory_bytes, like.memory_bytes),
        "--bandwidth": (made.memory_bytes_per_s, like.memory_bytes_per_s),
        **{_FLAGS.get(f"peak_flop_per_s.{dtype}", f"--peak {dtype}"): (rate, like.peak_flop_per_s[dtype])
           for dtype, rate in made.peak_flop_per_s.items() if dtype in like.peak_flop_per_s},
    }  # fmt: skip
    for flag, (value, usual) in numbers.items():
        if not 1 / _FAR < value / usual < _FAR:
            yield f"{flag} is {value / usual:.3g} times that of {like.name}: check its unit"


def _notes(sheet: DataSheet, made: Device, server: str, node: Entries) -> Iterator[str]:
    """What was taken from the catalogue, what is far from it, and what is not known."""
    plain = files.plain(node)
    yield from _far_from(made, device(str(made.like)))
    if kept := [key for key in _KEPT if sheet.keys.get(key) is None]:
        yield f"as {made.like}: {', '.join(kept)}"
    taken = [key for key in node if node[key]["source"] not in (STATED, _NONE)]
    yield f"server of {server}: {', '.join(f'{key} {plain[key]}' for key in taken if key != 'nvlink_wires')}"
    if made.price_usd_per_hour is None:
        yield "price not known: reports have no cost; state --price"
    if made.power_w is None:
        yield "power not known: reports have no energy; state --power"
    if plain["nvlink"] == "none":
        yield "no NVLink: GPUs of a server exchange over PCIe; state --nvlink, or name a --server"
    if not plain["nics"]:
        yield "no network: one server only; state --nics, --nic and --network, or name a --server"
