"""How sure the numbers of a run are: what repeats and the step leave open, and what the model has missed in real runs.

All widths are standard deviations of ln(number). `data/validation/run_errors.json` has what published runs were off
beyond repeats and the step; `runcast calibrate run-errors` writes it, and leaves each source out in turn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import exp, hypot, inf, log, sqrt
from statistics import NormalDist, fmean, stdev

import numpy as np

from ...base.arrays import Floats
from ...base.files import read_json
from ...profile import PROVENANCE, Z90
from ...report.report import sum_of
from .history import KEPT, OF_FAILURES, History
from .resolve import ResolvedRun

_QUANTITIES: Mapping[str, Sequence[str]] = {
    "time": ("wall_s", "tokens_per_s", "goodput", "breakdown_s.compute"),
    "failures": ("counts.failures", "mtbf_s"),
}
"""Metrics of the report whose errors are of a kind. A ratio is of the kind of its first one."""

_BY_FAILURES: Mapping[str, int] = {
    "wall_s": 1, "wall_s / steps": 1, "tokens_per_s": -1, "goodput": -1, "breakdown_s.compute / wall_s": -1,
}  # fmt: skip
"""To which power of (1 + what failures add) metrics go."""


def quantity_of(metric: str) -> str:
    """The kind of quantity that a metric is, empty if none was measured: "time" or "failures"."""
    above = metric.partition("/")[0].strip()
    return next((name for name, metrics in _QUANTITIES.items() if above in metrics), "")


def power_of(metric: str) -> int:
    """The power of (1 + what failures add) that a metric of a run with given steps goes with; 0 of others."""
    return _BY_FAILURES.get(metric, 0)


@dataclass(frozen=True)
class RunErrors:
    """What published runs were off beyond what repeats and the step explain, by kind of quantity.

    `without` has the same from the runs of all other sources, by source; `modes` are those of which a run was measured.
    """

    widths: Mapping[str, float] = field(default_factory=dict)
    without: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    modes: frozenset[str] = frozenset()

    def width(self, quantity: str, mode: str, source: str = "") -> float:
        """The width for a quantity of a run in this mode, without the runs of a source; 0 where none was measured."""
        widths = self.without.get(source, self.widths)
        return widths.get(quantity, 0.0) if mode in self.modes else 0.0


@cache
def shipped_run_errors() -> RunErrors:
    """The errors that ship with runcast; none if there is no file."""
    file = files("runcast.data") / "validation" / "run_errors.json"
    if not file.is_file():
        return RunErrors()
    found = read_json(file)
    widths = {name: float(width["value"]) for name, width in found["widths"].items()}
    return RunErrors(widths, found["without"], frozenset(found["modes"]))


_LEAST = 1e-6  # of a run: in less than that it does nothing but fail
_POINTS = 1000  # of equal chance, at which what failures add is taken
_FARTHEST = 9.0  # standard deviations from any of them within which all quantiles are


@dataclass(frozen=True)
class Added:
    """What failures add to each second that a run takes without them: a lognormal's middle and width.

    Where some repeats had no failure (`has_none`) it is a normal's, with a deviation of `width` times the middle, and
    zero where that is below zero.
    """

    middle: float
    width: float
    has_none: bool = False

    def at(self, normal: Floats) -> Floats:
        """The seconds that are added where a standard normal has these values."""
        shift = self.width * normal
        return np.maximum(self.middle * (1 + shift), 0.0) if self.has_none else self.middle * np.exp(shift)

    @property
    def points(self) -> Floats:
        """Values of equal chance."""
        from scipy.special import ndtri  # here: it takes long to import

        return self.at(ndtri((np.arange(_POINTS) + 0.5) / _POINTS))


@dataclass(frozen=True)
class Range:
    """Where a number of a run lies: a lognormal's middle and width, times (1 + `added`) to this power.

    It is between `least` and `most`. What failures add has a deviation of its own, as it is never below zero: no run is
    shorter than its own steps take, but for the errors of these.
    """

    middle: float
    width: float = 0.0
    added: Added | None = None
    power: int = 0
    least: float = 0.0
    most: float = inf

    def ends(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles."""
        low, high = (min(max(self._quantile(normal), self.least), self.most) for normal in (-Z90, Z90))
        return low, high

    def share_below(self, value: float) -> float:
        """How likely the number is not above a value, which is above 0."""
        if not self.middle or value >= self.most:
            return 1.0
        if value < self.least:
            return 0.0
        at = log(value / self.middle) - self._log_factors
        return float(np.mean(_cumulate(at / self.width) if self.width else at >= 0))

    @property
    def spread(self) -> float:
        """The standard deviation of ln(number) of a lognormal that has the same two ends, if no limit cuts them."""
        low, high = self._quantile(-Z90), self._quantile(Z90)
        return log(high / low) / (2 * Z90) if low else 0.0

    @property
    def _log_factors(self) -> Floats:
        return np.zeros(1) if self.added is None else self.power * np.log1p(self.added.points)

    def _quantile(self, normal: float) -> float:
        """The quantile of a standard normal's value."""
        if self.added is None or not self.middle:
            return self.middle * exp(normal * self.width)
        if not self.width:
            return self.middle * float((1 + self.added.at(np.array(self.power * normal))) ** self.power)
        from scipy.optimize import brentq  # here: it takes long to import

        factors, share = self._log_factors, NormalDist().cdf(normal)
        reach = _FARTHEST * self.width

        def above(log_factor: float) -> float:
            return float(np.mean(_cumulate((log_factor - factors) / self.width))) - share

        return self.middle * exp(brentq(above, factors.min() - reach, factors.max() + reach))


