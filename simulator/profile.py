"""Profiles and software stacks: named numbers that cost models read, each with its source, provenance and spread.

A Profile belongs to a device (what its links, copies and collectives really reach); a stack belongs to software (what
one tensor, one handle, one synchronisation costs). Both are files of the same form; `PARAMETERS` lists every name.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from .errors import UserError, fault, unknown
from .files import beside, read_json, read_toml
from .hardware.checks import Check, anything, checked, names, one_of, table, text

PROVENANCE = ("exact", "measured", "interpolated", "fitted", "extrapolated", "datasheet", "assumed")

PARAMETERS = {
    # name: (smallest, largest, meaning); a profile's first, then a stack's
    "link_fraction.pcie": (0.01, 1.0, "payload rate over line rate of a PCIe link"),
    "link_fraction.c2c": (0.01, 1.0, "payload rate over line rate of a chip-to-chip link"),
    "link_fraction.nvlink": (0.01, 1.0, "rate of a ring collective over one GPU's NVLink line rate per direction"),
    "link_fraction.nic": (0.01, 1.0, "rate of a collective over the NIC line rate"),
    "link_fraction.host_memory": (0.01, 1.0, "sustained over peak bandwidth of host DRAM"),
    "link_fraction.hbm": (0.01, 1.0, "sustained over peak bandwidth of device memory"),
    "link_fraction.socket": (0.01, 1.0, "payload over line rate between CPU sockets"),
    "link_fraction.leaf": (0.01, 1.0, "rate of collectives over the line rate of a leaf switch's uplinks"),
    "link_fraction.spine": (0.01, 1.0, "the same, from the spine down"),
    "copy.hbm_fraction": (0.01, 1.0, "traffic (read + write) of a local copy over peak device memory bandwidth"),
    "h2d.latency_s": (0.0, 1.0, "start of a pinned host-to-device copy and its synchronisation"),
    "broadcast.latency_s": (0.0, 1.0, "launch of a broadcast"),
    "broadcast.hop_s": (0.0, 1.0, "one hop of the ring inside a node"),
    "broadcast.node_hop_s": (0.0, 1.0, "one hop of the ring between nodes"),
    "agree.latency_s": (0.0, 1.0, "all-reduce of a few bytes inside a node"),
    "agree.doubling_s": (0.0, 1.0, "the same, more for each doubling of the number of nodes"),
    "gather.tensor_s": (0.0, 1.0, "gathering the metadata of one tensor on all ranks"),
    "init_group.s": (0.0, 1e3, "creating a process group"),
    "init_group.rank_s": (0.0, 1.0, "the same, more per rank"),
    "allocate.tensor_s": (0.0, 1.0, "planning the buckets, per tensor"),
    "allocate.byte_s": (0.0, 1e-6, "allocating device memory, per byte"),
    "open_handle.s": (0.0, 1e3, "starting the workers and opening the IPC handle"),
    "wait_worker.s": (0.0, 1.0, "hearing from the worker"),
    "sync.s": (0.0, 1.0, "device synchronise when everything is done"),
    "send_meta.s": (0.0, 1.0, "sending a bucket's metadata to the worker"),
    "send_meta.tensor_s": (0.0, 1.0, "the same, more per tensor"),
    "reload.s": (0.0, 1.0, "one call of the worker's weight loader"),
    "reload.tensor_s": (0.0, 1.0, "host work of the worker's weight loader per tensor"),
    "drop_handle.s": (0.0, 1e3, "the worker drops the handle, collects garbage and empties its cache"),
    "free_buffers.s": (0.0, 1e3, "the parameter server frees its buffers"),
    "post_hook.fp8_s": (0.0, 1e3, "process_weights_after_loading of an FP8 model"),
    "post_hook.bf16_s": (0.0, 1e3, "process_weights_after_loading of a 16-bit model"),
    "barrier.s": (0.0, 1e3, "a barrier of all ranks"),
    "destroy_group.s": (0.0, 1e3, "destroying the process group"),
}
_INTERFERENCE = re.compile(r"interference\.[a-z]\w*\.[a-z]\w*")
_SPEED_KEPT = (0.01, 1.0, "speed an op of the first kind keeps beside one of the second on its GPU")

_KEYS: dict[str, Check] = {
    "schema": one_of(lambda: (1,)),
    "name": text,
    "base": text,
    "devices": names,
    "date": anything,
    "source": text,
    "environment": table,
    "parameters": table,
}


@dataclass(frozen=True)
class Parameter:
    """A number in SI units with its relative standard deviation and where it comes from."""

    value: float
    spread: float
    provenance: str
    source: str


@dataclass(frozen=True)
class Profile:
    """Parameters by name; `profile["reload.tensor_s"]`."""

    name: str
    parameters: Mapping[str, Parameter]

    def __getitem__(self, name: str) -> Parameter:
        return self.parameters[name]

    def value(self, name: str) -> float:
        """The number alone."""
        return self.parameters[name].value

    def joined(self, other: "Profile") -> "Profile":
        """This profile and another one; where both have a name, the other's wins."""
        return Profile(f"{self.name} + {other.name}", {**self.parameters, **other.parameters})

    def to_json(self) -> dict[str, Any]:
        """Everything that a prediction can depend on, for hashing; where a number comes from is not among it."""
        return {name: (p.value, p.spread, p.provenance) for name, p in sorted(self.parameters.items())}


