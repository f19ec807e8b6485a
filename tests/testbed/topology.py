"""What a testbed looks like: hosts, the rates of their cables, the switches between them, and its Cluster file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from pathlib import Path

from runcast.simulator.hardware import device

PAYLOAD_BYTES, FRAME_BYTES = 1448, 1514
"""Of a full packet: what TCP with timestamps carries, and what the cable carries."""


@dataclass(frozen=True)
class Topology:
    """Hosts under leaf switches, in order; `rates` are bits/s of each host's cable, each way.

    With several leaves, each has one cable of `uplink` bits/s to the spine. Every packet that a host sends is late by
    `delay_s`; `losses` are the shares of packets that hosts lose, by host. Both need netem in the kernel. A cable holds
    `queue_bytes`, by default more than all sockets send without an answer; with few of them it loses packets. Each host
    has a `share` of a core, and never more; 0: all take what they find.
    """

    rates: tuple[float, ...]
    leaves: int = 1
    uplink: float = 0.0
    delay_s: float = 0.0
    losses: tuple[tuple[int, float], ...] = ()
    queue_bytes: int = 4_000_000
    share: float = 0.0

    def __post_init__(self) -> None:
        if self.hosts % self.leaves:
            raise ValueError(f"{self.hosts} hosts do not divide by {self.leaves} leaves")
        if (self.leaves > 1) != (self.uplink > 0):
            raise ValueError(f"uplink = {self.uplink}: expected one if there are several leaves, and only then")

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self.rates)

    @property
    def under_leaf(self) -> int:
        """Hosts under each leaf."""
        return self.hosts // self.leaves

    def leaf_of(self, host: int) -> int:
        """The leaf in which a host's cable ends."""
        return host // self.under_leaf

    def with_rate(self, host: int, rate: float) -> "Topology":
        """The same with another cable to one host."""
        return replace(self, rates=(*self.rates[:host], rate, *self.rates[host + 1 :]))

    def with_share(self, share: float) -> "Topology":
        """The same with hosts that compute at their own pace, that of a share of a core."""
        return replace(self, share=share)


def star(hosts: int, rate: float) -> Topology:
    """Hosts on one switch."""
    return Topology((rate,) * hosts)


def two_level(hosts: int, rate: float, leaves: int, uplink: float) -> Topology:
    """Hosts on leaves under one spine."""
    return Topology((rate,) * hosts, leaves, uplink)


def cluster_table(topology: Topology) -> Mapping[str, object]:
    """The keys of a Cluster file: a rank on each host, and its one NIC.

    Raises:
        ValueError: losses or delays, which no Cluster file can say.
    """
    if topology.losses or topology.delay_s or topology.queue_bytes < Topology.queue_bytes:
        raise ValueError("a Cluster file has no packets that are late or lost")
    fastest = max(topology.rates) * topology.under_leaf  # of the NICs under a leaf
    over = fastest / topology.uplink if topology.leaves > 1 else 1.0
    ports = topology.under_leaf + ceil(topology.under_leaf / over)
    fabric = {"fabric": "leaf", "leaf_radix": ports, "oversubscription": over}
    node = {"base": "cpu-host", "gpus_per_node": 1, **_processor(topology.share)}
    kinds = [
        {**node, "nic": f"{rate / 1e6:g} Mb/s", **fabric, "nodes": len(list(same))}
        for rate, same in groupby(topology.rates)
    ]
    if len(kinds) > 1:
        return {"mix": kinds}
    return {key: value for key, value in kinds[0].items() if key != "nodes"}


def _processor(share: float) -> dict[str, object]:
    """The device of hosts that have a share of a core: all its rates are that share of a core's."""
    if not share:
        return {}
    core = device("cpu")
    peaks = {dtype: share * peak for dtype, peak in core.peak_flop_per_s.items()}
    rates = {"peak_flop_per_s": peaks, "memory_bytes_per_s": share * core.memory_bytes_per_s}
    return {"device": {"base": "cpu", "name": core.name, **rates}}


def write_cluster(topology: Topology, path: Path) -> None:
    """Write the Cluster file of a testbed."""
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in cluster_table(topology).items()))


def toml(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
