"""One run of a test of nccl-tests, from text or JSON: its rows, and what the log says of where it ran.

Size, time and bandwidths are defined in nccl-tests, doc/PERFORMANCE.md: algbw = size / time, busbw = algbw f(op, n).
Times are in us and bandwidths in GB/s of 1e9, so time x algbw = size / 1000. Posts often leave out command lines and
lists of ranks; then busbw / algbw tells how many took part: f is 2(n-1)/n for an all-reduce, (n-1)/n for all-gather,
reduce-scatter and all-to-all; for broadcast, reduce and send and receive it is 1 and says nothing.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...simulator.base.errors import UserError, fault
from ...simulator.profile.forms.collective import BUS_FACTOR
from .log import OPS, Found, Options, Place, Printed

_SLACK = 1e-4
"""Relative; what rounding twice may add to the last digits."""


@dataclass(frozen=True)
class Timing:
    """One of the two halves of a row; `bad` if its results were checked and wrong."""

    time_us: Printed
    algbw: Printed
    busbw: Printed
    bad: bool = False


@dataclass(frozen=True)
class Row:
    """A message size, out of place and in place; None where a time is N/A."""

    place: Place
    size: int
    dtype: str
    out: Timing | None
    within: Timing | None


class Listed(NamedTuple):
    """The position of a rank in the log's list of ranks; `bus` is the GPU's PCIe address."""

    host: str
    device: int
    bus: str


@dataclass
class Run:
    """What a log says of one test. Hosts are kept only until they are counted."""

    op: str | None = None
    library: str | None = None
    processes: int | None = None
    stated_nodes: int | None = None
    per_process: int = 1
    listed: dict[int, Listed] = field(default_factory=dict)
    whole_list: bool = False
    devices: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    cpu_time: bool = False
    ended: bool = False

    def add_to(self, found: Found) -> None:
        """Add the run's rows as samples."""
        options = found.options
        op = self._cost_op(found.file, options)
        if self.cpu_time or op is None:
            reason = "times of the CPU (-C)" if self.cpu_time else f"{self.op} has no cost class"
            for row in self.rows:
                found.leave(row.place, reason)
            return
        good = [(row, timing) for row in self.rows if (timing := _usable(row, found)) is not None]
        if not good:
            return
        pairs = [(timing.algbw, timing.busbw) for _, timing in good]
        gpus = _checked_ranks(op, options.gpus or self._ranks(), pairs, found.file)
        nodes = self._nodes(gpus, options.nodes, found.file)
        device = found.device(self.devices)
        library, network = options.library or self.library or "nccl", options.network if nodes > 1 else None
        if op == "send_recv":
            features = {"link_bytes_per_s": network.nic_bytes_per_s} if network and network.nic_bytes_per_s else {}
        else:
            rate = {"network_bytes_per_s": network.node_bytes_per_s} if network else {}
            features = {"gpus": float(gpus), "nodes": float(nodes), **rate}
        cost_class, s = (f"{op}.network", "s") if nodes > 1 else (op, "")
        for row, timing in good:
            seconds, group = timing.time_us.value * 1e-6, f"{gpus} GPUs on {nodes} node{s}, {row.dtype}"
            found.add(row.place, cost_class, seconds, device, library, group, {"bytes": float(row.size), **features})

    def _cost_op(self, file: str, options: Options) -> str | None:
        """The cost class without `.network`; None for a test that has none."""
        asked = OPS[options.op] if options.op else None
        if self.op is None and asked is None:
            raise UserError(f"{file}: does not name the test that ran; give --op, such as --op all_reduce")
        stated = OPS.get(self.op.removesuffix("_perf")) if self.op else asked
        if asked and stated != asked:
            raise UserError(fault("--op", "", options.op, f"{file} says {self.op}"))
        return stated

    def _ranks(self) -> int | None:
        """The number of ranks: from the command or JSON, else from the `# Rank` lines, which posts often cut."""
        if self.processes is not None:
            return self.processes * self.per_process
        return max(self.listed) + 1 if self.listed else None

    def _nodes(self, gpus: int, asked: int | None, file: str) -> int:
        """The number of nodes: from --nodes, else the list of ranks, else the command."""
        nodes = asked or self._listed_nodes(gpus) or self.stated_nodes or (1 if gpus == 1 else None)
        if nodes is None:
            raise UserError(f"{file}: does not say on how many nodes its {gpus} ranks ran; give --nodes")
        if nodes > gpus:
            raise UserError(f"{file}: {nodes} nodes cannot hold {gpus} ranks; give --gpus and --nodes")
        return nodes

    def _listed_nodes(self, gpus: int) -> int | None:
        """Distinct hosts, where the list of ranks is whole or its gaps leave no doubt.

        None too where one host would hold a GPU twice: containers of several nodes may share a name.
        """
        listed = self.listed.values()
        hosts = {rank.host for rank in listed}
        per_node = max((rank.device for rank in listed), default=-1) + 1
        whole = self.whole_list or len(listed) == gpus
        distinct = len({(rank.host, rank.bus) for rank in listed}) == len(listed)
        return len(hosts) if hosts and distinct and (whole or len(hosts) * per_node == gpus) else None


