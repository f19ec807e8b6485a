"""What a tenth of each number is worth: first order from the critical path, and simulated again.

First order takes the path as it is. Each op on it holds up the end for some seconds; priced anew, the op takes another
time alone, and holds it up in proportion. It loses time to what runs beside it, too, in proportion to how long that is.
A simulation knows the rest: another path, links that fill up or empty.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import UserError
from ...costs import Costs
from ...systems.machines import OnMachines
from .case import Case, Floats, same_costs
from .knobs import Knob, knobs, turned

_APART, _LEAST = 0.1, 5e-4
"""First order misses a simulation by so much of what that says, and by so much of the total: the path moved."""

Progress = Callable[[str], None]


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
    """What a total of `total_s` owes to a knob, a tenth of its value either way."""

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
        """Whether simulating says something else than first order."""
        return any(self._apart(side) for side in (self.better, self.worse))

    def _apart(self, side: Side) -> bool:
        if side.simulated_s is None:
            return False
        apart_s = abs(side.simulated_s - side.first_order_s)
        return apart_s > max(_APART * abs(side.simulated_s), _LEAST * self.total_s)

    def to_json(self) -> dict[str, Any]:
        """As plain values; seconds are changes of the total."""
        knob = self.knob
        return {
            "name": knob.name,
            "subject": knob.subject,
            "about": knob.about,
            "value": knob.now,
            "unit": knob.unit,
            "better": vars(self.better),
            "worse": vars(self.worse),
            "elasticity": self.elasticity,
            "path_moves": self.path_moves,
        }


def sensitivities(case: Case, quick: bool, progress: Progress) -> tuple[list[Sensitivity], list[Knob]]:
    """Those of all knobs, the strongest first, and the knobs on which nothing in this case rests.

    `quick` leaves simulating out.
    """
    asked, found = knobs(case), list[Sensitivity]()
    machine = [[knob] for knob in asked if knob.subject == "machine"]
    for some in (*machine, [knob for knob in asked if knob.subject == "class"]):
        for knob, worse in _that_matter(case, some):
            progress(f"{len(found) + 1} of at most {len(asked)} numbers: {knob.name}")
            found.append(_sensitivity(case, knob, worse, quick))
    without = set(asked) - {one.knob for one in found}
    return sorted(found, key=lambda one: -one.size_s), [knob for knob in asked if knob in without]


def sensitivity(case: Case, knob: Knob, quick: bool = False) -> Sensitivity:
    """What the total owes to one knob."""
    return _sensitivity(case, knob, turned(case, [knob], better=False), quick)


def _that_matter(case: Case, some: list[Knob]) -> Iterator[tuple[Knob, OnMachines]]:
    """Those of some knobs that a cost rests on, each turned for the worse: first all are turned, then each half."""
    if not some:
        return
    worse = turned(case, some, better=False)
    if same_costs(case.resolved.costs, worse.costs):
        return
    if len(some) == 1:
        yield some[0], worse
        return
    half = len(some) // 2
    yield from _that_matter(case, some[:half])
    yield from _that_matter(case, some[half:])


def _sensitivity(case: Case, knob: Knob, worse: OnMachines, quick: bool) -> Sensitivity:
    better = turned(case, [knob], better=True)
    sides = _side(case, better, knob.value(True), quick), _side(case, worse, knob.value(False), quick)
    return Sensitivity(knob, *sides, case.total_s)


def _side(case: Case, turned_so: OnMachines, value: float, quick: bool) -> Side:
    simulated = None if quick else case.simulated_s(turned_so) - case.total_s
    return Side(value, first_order_s(case, turned_so.costs), simulated)


def first_order_s(case: Case, costs: Costs) -> float:
    """By how many seconds the path of a case is longer with other costs of the same Program."""
    path, now = case.path, case.resolved.costs
    alone, other = now.uncontended_s, costs.uncontended_s
    factor = np.divide(other, alone, out=np.ones_like(alone), where=alone > 0)
    new_s = np.where(alone > 0, 0.0, other)[path.ops].sum()  # what took no time has none to multiply
    return float(new_s + (path.seconds * (factor[path.ops] - 1)).sum()) + _disturbed_s(case, costs, factor)


def _disturbed_s(case: Case, costs: Costs, factor: Floats) -> float:
    """What ops on the path lose to those beside them, more than now.

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

    Raises:
        UserError: a factor is not above zero, or makes a number larger than a file may say.
    """
    for knob, factor in asked.items():
        if not 0 < factor * knob.now <= max(knob.most, knob.now):
            raise UserError(f"{knob.name} = {factor * knob.now:g}: expected more than 0 and at most {knob.most:g}")
    resolved = case.resolved
    machine = {knob.name: {"times": factor} for knob, factor in asked.items() if knob.subject == "machine"}
    factors = {knob.name: factor for knob, factor in asked.items() if knob.subject == "class"}
    if machine:
        resolved = case.on_machine(machine)
    if factors:
        resolved = resolved.scaled(factors)
    first_s = case.total_s + first_order_s(case, resolved.costs)
    return Turned(case.total_s, first_s, case.simulated_s(resolved) if simulate else None)
