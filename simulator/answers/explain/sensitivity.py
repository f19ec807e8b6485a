"""Knobs, every number of a scenario that a result may rest on, and what a tenth of each is worth.

A knob of the machine is a change of the scenario, `cluster.nic`; a knob of a cost class is a parameter of the profile
or stack, `time_factor.gemm`. Better is a tenth more of a rate, a tenth less of a time.

First order takes the critical path as it is. Each op on it holds up the end for some seconds; priced anew, the op takes
another time alone, and holds it up in proportion. It loses time to what runs beside it, too, in proportion to how long
that is. A simulation knows the rest: another path, links that fill up or empty.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...base.arrays import Floats
from ...base.errors import UserError
from ...base.units import format_rate, format_seconds, parse
from ...costs import HEAD_MULTIPLE, Costs
from ...hardware import cluster_keys, device_keys
from ...profile.parameters import bounds
from ...systems.machines import OnMachines
from .case import Case, same_costs

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
_MORE_IS_BETTER = ("link_fraction.", "interference.", "copy.hbm_fraction", "copy.d2h_fraction", "copy.p2p_fraction",
                   "reload.hbm_fraction", "rdma.nic_fraction", "network.nic_fraction",
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
        """The factor that makes the knob's value 10 % better or worse."""
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

    A UserError if the machine says something that is not allowed.
    """
    assert case.resolved.cluster.n_gpus, "its reader tells what is wrong with a machine before its rates are read"
    return [*_of_machine(case.table["cluster"], case.where), *_of_classes(case.resolved)]


def turn_knob(case: Case, knob: Knob, better: bool) -> OnMachines:
    """The case with a knob a tenth better or worse."""
    if knob.subject == "machine":
        return case.move_to({knob.name: {"times": knob.factor(better)}})
    return case.resolved.scale({knob.name: knob.value(better) / knob.now})


def _of_machine(cluster: Any, where: str) -> Iterator[Knob]:
    """The rates of a machine and of its device; none of a mix of nodes, which have no one rate."""
    try:
        said = cluster_keys(cluster, where)
    except UserError:
        return
    device = device_keys(said["device"], where)
    peaks = {dtype: f"dense {dtype} peak of the device" for dtype in device["peak_flop_per_s"]}
    rates: tuple[tuple[str, Mapping[str, Any], Mapping[str, str], _Rate], ...] = (
        ("cluster", said, _CLUSTER, "bytes_per_s"),
        ("cluster.device", device, {"memory_bytes_per_s": "bandwidth of device memory"}, "bytes_per_s"),
        ("cluster.device.peak_flop_per_s", device["peak_flop_per_s"], peaks, "flop_per_s"),
    )
    for prefix, table, about, unit in rates:
        for key, meaning in about.items():
            if key in table and (now := parse(table[key], unit)) > 0:
                yield Knob(f"{prefix}.{key}", "machine", meaning, now, unit, more_is_better=True)


def _of_classes(resolved: OnMachines) -> Iterator[Knob]:
    """The parameters of profile and stack, and where a training step's are silent, factors of one."""
    values = {name: parameter.value for name, parameter in resolved.profile.parameters.items()}
    for name, now in {**dict.fromkeys(resolved.factors, 1.0), **values}.items():
        if now > 0 and not name.startswith("memory.") and name != HEAD_MULTIPLE:  # which is a count
            known = bounds(name)
            assert known is not None, f"{name} was checked when it was read"
            _, most, about = known
            unit = "s" if name.endswith(("_s", ".s")) else "1"
            yield Knob(name, "class", about, now, unit, name.startswith(_MORE_IS_BETTER), most)


_APART, _LEAST = 0.1, 5e-4
"""First order misses a simulation by so much of what that says, and by so much of the total: the path moved."""

Progress = Callable[[str, int, int, str], None]
"""Is called with what is being tried: the phase, how many are done, how many there are at most, and its name."""


@dataclass(frozen=True)
class Side:
    """A knob turned one way: its value, and by how many seconds the total changes; below zero is faster."""

    value: float
    first_order_s: float
    simulated_s: float | None

    @property
    def change_s(self) -> float:
        """The better known of the two."""
        return self.first_order_s if self.simulated_s is None else self.simulated_s


