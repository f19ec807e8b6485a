"""The error budget of a prediction: which errors its time may be off by, and which of them other predictions share.

What two predictions share cancels in their ratio, so their difference is surer than each of them. The errors of a time
are those of the fit of software and devices, of what is new, of the site, of experts' load and of kernels' spreads.
What is left is each configuration's own, the more alike the more two of them spend their time on the same phases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, hypot, log, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ..profile import Z90
from .factors import Fit, shipped_fit

_WRITTEN = 1e-4
"""The least error that a report writes."""


@dataclass(frozen=True)
class Budget:
    """Standard deviations of ln(time), to first order.

    `shared` are errors by name, with signs: equal names are the same error in all predictions. What stands before ": "
    is its kind. `own` is the error of this configuration. `common` is what of that another one has, too, which spends
    the same shares of its time on the same phases, as `shares` has them.
    """

    shared: Mapping[str, float]
    own: float
    common: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def deviation(self) -> float:
        """Of all errors together."""
        return hypot(self.own, *self.shared.values())

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
        """What `to_json` wrote; pydantic's ValidationError if it is something else."""
        return TypeAdapter(cls).validate_python(said)


KINDS = {
    "own": "this configuration",
    "site": "your site",
    "fit": "what the fit left open",
    "new software": "new software",
    "new device": "a new device",
    "new network": "a new network",
    "new architecture": "a new architecture",
    "data sheet": "a device known by its data sheet",
    "size": "the number of GPUs",
    "routing": "the load of experts",
    "ops": "numbers of single kernels and exchanges",
    "own runs": "what your runs left open",
    "stated": "what files state",
}
"""What each kind of error is of."""
_SHOWN = 0.1
"""The share of a reach from which a kind is named."""


def budget_line(budget: Budget) -> str:
    """What makes an interval as wide as it is: the 90 % reach of each kind of error that counts."""
    reach = {kind: Z90 * deviation for kind, deviation in budget.by_kind().items()}
    least = _SHOWN * Z90 * budget.deviation
    said = ", ".join(f"{KINDS[kind]} {size:.0%}" for kind, size in reach.items() if size >= least)
    return f"the interval of {Z90 * budget.deviation:.0%} either way adds up, in squares, from {said}"


class Difference(NamedTuple):
    """The time of B over that of A: the prediction, its 90 % interval, and the probability that B is faster."""

    ratio: float
    low: float
    high: float
    faster: float

    @property
    def saved(self) -> tuple[float, float]:
        """The share of A's time that B saves, at least and at most (90 %)."""
        return 1 - self.high, 1 - self.low


def difference(a_s: float, b_s: float, a: Budget, b: Budget, fit: Fit | None = None) -> Difference:
    """How the times of two predictions compare; both are above zero seconds."""
    ratio, deviation = b_s / a_s, apart(a, b, fit or shipped_fit())
    reach = exp(Z90 * deviation)
    faster = NormalDist().cdf(-log(ratio) / deviation) if deviation else float(ratio < 1)
    return Difference(ratio, ratio / reach, ratio * reach, faster)


def apart(a: Budget, b: Budget, fit: Fit) -> float:
    """The standard deviation of ln(time of B / time of A)."""
    shared = (b.shared.get(name, 0.0) - a.shared.get(name, 0.0) for name in {**a.shared, **b.shared})
    own = a.own**2 + b.own**2 - 2 * a.common * b.common * likeness(a, b, fit)
    return hypot(sqrt(max(own, 0.0)), *shared)


def likeness(a: Budget, b: Budget, fit: Fit) -> float:
    """How alike two configurations are: exp(-d / fit.alike) where they spend a share d of their time otherwise."""
    moved = sum(abs(a.shares.get(name, 0.0) - b.shares.get(name, 0.0)) for name in {**a.shares, **b.shares}) / 2
    return exp(-moved / fit.alike) if fit.alike else float(not moved)
