"""One run of a test of nccl-tests, from text or JSON: its rows, and what the log says of where it ran.

Size, time and bandwidths are defined in nccl-tests, doc/PERFORMANCE.md: algbw = size / time, busbw = algbw f(op, n).
Times are in us and bandwidths in GB/s of 1e9, so time x algbw = size / 1000. Posts often leave out command lines and
lists of ranks; then busbw / algbw tells how many took part: f is 2(n-1)/n for an all-reduce, (n-1)/n for all-gather,
reduce-scatter and all-to-all; for broadcast, reduce and send and receive it is 1 and says nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...simulator.base.errors import UserError, fault
from ...simulator.formats.samples.published import EIGHT_BIT_SUMS, SUMS
from ...simulator.hardware import Cluster, cluster, cluster_names
from ...simulator.profile.forms.collective import BUS_FACTOR
from .log import OPS, Found, Network, Place, Printed, places_text

_SLACK = 1e-4
"""Relative; what rounding twice may add to the last digits."""

_FASTEST_NIC = 200e9
"""bytes/s: twice that of 800 Gb/s (ConnectX-8)."""

_LARGE, _LEAST_USED = 64 << 20, 0.25
"""Bytes of a message from which NICs should reach some of their line rate, and what share."""

_SPLIT = "several groups of ranks at once (NCCL_TESTS_SPLIT), which share links"
_ONE_RANK = "one rank of a node uses some of its NICs only; say how many there are, as --network '8 x 400 Gb/s'"
_NO_NETWORK = "rows between nodes do not say the rate of NICs: state --network here, or --cluster of fit"
_EIGHT_BIT = ("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2")


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
    redop: str
    out: Timing | None
    within: Timing | None


class Listed(NamedTuple):
    """The position of a rank in the log's list of ranks; `bus` is the GPU's PCIe address, `group` its communicator."""

    host: str
    device: int
    bus: str
    group: str


@dataclass
class Run:
    """What a log says of one test. Hosts are kept only until they are counted.

    `per_process` is how many ranks a process has, None where the log does not say. `split` if it says in another way
    than in its list of ranks that several groups ran at once, `nodes_are_groups` if what it calls nodes are these.
    `algorithm` is the NCCL_ALGO that it was forced to.
    """

    op: str | None = None
    library: str | None = None
    processes: int | None = None
    stated_nodes: int | None = None
    per_process: int | None = None
    listed: dict[int, Listed] = field(default_factory=dict)
    whole_list: bool = False
    split: bool = False
    nodes_are_groups: bool = False
    devices: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    cpu_time: bool = False
    ended: bool = False
    algorithm: str | None = None

    @property
    def place(self) -> Place:
        """Where its rows begin."""
        return self.rows[0].place

    def add_to(self, found: Found) -> None:
        """Add the run's rows as samples.

        A UserError with the place of its rows if neither the log nor the flags say what ran, or they contradict.
        """
        if reason := self._useless():
            for row in self.rows:
                found.leave(row.place, reason)
            return
        op = self._cost_op(found)
        good = [(row, timing) for row in self.rows if (timing := _usable(row, op, found)) is not None]
        if not good:
            return
        gpus = self._gpus(op, [(timing.algbw, timing.busbw) for _, timing in good], found)
        device = found.device(self.devices, self.place)
        nodes, options = self._nodes(gpus, device, found), found.options
        rates = _rates(op, gpus, nodes, device, good, found) if nodes > 1 else {}
        if rates is None:
            for row, _ in good:
                found.leave(row.place, _ONE_RANK)
            return
        library = options.library or self.library or "nccl"
        algorithm = found.settle(self.place, "--algorithm", options.algorithm, self.algorithm) or ""
        ranks = {} if op == "send_recv" else {"gpus": float(gpus), "nodes": float(nodes)}
        cost_class, s = (f"{op}.network", "s") if nodes > 1 else (op, "")
        for row, timing in good:
            seconds, group = timing.time_us.value * 1e-6, f"{gpus} GPUs on {nodes} node{s}, {row.dtype}"
            features = {"bytes": float(row.size), **ranks, **rates}
            found.add(row.place, cost_class, seconds, device, library, group, features, algorithm)

    @property
    def _test(self) -> str | None:
        return self.op.removesuffix("_perf") if self.op else None

    def _useless(self) -> str:
        """Why none of its rows is a sample; empty if they may be."""
        if self.cpu_time:
            return "times of the CPU (-C)"
        groups = {rank.group for rank in self.listed.values()}
        if len(groups) > 1 or (self.split and not groups):
            return _SPLIT
        return f"{self.op} has no cost class" if self._test is not None and self._test not in OPS else ""

    def _cost_op(self, found: Found) -> str:
        """The cost class without `.network`; a UserError if it is not known, or the rows reduce and the op does not."""
        said, asked = self._test, found.options.op
        if said and asked and OPS[said] == OPS[asked]:
            asked = said
        test = found.settle(self.place, "--op", asked, said)
        if test is None:
            what = "does not name the test that ran; give --op, such as --op all_reduce"
            raise UserError(f"{found.file}:{self.place}: {what}")
        op = OPS[test]
        odd = [row for row in self.rows if row.redop and (row.redop != "none") != (op in SUMS)]
        if odd and op != "send_recv":  # whose rows name a redop, which it does not use
            does = "reduces" if op in SUMS else "does not reduce"
            why = f"{op} {does}" if said else f"--op {op} {does}; import this table from a file of its own"
            raise UserError(fault(f"{found.file}:{odd[0].place}", "redop", odd[0].redop, why))
        return op

    def _gpus(self, op: str, pairs: "Pairs", found: Found) -> int:
        """The number of ranks: from what the table says, else --gpus, else the bandwidths.

        A list of ranks may have been cut, so --gpus may name more where the bandwidths do not agree with the list.
        """
        asked, said = found.options.gpus, self._ranks()
        least = None if self._counted_ranks() else max(self.listed, default=-1) + 1
        if asked and said and least is not None and asked >= least:
            is_cut = asked > said and not _agree(op, said, pairs)
            said = None if is_cut or len(self.listed) != said else said
        ranks = found.settle(self.place, "--gpus", asked, said)
        return _checked_ranks(op, ranks, pairs, f"{found.file}:{self.place}", least)

    def _ranks(self) -> int | None:
        """The number of ranks: from the command or JSON, else from the `# Rank` lines, which posts often cut."""
        return self._counted_ranks() or max(self.processes or 0, max(self.listed, default=-1) + 1) or None

    def _counted_ranks(self) -> int | None:
        """The number of ranks if the log says how many processes there are, and how many ranks each has."""
        return self.processes * self.per_process if self.processes and self.per_process else None

    def _nodes(self, gpus: int, device: str, found: Found) -> int:
        """The number of nodes: from the list of ranks, else the command, else --nodes.

        --nodes may count the domains in which NVLink joins several hosts, which are fewer than the hosts listed.
        """
        asked, where = found.options.nodes, f"{found.file}:{self.place}"
        said = self._listed_nodes(gpus) or self.stated_nodes or (1 if gpus == 1 else None)
        if said and asked and asked < said and _joins_hosts(device):
            said = None
        nodes = found.settle(self.place, "--nodes", asked, said)
        if nodes is None:
            but = " (its `nodes` counts communicators)" if self.nodes_are_groups else ""
            raise UserError(f"{where}: does not say on how many nodes its {gpus} ranks ran{but}; give --nodes")
        if said is None and nodes > 1:  # fewer ranks of the same file may have run on fewer nodes
            found.spread.setdefault(gpus, self.place)
            for ranks in found.spread.keys() - {gpus}:
                there = f"{ranks} ranks ({places_text([found.spread[ranks]])})"
                why = f"is for {there}, or for {gpus} here; import one from another file"
                raise UserError(fault(where, "--nodes", nodes, why))
        if nodes > gpus:
            raise UserError(f"{where}: {nodes} nodes cannot hold {gpus} ranks; give --gpus and --nodes")
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


def _crossing(op: str, gpus: int, nodes: int) -> float:
    """Bytes over nccl-tests size that at least leave or enter each node, also where switches add up."""
    others = (nodes - 1) / nodes
    return {"all_gather": others, "reduce_scatter": others, "all_to_all": gpus / nodes * others}.get(op, 1.0)


Good = Sequence[tuple[Row, Timing]]
"""Rows that can be samples, with the time to use."""


def _rates(op: str, gpus: int, nodes: int, device: str, good: Good, found: Found) -> dict[str, float] | None:
    """The line rates between nodes as features; None where one rank of a node uses nobody knows how many of its NICs.

    A UserError if the rows move more than that.
    """
    network, node = found.options.network, _gpus_per_node(device)
    if network is None:
        found.note(_NO_NETWORK)
    else:
        used = network.used_bytes_per_s(max(gpus // nodes, 1), node)
        _check_network(network, used, [_crossing(op, gpus, nodes) * row.size for row, _ in good], good, found)
    if op == "send_recv":
        return {"link_bytes_per_s": network.nic_bytes_per_s} if network and network.nic_bytes_per_s else {}
    if gpus == nodes and node > 1 and not (network and network.nic_bytes_per_s):
        return None
    return {"network_bytes_per_s": used} if network else {}


def _check_network(
    network: Network, used_bytes_per_s: float, crossing: Sequence[float], good: Good, found: Found
) -> None:
    """Raise UserError if a row puts more through a node's NICs than their line rate.

    Note one that comes near no more than a part of what its ranks can use.
    """
    rates = [size / (timing.time_us.high * 1e-6) for size, (_, timing) in zip(crossing, good, strict=True)]
    best, row = max(zip(rates, (row for row, _ in good), strict=True), key=lambda pair: pair[0])
    line, reached = _gigabits(network.node_bytes_per_s), _gigabits(best)
    if best > network.node_bytes_per_s:
        why = f"at least {reached} pass the NICs of a node here; expected their line rate together"
        raise UserError(fault(f"{found.file}:{row.place}", "--network", line, why))
    nic, used = network.nic_bytes_per_s, _gigabits(used_bytes_per_s)
    if nic and nic > _FASTEST_NIC:
        found.note(f"--network: {_gigabits(nic)} of one NIC: is it bytes for bits?")
    elif max(row.size for row, _ in good) >= _LARGE and best < _LEAST_USED * used_bytes_per_s:
        found.note(f"--network: no row has more than {reached} of the {used} of a node: is it bytes for bits?")


def _gigabits(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8e-9:.4g} Gb/s"


def _joins_hosts(device: str) -> bool:
    """Whether NVLink joins several hosts in a cluster of the catalogue that has this GPU."""
    return any(one.nodes[0].nvlink_domain_nodes > 1 for one in _clusters(device))


def _gpus_per_node(device: str) -> int:
    """The GPUs of a node in the first cluster of the catalogue that has this GPU; one if none has."""
    return next((one.gpus_per_node[0] for one in _clusters(device)), 1)


def _clusters(device: str) -> Iterator[Cluster]:
    """One node of each cluster of the catalogue that has this GPU."""
    clusters = (cluster(name, 1) for name in cluster_names())
    return (one for one in clusters if one.device(0).name == device)


def _usable(row: Row, op: str, found: Found) -> Timing | None:
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
    elif op in SUMS and row.dtype in _EIGHT_BIT:
        found.leave(row.place, EIGHT_BIT_SUMS)
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


def _checked_ranks(op: str, stated: int | None, pairs: Pairs, where: str, least: int | None) -> int:
    """The stated count of ranks if most rows allow it; without one, the only count that all rows allow.

    The error asks for --gpus where that may say otherwise: `least` ranks or more, None if it may not.
    """
    counts = np.arange(1, _MOST + 1)
    if stated is None:
        telling = op in BUS_FACTOR and op not in _SAYS_NOTHING
        fit = counts[_allowed(op, counts, pairs).all(axis=0)] if telling else counts
        if len(fit) == 1:
            return int(fit[0])
        problem = "does not say how many ranks ran"
    elif _agree(op, stated, pairs):
        return stated
    else:
        fit = counts[_allowed(op, counts, pairs).mean(axis=0) > _AGREE]
        problem = f"{stated} ranks of {op} contradict busbw / algbw"
    several = f" to {fit[-1]}" if len(fit) > 1 else ""
    which = f", which fits {fit[0]}{several}" if 0 < len(fit) < _MOST else ""
    helps = least is not None and len(fit) > 0 and fit[-1] >= least
    raise UserError(f"{where}: {problem}{which}{'; give --gpus' if helps else ''}")


def _agree(op: str, ranks: int, pairs: Pairs) -> bool:
    """Whether most rows may come from so many ranks."""
    allowed = _allowed(op, np.array([ranks]), pairs) if op in BUS_FACTOR else np.ones((0, 1))
    return not len(allowed) or bool(allowed.mean() >= _AGREE)


def _allowed(op: str, counts: npt.NDArray[np.int_], pairs: Pairs) -> npt.NDArray[np.bool_]:
    """[row, count]: whether the row's ratio, as rounded, may come from so many ranks. Rows of 0 GB/s are left out."""
    telling = [(algbw, busbw) for algbw, busbw in pairs if algbw.low > 0]
    low = np.array([busbw.low / algbw.high for algbw, busbw in telling]).reshape(-1, 1)
    high = np.array([busbw.high / algbw.low for algbw, busbw in telling]).reshape(-1, 1)
    factor = np.asarray(BUS_FACTOR[op](counts.astype(float)))
    return (low <= factor) & (factor <= high)