def _usable(row: Row, found: Found) -> Timing | None:
    """The time to use of a row that can be a sample; else the row is left out."""
    column = found.options.column
    first, second = (row.out, row.within) if column == "out-of-place" else (row.within, row.out)
    timing = first or second
    if timing is None:
        found.leave(row.place, "time is N/A")
        return None
    low, high = timing.time_us.low * timing.algbw.low * 1e3, timing.time_us.high * timing.algbw.high * 1e3
    if row.size == 0:
        found.leave(row.place, "size is zero")
    elif timing.bad:
        found.leave(row.place, "wrong results")
    elif timing.time_us.value <= 0:
        found.leave(row.place, "time is zero")
    elif not low * (1 - _SLACK) <= row.size <= high * (1 + _SLACK):
        found.leave(row.place, "time x algbw is not the size")
    else:
        if first is None:
            other = "in-place" if column == "out-of-place" else "out-of-place"
            found.note(f"{column} times are N/A in some rows: {other} is used there")
        return timing
    return None


Pairs = list[tuple[Printed, Printed]]
"""algbw and busbw of each row."""

_SAYS_NOTHING = ("broadcast", "reduce")
_MOST = 1 << 16
_AGREE = 0.5
"""Share of the rows that must allow a stated count; one odd row is no contradiction."""


def _checked_ranks(op: str, stated: int | None, pairs: Pairs, file: str) -> int:
    """The stated count of ranks if most rows allow it; without one, the only count that all rows allow."""
    counts = np.arange(1, _MOST + 1)
    if stated is None:
        telling = op in BUS_FACTOR and op not in _SAYS_NOTHING
        fit = counts[_allowed(op, counts, pairs).all(axis=0)] if telling else counts
        if len(fit) == 1:
            return int(fit[0])
        problem = "does not say how many ranks ran"
    else:
        allowed = _allowed(op, np.array([stated]), pairs) if op in BUS_FACTOR else np.ones((0, 1))
        if not len(allowed) or allowed.mean() >= _AGREE:
            return stated
        fit = counts[_allowed(op, counts, pairs).mean(axis=0) > _AGREE]
        problem = f"{stated} ranks contradict busbw / algbw"
    several = f" to {fit[-1]}" if len(fit) > 1 else ""
    which = f", which fits {fit[0]}{several}" if 0 < len(fit) < _MOST else ""
    raise UserError(f"{file}: {problem}{which}; give --gpus")


def _allowed(op: str, counts: npt.NDArray[np.int_], pairs: Pairs) -> npt.NDArray[np.bool_]:
    """[row, count]: whether the row's ratio, as rounded, may come from so many ranks. Rows of 0 GB/s are left out."""
    telling = [(algbw, busbw) for algbw, busbw in pairs if algbw.low > 0]
    low = np.array([busbw.low / algbw.high for algbw, busbw in telling]).reshape(-1, 1)
    high = np.array([busbw.high / algbw.low for algbw, busbw in telling]).reshape(-1, 1)
    factor = np.asarray(BUS_FACTOR[op](counts.astype(float)))
    return (low <= factor) & (factor <= high)