def _cumulate(normal: Floats) -> Floats:
    """The cumulative distribution of a standard normal."""
    from scipy.special import ndtr  # here: it takes long to import

    found: Floats = ndtr(normal)
    return found


def range_of(values: Iterable[float], *more: float) -> Range:
    """Where another run lies, by the values of repeats and `more` widths, of what repeats do not show.

    The mean of few repeats is itself open, and so is their deviation: the 95 % quantile of a new value is
    `mean + t_(n - 1) s sqrt(1 + 1 / n)` with Student's t. All is of ln(value); of the values if some of them are zero.
    """
    known = list(values)
    if not any(known):
        return Range(0.0)
    are_logs = all(value > 0 for value in known)
    middle = exp(fmean(map(log, known))) if are_logs else fmean(known)
    deviation = _deviation(list(map(log, known)) if are_logs else [value / middle for value in known])
    return Range(middle, hypot(deviation, *more))


def range_with_failures(values: Iterable[float], histories: Sequence[History], power: int, *more: float) -> Range:
    """The same of a number that failures multiply by (1 + what they add) to this power: 1 of times, -1 of rates.

    What they add varies far more than the steps, and to one side. So both have a range of their own.
    """
    if not power:
        return range_of(values, *more)
    added = [added_by_failures(one) for one in histories]
    without = [value / (1 + each) ** power for value, each in zip(values, added, strict=True)]
    found = range_of(without, *more)
    of_failures = range_of(added)
    if not of_failures.width:  # always the same
        return replace(found, middle=found.middle * (1 + of_failures.middle) ** power)
    return replace(found, added=Added(of_failures.middle, of_failures.width, not all(added)), power=power)


@dataclass(frozen=True)
class Certain:
    """What stated times leave no doubt of: the least time of all steps and of one, the most samples and goodput.

    A step's part of the time in which training stands for checkpoints is in `step_s`.
    """

    wall_s: float = 0.0
    step_s: float = 0.0
    samples_per_s: float = inf
    goodput: float = 1.0

    def steps_in(self, seconds: float) -> float:
        """The most steps in so long."""
        return seconds / self.step_s if self.step_s else inf

    def limits(self, metric: str) -> tuple[float, float]:
        """The least and the most that a metric of the report can be."""
        least = {"wall_s": self.wall_s, "wall_s / steps": self.step_s}
        most = {
            "tokens_per_s": self.samples_per_s,
            "goodput": self.goodput,
            "breakdown_s.compute / wall_s": self.goodput,
        }
        return least.get(metric, 0.0), most.get(metric, inf)


