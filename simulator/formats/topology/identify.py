"""Which catalogue device a machine has: by the name that nvidia-smi prints, by PCI device id, by compute capability."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import read_toml
from ...hardware.files import find, loose, names, tables
from .layout import Layout

_NAME = re.compile(r"\b(?:NVIDIA|Tesla) +([A-Z][\w-]+(?: [\w-]+)*)")


@cache
def identities() -> dict[str, Any]:
    """`pci_ids`, `capability` and `nvlink` of data/topology/devices.toml."""
    return read_toml(files("runcast.data") / "topology" / "devices.toml")


def named_devices(text: str) -> tuple[str, ...]:
    """The catalogue devices whose names, as nvidia-smi prints them, stand in a text."""
    known = {
        loose(alias): entry
        for entry, table in tables("devices").items()
        for alias in (entry, table.get("name", entry), *table.get("aliases", ()))
    }
    devices = set()
    for phrase in _NAME.finditer(text):
        words = phrase[1].split(" ")
        # the longest name that the first words make: what follows a name on a line is no part of it
        heads = (loose(" ".join(words[:n])) for n in range(min(len(words), 4), 0, -1))
        devices.add(next((known[name] for name in heads if name in known), ""))
    return tuple(sorted(devices - {""}))


def capability(device: str) -> int | None:
    """The compute capability of a catalogue device, as 90."""
    known: dict[str, int] = identities()["capability"]
    starts = [start for start in known if device.startswith(start)]
    return known[max(starts, key=len)] if starts else None


def choose_device(named: str | None, layout: Layout, where: str) -> tuple[str, str]:
    """The catalogue device, and the source of that choice.

    A UserError for an unknown name, one that contradicts the file, or no way to tell.
    """
    sm, found = layout.compute_capability, layout.devices
    if named is not None:
        device = find("devices", named, "--device", "")[0]
        if sm is not None and capability(device) != sm:
            allowed = f"has compute capability {capability(device)}; expected a device with {sm}, as {where} says"
            raise UserError(fault("--device", "", named, allowed))
        return device, "given with --device"
    if len(found) == 1:
        return found[0], layout.devices_from
    known = [device for device in names("devices") if sm is None or capability(device) == sm]
    why = f"it names {' and '.join(found)}" if found else "nothing in it tells"
    raise UserError(f"{where}: which GPU is it? {why}; name it with --device, one of {', '.join(known)}")


def network_of(name: str) -> str | None:
    """The network that a NIC's name gives away: EFA cards and plain Ethernet do, mlx5_0 does not."""
    if re.match(r"rdmap|efa", name):
        return "efa"
    return "ethernet" if re.match(r"eth|en[opsx]|ens", name) else None
