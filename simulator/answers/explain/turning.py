"""A case with several of its numbers turned at once, each by a factor of its own: what sliders ask."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...base.errors import UserError
from .case import Case
from .knobs import Knob
from .sensitivity import first_order_s


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