def load_profile(name: str, where: str = "profile") -> Profile:
    """A shipped device profile by name, or one from a .json or .toml file; `where` is the file that names it.

    Raises:
        UserError: no such profile, or a key or value that is not allowed; one line each.
    """
    return _load("profiles", name, where, "profile")


def load_stack(name: str, where: str = "stack") -> Profile:
    """A shipped software stack by name, or one from a file, as `load_profile`."""
    return _load("stacks", name, where, "stack")


def check_complete(profile: Profile, where: str) -> None:
    """Raise UserError with one line for each parameter that a prediction needs and the profile lacks."""
    missing = [name for name in PARAMETERS if name not in profile.parameters]
    if missing:
        raise UserError(*(f"{where}: {profile.name}: {n}: is missing; expected {PARAMETERS[n][2]}" for n in missing))


def profile_for(device: str) -> str:
    """The shipped profile of a device, by its name in the catalogue, or the generic one."""
    for name, content in _shipped("profiles").items():
        if device in content.get("devices", ()):
            return name
    return "generic"


@cache
def _shipped(folder: str) -> Mapping[str, dict[str, Any]]:
    entries = sorted((files("runcast.data") / folder).iterdir(), key=lambda entry: entry.name)
    return {entry.name.rsplit(".", 1)[0]: _read(entry) for entry in entries}


def _load(folder: str, name: str, where: str, key: str, above: tuple[str, ...] = ()) -> Profile:
    """A profile laid over its base; `above` are the files that rest on this one."""
    file, raw = _found(folder, name, where, key)
    place = os.path.realpath(file)
    if place in above:
        raise UserError(fault(where, key, name, "rests on itself; a chain of bases must end"))
    content = checked(raw, _KEYS, file, "", optional=_KEYS)
    base = _load(folder, content["base"], file, "base", (*above, place)).parameters if "base" in content else {}
    return Profile(content.get("name", name), {**base, **_parameters(file, content.get("parameters", {}))})


def _found(folder: str, name: str, where: str, key: str) -> tuple[str, dict[str, Any]]:
    """What a name stands for: the file as messages call it, and its content."""
    shipped = _shipped(folder)
    if name in shipped:
        return f"{folder}/{name}", shipped[name]
    if name.endswith((".json", ".toml")):
        path = beside(name, where)
        return str(path), _read(path)
    raise unknown(where, key, name, shipped)


def _read(path: Traversable) -> dict[str, Any]:
    content = read_json(path) if path.name.endswith(".json") else read_toml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds {type(content).__name__}, not an object; expected one with parameters")
    return content


def _parameters(file: str, entries: Mapping[str, Any]) -> dict[str, Parameter]:
    faults = [line for name, entry in entries.items() for line in _faults(file, name, entry)]
    if faults:
        raise UserError(*faults)
    return {name: Parameter(**entry) for name, entry in entries.items()}


def _faults(file: str, name: str, entry: Any) -> list[str]:
    bounds = _SPEED_KEPT if _INTERFERENCE.fullmatch(name) else PARAMETERS.get(name)
    if bounds is None:
        return [str(unknown(file, "parameter", name, [*PARAMETERS, "interference.<kind>.<kind>"]))]
    if not isinstance(entry, dict) or set(entry) != {"value", "spread", "provenance", "source"}:
        return [fault(file, name, entry, "expected value, spread, provenance and source")]
    low, high, meaning = bounds
    found = []
    if not _within(entry["value"], low, high):
        found.append(fault(file, f"{name}.value", entry["value"], f"expected {low:g} to {high:g} ({meaning})"))
    if not _within(entry["spread"], 0.0, 5.0):
        found.append(fault(file, f"{name}.spread", entry["spread"], "expected a relative spread, 0 to 5"))
    if entry["provenance"] not in PROVENANCE:
        found.append(fault(file, f"{name}.provenance", entry["provenance"], f"expected one of {', '.join(PROVENANCE)}"))
    if not isinstance(entry["source"], str) or not entry["source"].strip():
        found.append(fault(file, f"{name}.source", entry["source"], "expected where the number comes from"))
    return found


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
