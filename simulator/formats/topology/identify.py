"""Which catalogue device a machine has: by the name that nvidia-smi prints, by PCI device id, by compute capability."""

import re
from collections.abc import Sequence

from ...base.errors import UserError, fault
from ...hardware.files import Table, find, loose, tables
from .layout import Layout

_PCI_ID = {
    "0x1db1": "v100-sxm2-16",
    "0x1db5": "v100-sxm2-32",
    "0x1db8": "v100-sxm3-32",
    "0x20b0": "a100-sxm-40",
    "0x20b2": "a100-sxm-80",
    "0x20b5": "a100-pcie-80",
    "0x2324": "h800",
    "0x2329": "h20",
    "0x232c": "h20-3e",
    "0x2330": "h100-sxm",
    "0x2331": "h100-pcie",
    "0x2335": "h200",
    "0x2342": "gh200-96",
    "0x26b9": "l40s",
    "0x2901": "b200",
    "0x2941": "gb200",
    "0x3182": "b300",
    "0x31c2": "gb300",
    "0x31c3": "gb300",
}
"""Device ids of vendor 0x10de, from the PCI ID repository (https://pci-ids.ucw.cz/read/PC/10de)."""

_CAPABILITY = {
    "v100": 70,
    "a100": 80,
    "l40s": 89,
    "h": 90,
    "gh200": 90,
    "b200": 100,
    "gb200": 100,
    "b300": 103,
    "gb300": 103,
}
"""Compute capability by the start of a device's file name (https://developer.nvidia.com/cuda-gpus)."""

_SMI_NAMES = {"gh200480gb": "gh200-96", "b300sxm6ac": "b300"}
"""What nvidia-smi calls a device, where that is no alias of it."""

_NAME = re.compile(r"\b(?:NVIDIA|Tesla) +([A-Z][\w-]+(?: [\w-]+)*)")


def by_pci_id(device_id: str) -> str | None:
    """The device with this PCI device id, such as `0x2330`."""
    return _PCI_ID.get(device_id.lower())


def named_devices(text: str) -> tuple[str, ...]:
    """The catalogue devices whose names, as nvidia-smi prints them, stand in a text."""
    known = {loose(alias): entry for entry, table in tables("devices").items() for alias in _names(entry, table)}
    known |= _SMI_NAMES
    words = (found[1].split(" ") for found in _NAME.finditer(text))
    found = (next((known[n] for n in _heads(w) if n in known), None) for w in words)
    return tuple(sorted({entry for entry in found if entry}))


def _heads(words: Sequence[str]) -> list[str]:
    """The first words of a phrase as one name, the longest first: what follows a name on a line is no part of it."""
    return [loose(" ".join(words[:n])) for n in range(min(len(words), 4), 0, -1)]


def _names(entry: str, table: Table) -> tuple[str, ...]:
    return (entry, table.get("name", entry), *table.get("aliases", ()))


def capability(device: str) -> int | None:
    """The compute capability of a catalogue device, as 90."""
    starts = [start for start in _CAPABILITY if device.startswith(start)]
    return _CAPABILITY[max(starts, key=len)] if starts else None


def chosen_device(given: str | None, layout: Layout, where: str) -> tuple[str, str]:
    """The catalogue device, and the source of that choice.

    Raises:
        UserError: an unknown name, one that contradicts the file, or no way to tell.
    """
    sm, found = layout.compute_capability, layout.devices
    if given is not None:
        device = find("devices", given, "--device", "")[0]
        if sm is not None and capability(device) != sm:
            allowed = f"has compute capability {capability(device)}; expected a device with {sm}, as {where} says"
            raise UserError(fault("--device", "", given, allowed))
        return device, "given with --device"
    if len(found) == 1:
        return found[0], layout.devices_from
    known = [device for device in tables("devices") if sm is None or capability(device) == sm]
    why = f"it names {' and '.join(found)}" if found else "nothing in it tells"
    raise UserError(f"{where}: which GPU is it? {why}; name it with --device, one of {', '.join(known)}")


def network_of(name: str) -> str | None:
    """The network that a NIC's name gives away: EFA cards and plain Ethernet do, mlx5_0 does not."""
    if re.match(r"rdmap|efa", name):
        return "efa"
    return "ethernet" if re.match(r"eth|en[opsx]|ens", name) else None