@dataclass(frozen=True)
class Sensitivity:
    """The change of a total of `total_s` if a knob is 10 % better or worse."""

    knob: Knob
    better: Side
    worse: Side
    total_s: float

    @property
    def size_s(self) -> float:
        """The larger of both changes, without its sign."""
        return max(abs(self.better.change_s), abs(self.worse.change_s))

    @property
    def gain(self) -> float:
        """Share of the total that a tenth better saves."""
        return -self.better.change_s / self.total_s

    @property
    def elasticity(self) -> float:
        """Relative change of the total over relative change of the number, across both sides."""
        turned = (self.worse.value - self.better.value) / self.knob.now
        return (self.worse.change_s - self.better.change_s) / self.total_s / turned if turned else 0.0

    @property
    def path_moves(self) -> bool:
        """Whether a simulation differs from the first order, because the critical path changes."""
        return any(
            abs(side.simulated_s - side.first_order_s) > max(_APART * abs(side.simulated_s), _LEAST * self.total_s)
            for side in (self.better, self.worse)
            if side.simulated_s is not None
        )

    def to_json(self) -> dict[str, Any]:
        """The sensitivity as plain values; seconds are changes of the total."""
        knob, sides = self.knob, {"better": vars(self.better), "worse": vars(self.worse)}
        of_knob = {"name": knob.name, "subject": knob.subject, "about": knob.about, "value": knob.now}
        return {**of_knob, "unit": knob.unit, **sides, "elasticity": self.elasticity, "path_moves": self.path_moves}


def sensitivities(case: Case, quick: bool, progress: Progress) -> tuple[list[Sensitivity], list[Knob]]:
    """(the sensitivities of all knobs, strongest first; the knobs that have no effect in this case).

    `quick` leaves simulating out.
    """
    asked, found, read = knobs(case), list[Sensitivity](), case.resolved.parameters_read()
    for i, knob in enumerate(asked):
        progress("numbers", i, len(asked), f": {knob.name}")
        if knob.subject == "class" and knob.name not in read:
            continue
        worse = turn_knob(case, knob, better=False)
        if not same_costs(case.resolved.costs, worse.costs):
            found.append(sensitivity(case, knob, worse, quick))
    without = set(asked) - {one.knob for one in found}
    return sorted(found, key=lambda one: -one.size_s), [knob for knob in asked if knob in without]


def sensitivity(case: Case, knob: Knob, worse: OnMachines, quick: bool = False) -> Sensitivity:
    """The sensitivity of the total to one knob; `worse` is the case with it 10 % worse."""

    def side(better: bool, turned: OnMachines) -> Side:
        simulated_s = None if quick else case.simulated_s(turned) - case.total_s
        return Side(knob.value(better), first_order_s(case, turned.costs), simulated_s)

    better = turn_knob(case, knob, better=True)
    return Sensitivity(knob, side(True, better), side(False, worse), case.total_s)


def first_order_s(case: Case, costs: Costs) -> float:
    """The extra seconds of a case's critical path with other costs of the same Program."""
    path, now = case.path, case.resolved.costs
    alone, other = now.uncontended_s, costs.uncontended_s
    factor = np.divide(other, alone, out=np.ones_like(alone), where=alone > 0)
    new_s = np.where(alone > 0, 0.0, other)[path.ops].sum()  # what took no time has none to multiply
    return float(new_s + (path.seconds * (factor[path.ops] - 1)).sum()) + _disturbed_s(case, costs, factor)


def _disturbed_s(case: Case, costs: Costs, factor: Floats) -> float:
    """Extra seconds that ops on the path lose to ops beside them, compared with now.

    An op of speed s beside another one loses 1 - s of the time of both; it loses more if s is lower, and for longer if
    the other one takes `factor` times as long.
    """
    now, cost_class = case.resolved.costs, case.resolved.costs.cost_class
    lost = 0.0
    for victim, beside_s in case.beside_s.items():
        kept, kept_then = (of.interference[victim, cost_class] for of in (now, costs))
        lost += float((beside_s * (kept - kept_then + (1 - kept) * (factor - 1))).sum())
    return lost


@dataclass(frozen=True)
class Turned:
    """A total of `now_s` with other numbers, to first order and, where that was asked, simulated."""

    now_s: float
    first_order_s: float
    simulated_s: float | None

    @property
    def total_s(self) -> float:
        """The better known of the two."""
        return self.first_order_s if self.simulated_s is None else self.simulated_s


def turn(case: Case, asked: Mapping[Knob, float], simulate: bool = True) -> Turned:
    """The total of a case with its numbers times some factors.

    A UserError if a factor is not above zero, or makes a number larger than a file may say.
    """
    for knob, factor in asked.items():
        if not 0 < factor * knob.now <= max(knob.most, knob.now):
            raise UserError(f"{knob.name} = {factor * knob.now:g}: expected more than 0 and at most {knob.most:g}")
    resolved = case.resolved
    machine = {knob.name: {"times": factor} for knob, factor in asked.items() if knob.subject == "machine"}
    factors = {knob.name: factor for knob, factor in asked.items() if knob.subject == "class"}
    if machine:
        resolved = case.move_to(machine)
    if factors:
        resolved = resolved.scale(factors)
    first_s = case.total_s + first_order_s(case, resolved.costs)
    return Turned(case.total_s, first_s, case.simulated_s(resolved) if simulate else None)
