"""What a topology file tells about one node, whichever tool wrote it: distances, NVLinks, NICs, and its device.

A value that the file does not hold is absent or None; filling gaps from the catalogue is `cluster_file`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import read_toml
from ...hardware.files import find, loose, names, tables


class Distance(IntEnum):
    """The path between two PCIe devices, nearest first, in the words of `nvidia-smi topo -m`."""

    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5

    @property
    def by_switch(self) -> bool:
        """Through PCIe switches alone, without the host."""
        return self <= Distance.PXB


Pair = tuple[int, int]

MOST_GPUS = 128
"""A file with more in one node is refused; no machine has them."""


@dataclass(frozen=True)
class Nic:
    """A port to the network: the labels it goes by, its rate where the file has one, and what its name tells."""

    labels: tuple[str, ...]
    bytes_per_s: float | None = None
    network: str | None = None

    def __str__(self) -> str:
        first, *rest = self.labels
        return f"{first} ({', '.join(rest)})" if rest else first


@dataclass(frozen=True)
class Layout:
    """One node, its GPUs and NICs counted from 0.

    `gpu_distance` is by pairs (a, b) with a < b, `nic_distance` by (gpu, nic). `links` counts the NVLinks between two
    GPUs, directly or through switches (`direct` says which, None: unknown); `switch_links` counts those of each GPU to
    NVSwitches. `numa` labels the host memory nearest to each GPU; a PCIe generation of 0 is not known.
    """

    tool: str
    gpus: int
    nics: tuple[Nic, ...] = ()
    gpu_distance: Mapping[Pair, Distance] = field(default_factory=dict)
    nic_distance: Mapping[Pair, Distance] = field(default_factory=dict)
    links: Mapping[Pair, int] = field(default_factory=dict)
    direct: bool | None = None
    switch_links: tuple[int, ...] = ()
    numa: tuple[str, ...] = ()
    pcie_gen: int = 0
    upstream_gen: int = 0
    devices: tuple[str, ...] = ()
    devices_from: str = ""
    compute_capability: int | None = None

    def nearest_nics(self, gpu: int) -> tuple[Distance | None, tuple[int, ...]]:
        """The NICs nearest to a GPU, and how near they are."""
        mine = {nic: d for (g, nic), d in self.nic_distance.items() if g == gpu}
        best = min(mine.values(), default=None)
        return best, tuple(nic for nic, d in mine.items() if d == best)

    def switches(self) -> tuple[tuple[int, ...], ...] | None:
        """The GPUs behind each PCIe switch, lone GPUs for themselves; none where no switch shows, None if unknown.

        A GPU belongs with what is nearest to it. In one of the formats NVLinks hide the PCIe distance between GPUs:
        then a GPU without a NIC beside it may share a switch that does not show.
        """
        around = [self._around(gpu) for gpu in range(self.gpus)]
        nearest = [min(devices.values(), default=Distance.SYS) for devices in around]
        switched = [gpu for gpu in range(self.gpus) if nearest[gpu].by_switch]
        hidden = len(self.gpu_distance) < self.gpus * (self.gpus - 1) // 2
        if hidden and len(switched) < self.gpus:
            return None
        if not switched:
            return ()
        group = {device: {device} for device in range(self.gpus + len(self.nics))}
        for gpu in switched:
            for other, distance in around[gpu].items():
                if distance == nearest[gpu]:
                    merged = group[gpu] | group[other]
                    group |= dict.fromkeys(merged, merged)
        return tuple(dict.fromkeys(tuple(sorted(group[gpu] & set(range(self.gpus)))) for gpu in range(self.gpus)))

    def _around(self, gpu: int) -> dict[int, Distance]:
        """The distance of a GPU to each other GPU and, counted on, to each NIC."""
        gpus = {b if gpu == a else a: distance for (a, b), distance in self.gpu_distance.items() if gpu in (a, b)}
        return gpus | {self.gpus + nic: distance for (g, nic), distance in self.nic_distance.items() if g == gpu}


def even_groups(things: int, places: int) -> tuple[tuple[int, ...], ...]:
    """The distribution of things over places in a Cluster file, in order."""
    at = [i * places // things for i in range(things)]
    return tuple(tuple(i for i in range(things) if at[i] == place) for place in range(places))


# Which catalogue device a machine has: by the name that nvidia-smi prints, by PCI device id, by compute capability.

_NAME = re.compile(r"\b(?:NVIDIA|Tesla) +([A-Z][\w-]+(?: [\w-]+)*)")


@cache
def identities() -> dict[str, Any]:
    """`pci_ids`, `capability` and `nvlink` of data/topology/devices.toml."""
    return read_toml(files("runcast.data") / "topology" / "devices.toml")


def find_devices(text: str) -> tuple[str, ...]:
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
