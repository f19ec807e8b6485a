"""Knobs: every number of a scenario that a result may rest on, its value, and which way is better.

A knob of the machine is a change of the scenario, `cluster.nic`; a knob of a cost class is a parameter of the profile
or stack, `time_factor.gemm`. Better is a tenth more of a rate, a tenth less of a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...base.errors import UserError
from ...base.units import format_rate, format_seconds, parse
from ...costs import HEAD_MULTIPLE
from ...hardware import described, described_device
from ...profile.parameters import allowed
from ...systems.machines import OnMachines
from .case import Case

_Rate = Literal["bytes_per_s", "flop_per_s"]

STEP = 0.1
"""By which share of its value a knob is turned, either way."""

_CLUSTER = {
    "nic": "line rate of a NIC",
    "nvlink_bytes_per_s": "NVLink rate of a GPU",
    "c2c_bytes_per_s": "rate of a chip-to-chip link",
    "host_memory_bytes_per_s": "bandwidth of host memory",
    "socket_bytes_per_s": "rate between CPU sockets",
}
_MORE_IS_BETTER = ("link_fraction.", "interference.", "copy.hbm_fraction", "rdma.nic_fraction", "network.nic_fraction",
                   "gemm.training_rate", "grouped_gemm.training_rate")  # fmt: skip


@dataclass(frozen=True)
class Knob:
    """A number by name; `subject` is `machine` or `class`, `unit` what it counts: bytes_per_s, flop_per_s, s or 1.

    `most` is the largest value that a file may say.
    """

    name: str
    subject: str
    about: str
    now: float
    unit: str
    more_is_better: bool
    most: float = float("inf")

    def factor(self, better: bool) -> float:
        """What it is multiplied by to be a tenth better or worse."""
        return 1 + STEP if better is self.more_is_better else 1 - STEP

    def value(self, better: bool) -> float:
        """A tenth better or worse, within what is allowed."""
        return min(self.now * self.factor(better), max(self.most, self.now))

    @property
    def capped(self) -> bool:
        """Whether a tenth better is more than a file may say."""
        return self.value(True) < self.now * self.factor(True)

    @property
    def text(self) -> str:
        """The number with its unit."""
        if self.unit == "bytes_per_s":
            return format_rate(self.now)
        if self.unit == "flop_per_s":
            return f"{self.now / 1e12:.4g} TFLOP/s"
        return format_seconds(self.now) if self.unit == "s" else f"{self.now:.4g}"


def knobs(case: Case) -> list[Knob]:
    """Every knob of a case, those of the machine first; some may have no effect on it.

    Raises:
        UserError: the machine says something that is not allowed.
    """
    assert case.resolved.cluster.n_gpus, "its reader tells what is wrong with a machine before its rates are read"
    return [*machine_knobs(case.table["cluster"], case.where), *class_knobs(case.resolved)]


def turned(case: Case, some: Sequence[Knob], better: bool) -> OnMachines:
    """The case with a knob of the machine, or some of classes, a tenth better or worse."""
    if some[0].subject == "machine":
        (knob,) = some
        return case.on_machine({knob.name: {"times": knob.factor(better)}})
    return case.resolved.scaled({knob.name: knob.value(better) / knob.now for knob in some})


def machine_knobs(cluster: Any, where: str) -> Iterator[Knob]:
    """The rates of a machine and of its device; none of a mix of nodes, which have no one rate."""
    try:
        said = described(cluster, where)
    except UserError:
        return
    device = described_device(said["device"], where)
    yield from _rates("cluster", said, _CLUSTER)
    yield from _rates("cluster.device", device, {"memory_bytes_per_s": "bandwidth of device memory"})
    peaks = {dtype: f"dense {dtype} peak of the device" for dtype in device["peak_flop_per_s"]}
    yield from _rates("cluster.device.peak_flop_per_s", device["peak_flop_per_s"], peaks, "flop_per_s")


def _rates(
    prefix: str, said: Mapping[str, Any], about: Mapping[str, str], unit: _Rate = "bytes_per_s"
) -> Iterator[Knob]:
    for key, meaning in about.items():
        if key in said and (now := parse(said[key], unit)) > 0:
            yield Knob(f"{prefix}.{key}", "machine", meaning, now, unit, more_is_better=True)


def class_knobs(resolved: OnMachines) -> Iterator[Knob]:
    """The parameters of profile and stack, and where a training step's are silent, factors of one."""
    values = {name: parameter.value for name, parameter in resolved.profile.parameters.items()}
    values = dict.fromkeys(resolved.factors, 1.0) | values
    for name, now in values.items():
        if now > 0 and not name.startswith("memory.") and name != HEAD_MULTIPLE:  # which is a count
            known = allowed(name)
            assert known is not None, f"{name} was checked when it was read"
            _, most, about = known
            yield Knob(name, "class", about, now, _unit(name), _more_is_better(name), most)


def _more_is_better(name: str) -> bool:
    return name.startswith(_MORE_IS_BETTER)


def _unit(name: str) -> str:
    return "s" if name.endswith(("_s", ".s")) else "1"
