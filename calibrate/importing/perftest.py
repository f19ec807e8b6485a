"""Results of perftest (`ib_write_bw` and its relatives), from text or JSON, as classes of a NIC.

A bandwidth test keeps many messages under way, so its sample is the time that a message takes of the wire: bytes over
the average rate. With two directions (`-b`) the tool adds both up, so a message takes twice that. Units, from
src/perftest_parameters.h of several releases: `MiB/sec`, which older ones call `MB/sec` and mean the same 2^20, and
`Gb/sec` with --report_gbits. A latency test gives half a round trip, for a read a whole one, in us.
"""

import re
from dataclasses import dataclass

from .found import Found, Place
from .options import Options, device_of
from .printed import Printed

RATES = {"MiB": float(1 << 20), "MB": float(1 << 20), "Gb": 1e9 / 8}
"""Bytes per second in the unit of a header, by its first letters."""

_TITLE = re.compile(r"\b(RDMA_Write|RDMA_Read|Send)\s+(Bidirectional\s+)?(?:Post List\s+)?(BW|Latency) Test", re.I)
_SLACK = 0.01
"""Relative; the rate of messages is measured beside the bandwidth."""


@dataclass(frozen=True)
class Test:
    """Which verb was tested, how, and on what; `gpus` are names where GPU memory was used."""

    verb: str
    latency: bool
    both_ways: bool = False
    qps: int = 1
    mtu: str = ""
    gpus: frozenset[str] = frozenset()

    @property
    def cost_class(self) -> str:
        """`nic.write`, `nic.write_latency`, `nic.write.bidirectional`."""
        return f"nic.{self.verb}{'_latency' if self.latency else ''}{'.bidirectional' if self.both_ways else ''}"


def titled(title: str) -> Test | None:
    """The test of a title such as `RDMA_Write BW Test`; None for one that has no cost class."""
    match = _TITLE.search(title)
    if match is None:
        return None
    return Test(match[1].lower().removeprefix("rdma_"), match[3].lower() == "latency", bool(match[2]))


def add_rate(test: Test, place: Place, size: int, bytes_per_s: Printed, messages_per_s: Printed | None, found: Found,
             options: Options) -> None:  # fmt: skip
    """A row of a bandwidth test; left out where its two rates contradict each other."""
    if bytes_per_s.value <= 0 or size <= 0:
        return found.leave(place, "rate is zero")
    if messages_per_s is not None and messages_per_s.value > 0:
        low, high = size * messages_per_s.low * (1 - _SLACK), size * messages_per_s.high * (1 + _SLACK)
        if bytes_per_s.high < low or bytes_per_s.low > high:
            return found.leave(place, "average rate is not bytes x MsgRate")
    add(test, place, size, (2 if test.both_ways else 1) * size / bytes_per_s.value, found, options)


def add(test: Test, place: Place, size: int, seconds: float, found: Found, options: Options) -> None:
    """A sample of one message."""
    if seconds <= 0 or size <= 0:
        return found.leave(place, "time is zero")
    link = options.network.nic_bytes_per_s or options.network.node_bytes_per_s if options.network else None
    features = {"bytes": float(size), **({"link_bytes_per_s": link} if link else {})}
    group = f"{test.cost_class}{f' mtu {test.mtu}' if test.mtu else ''}"
    device = device_of(set(test.gpus), options, found.file)
    found.add(place, test.cost_class, seconds, device, options.library or f"perftest qps={test.qps}", group, features)