def certain_of(resolved: ResolvedRun, histories: Sequence[History]) -> Certain:
    """What is certain of a run whose step time is stated, and the stall of its checkpoints if that is stated, too.

    What published runs were off is not of these; draws of a stated spread are in, by their quantiles.
    """
    if resolved.step is not None or not resolved.mode.in_step or not all(one.steps for one in histories):
        return Certain()
    stalls_s = [_stated_stalls_s(resolved, one) for one in histories]
    steps_s = [_own_s(resolved, one, "compute") + stall_s for one, stall_s in zip(histories, stalls_s, strict=True)]
    kept_s = [sum_of(one.breakdown_s, KEPT) for one in histories]
    step_s, _ = range_of(seconds / one.steps for seconds, one in zip(steps_s, histories, strict=True)).ends()
    _, goodput = range_of(kept / (kept + stall) for kept, stall in zip(kept_s, stalls_s, strict=True)).ends()
    steps, samples = min(map(resolved.all_steps, histories)), max(one.samples / one.steps for one in histories)
    return Certain(step_s * steps, step_s, samples / step_s if step_s else inf, min(goodput, 1.0))


def _stated_stalls_s(resolved: ResolvedRun, history: History) -> float:
    """How long training stands for the checkpoints of a run at least; 0 where their stall is not stated."""
    said = resolved.scenario.checkpoint
    return history.counts.get("checkpoints", 0.0) * (said.stall or 0.0) if said is not None else 0.0


def added_by_failures(history: History) -> float:
    """What failures add to each second that the run takes without them."""
    failed_s = sum_of(history.breakdown_s, OF_FAILURES)
    others_s = history.wall_s - failed_s
    return failed_s / others_s if others_s > _LEAST * history.wall_s else 0.0


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation of a normal that has the 95 % quantile of one more value; 0 of a single one."""
    from scipy.special import stdtrit  # here: it takes long to import

    many = len(values)
    if many < 2:
        return 0.0
    return stdev(values) * float(stdtrit(many - 1, 0.95)) / Z90 * sqrt(1 + 1 / many)


@dataclass(frozen=True)
class Priced:
    """A share of the time that something takes which has a price: where the price is from, and what it leaves open.

    `width` is the standard deviation of ln(time of the run).
    """

    origin: str
    share: float
    width: float


def price_width(resolved: ResolvedRun, history: History) -> float:
    """What prices leave open of the throughput: of a predicted step, of exchanges, of encoding and decoding.

    A run whose steps take longer has as many more failures, so prices are taken for their share of the other time.
    """
    of_all = hypot(_step_width(resolved, history), *(one.width for one in priced_shares(resolved, history)))
    return of_all * (1 + added_by_failures(history))


def _step_width(resolved: ResolvedRun, history: History) -> float:
    if (step := resolved.step) is None:
        return 0.0
    return log(step.report.interval_high_s / step.report.interval_low_s) / (2 * Z90) * step_share(resolved, history)


def priced_shares(resolved: ResolvedRun, history: History) -> list[Priced]:
    """What has a price of its own beside the step: exchanges, encoding, decoding."""
    return [*_exchanges(resolved, history), *_coding(resolved, history)] if history.wall_s else []


def _exchanges(resolved: ResolvedRun, history: History) -> Iterator[Priced]:
    """Those of steps that are kept. What an exchange takes longer is not hidden if it is not hidden now."""
    for one in resolved.exposed:
        share, more = (
            history.steps * seconds / history.wall_s for seconds in (one.seconds, one.longer_s - one.seconds)
        )
        yield Priced(PROVENANCE[one.price.provenance], share, more)


def _coding(resolved: ResolvedRun, history: History) -> Iterator[Priced]:
    share, message = history.breakdown_s.get("encode", 0.0) / history.wall_s, resolved.message
    if not (total_s := message.encode_s + message.decode_s):  # masks of clients take what is stated
        return
    for origin, seconds, spread in (
        (message.encode_from, message.encode_s, message.encode_spread),
        (message.decode_from, message.decode_s, message.decode_spread),
    ):
        part = share * seconds / total_s
        yield Priced(origin, part, spread * part)


def step_share(resolved: ResolvedRun, history: History) -> float:
    """The share of the time in steps, to which the uncertainty of a step belongs; local ones exchange inside groups."""
    return _own_s(resolved, history, "compute", "wait") / (history.wall_s or 1.0)


def _own_s(resolved: ResolvedRun, history: History, *causes: str) -> float:
    """Seconds by cause without exchanges inside groups, which are in those of local steps."""
    inside_s = history.steps * sum(one.seconds for one in resolved.exposed if one.cause == "compute")
    return max(sum_of(history.breakdown_s, causes) - inside_s, 0.0)
