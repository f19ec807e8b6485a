"""The error budget of a prediction: the errors of its time, and which of them other predictions share.

Shared errors cancel in the ratio of two predictions, so a difference is surer than each of them. Shared are the errors
of fitted software and devices, of new ones, of the site, of the load of experts, and of single kernels' numbers. The
rest is the configuration's own error. Two configurations have more of it in common if they spend their time on the same
phases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, hypot, log, sqrt
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter

from ..base.schema import number
from ..profile import Z90
from .factors import Fit, shipped_fit

_WRITTEN = 1e-4
"""The least error that a report writes."""

_LARGEST = 5.0
"""The largest error of one cause, as of a parameter in a file: e**5 is 150 times."""


@dataclass(frozen=True)
class Budget:
    """Standard deviations of ln(time), to first order.

    `shared` are errors by name, with signs: equal names are the same error in all predictions. The part before ": " is
    the kind of an error. `own` is the error of this configuration. `common` is the part of it that a configuration has,
    too, that spends the same `shares` of its time on each phase.
    """

    shared: Mapping[str, Annotated[float, number(-_LARGEST, _LARGEST)]]
    own: Annotated[float, number(0, _LARGEST)]
    common: Annotated[float, number(0, _LARGEST)] = 0.0
    shares: Mapping[str, Annotated[float, number(-1, 1)]] = field(default_factory=dict)

    @property
    def deviation(self) -> float:
        """The standard deviation of ln(time), of all errors together."""
        return hypot(self.own, *self.shared.values())

    def add_own(self, size: float) -> "Budget":
        """With one more error of the configuration, which it shares with those that spend time alike."""
        return replace(self, own=hypot(self.own, size), common=hypot(self.common, size))

    def by_kind(self) -> dict[str, float]:
        """The deviation of each kind of error, largest first; the squares add up to that of `deviation`."""
        squares: dict[str, float] = {"own": self.own**2}
        for name, size in self.shared.items():
            kind = name.partition(": ")[0]
            squares[kind] = squares.get(kind, 0.0) + size**2
        return {kind: sqrt(square) for kind, square in sorted(squares.items(), key=lambda one: -one[1]) if square}

    def to_json(self) -> dict[str, Any]:
        """The budget as plain values."""
        tables = {"shared": self.shared, "shares": self.shares}
        return vars(self) | {
            part: {name: float(f"{size:.4g}") for name, size in table.items() if abs(size) >= _WRITTEN}
            for part, table in tables.items()
        }

    @classmethod
    def from_json(cls, said: Any) -> "Budget":
        """Read a budget that `to_json` wrote; pydantic's ValidationError if it is something else."""
        return _reader().validate_python(said)


@cache
def _reader() -> TypeAdapter[Budget]:
    """Slow to make, and a sweep reads a budget for each point."""
    return TypeAdapter(Budget)


KINDS = {
    "own": "this configuration",
    "site": "your site",
    "fit": "fitted parameters",
    "new software": "new software",
    "new device": "a new device",
    "new network": "a new network",
    "new architecture": "a new architecture",
    "data sheet": "a device known by its data sheet",
    "size": "the number of GPUs",
    "routing": "the uneven load of experts",
    "ops": "spreads of single kernels and exchanges",
    "own runs": "parameters fitted to your runs",
    "stated": "spreads stated in files",
}
"""Kinds of errors, by key of a report, in words."""
_SHOWN = 0.1
"""The least share of the whole interval that `budget_line` names."""


def budget_line(budget: Budget) -> str:
    """The half width of a 90 % interval of ln(time), and that of each kind of error that counts."""
    whole = Z90 * budget.deviation
    kinds = {kind: Z90 * deviation for kind, deviation in budget.by_kind().items()}
    named = ", ".join(f"{KINDS[kind]} {width:.0%}" for kind, width in kinds.items() if width >= _SHOWN * whole)
    return f"90 % interval of about ±{whole:.0%}, the root of the sum of squares of: {named}"


class Difference(NamedTuple):
    """The time of B over that of A: the prediction, its 90 % interval, and the probability that B is faster."""

    ratio: float
    low: float
    high: float
    faster_probability: float

    @property
    def saving_interval(self) -> tuple[float, float]:
        """The 90 % interval of the share of A's time that B saves."""
        return 1 - self.high, 1 - self.low


def difference(a_s: float, b_s: float, a: Budget, b: Budget, fit: Fit | None = None) -> Difference:
    """The ratio of two predicted times and how sure it is; both are above zero seconds.

    `fit` says how alike two configurations are (default: the shipped one).
    """
    ratio, deviation = b_s / a_s, ratio_deviation(a, b, fit or shipped_fit())
    reach = exp(Z90 * deviation)
    probability = NormalDist().cdf(-log(ratio) / deviation) if deviation else float(ratio < 1)
    return Difference(ratio, ratio / reach, ratio * reach, probability)


def ratio_deviation(a: Budget, b: Budget, fit: Fit) -> float:
    """The standard deviation of ln(time of B / time of A)."""
    shared = (b.shared.get(name, 0.0) - a.shared.get(name, 0.0) for name in {**a.shared, **b.shared})
    own = a.own**2 + b.own**2 - 2 * a.common * b.common * likeness(a, b, fit)
    return hypot(sqrt(max(own, 0.0)), *shared)


def likeness(a: Budget, b: Budget, fit: Fit) -> float:
    """The share of their own errors that two configurations have in common, from 0 to 1.

    It is exp(-d / fit.alike) if they spend a share d of their time on different phases.
    """
    moved = sum(abs(a.shares.get(name, 0.0) - b.shares.get(name, 0.0)) for name in {**a.shares, **b.shares}) / 2
    return exp(-moved / fit.alike) if fit.alike else float(not moved)
