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
_POINTS = (np.arange(1000) + 0.5) / 1000  # chances, each of the same part of all
_ENOUGH = 19  # repeats whose least and largest are the 5 % and 95 % quantiles of another one
_FARTHEST = 9.0  # standard deviations from any of them within which all quantiles are


@dataclass(frozen=True)
class Range:
    """Where a number of a run lies: a lognormal's middle and width, times any of `factors`, each as likely as others.

    It is between `least` and `most`.
    """

    middle: float
    width: float = 0.0
    factors: Sequence[float] = (1.0,)
    least: float = 0.0
    most: float = inf

    def ends(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles."""
        low, high = (min(max(self._quantile(share), self.least), self.most) for share in (0.05, 0.95))
        return low, high

    def share_below(self, value: float) -> float:
        """How likely the number is not above a value, which is above 0."""
        if not self.middle or value >= self.most:
            return 1.0
        if value < self.least:
            return 0.0
        return self._share_below(log(value / self.middle))

    @property
    def spread(self) -> float:
        """The standard deviation of ln(number) of a lognormal that has the same two ends, if no limit cuts them."""
        low, high = self._quantile(0.05), self._quantile(0.95)
        return log(high / low) / (2 * Z90) if low else 0.0

    @property
    def _log_factors(self) -> Floats:
        """Of those above zero."""
        factors = np.asarray(self.factors)
        return np.log(factors[factors > 0])

    def _share_below(self, log_factor: float) -> float:
        """How likely the number is not above the middle times this factor."""
        above = log_factor - self._log_factors
        below = float(np.sum(_cumulate(above / self.width) if self.width else above >= 0))
        return 1 - (len(above) - below) / len(self.factors)

    def _quantile(self, share: float) -> float:
        """The value below which this share of all is."""
        factors = self._log_factors
        if not self.width:
            return self.middle * float(np.quantile(self.factors, share, method="hazen"))
        if share <= 1 - len(factors) / len(self.factors):
            return 0.0
        if len(set(self.factors)) == 1:
            return self.middle * self.factors[0] * exp(self.width * NormalDist().inv_cdf(share))
        from scipy.optimize import brentq  # here: it takes long to import

        ends = factors.min() - _FARTHEST * self.width, factors.max() + _FARTHEST * self.width
        return self.middle * exp(brentq(lambda at: self._share_below(at) - share, *ends))


def _cumulate(normal: Floats) -> Floats:
    """The cumulative distribution of a standard normal."""
    from scipy.special import ndtr  # here: it takes long to import

    found: Floats = ndtr(normal)
    return found


def range_of(values: Iterable[float], *more: float) -> Range:
    """Where another run lies, by the values of repeats and `more` widths, of what repeats do not show.

    Many repeats speak for themselves: whatever the distribution, a new value is below the i-th smallest of n with
    probability i / (n + 1), the mean of Beta(i, n - i + 1) (David and Nagaraja, Order Statistics, 2003, section 2.3).
    Few are zero as often as they were, and else a lognormal. Its mean is itself open, and so is its deviation: the
    95 % quantile of a new ln(value) is `mean + t_(n - 1) s sqrt(1 + 1 / n)` with Student's t.
    """
    known = list(values)
    logs = [log(value) for value in known if value > 0]
    if not logs:
        return Range(0.0)
    if len(known) >= _ENOUGH:
        return Range(1.0, hypot(*more), np.quantile(known, _POINTS, method="weibull").tolist())
    factors = [float(value > 0) for value in known] if len(logs) < len(known) else [1.0]
    return Range(exp(fmean(logs)), hypot(_deviation(logs, len(known)), *more), factors)


def range_with_failures(values: Iterable[float], histories: Sequence[History], power: int, *more: float) -> Range:
    """The same of a number that failures multiply by (1 + what they add) to this power: 1 of times, -1 of rates.

    What they add varies far more than the steps, and to one side. So in few repeats both have a range of their own: no
    run is shorter than its own steps take, but for the errors of these.
    """
    known = list(values)
    if not power or len(known) >= _ENOUGH:
        return range_of(known, *more)
    added = [added_by_failures(one) for one in histories]
    without = range_of((value / (1 + each) ** power for value, each in zip(known, added, strict=True)), *more)
    factors = np.outer(without.factors, (1 + _points(range_of(added))) ** power)
    return replace(without, factors=factors.ravel().tolist())


def _points(of: Range) -> Floats:
    """Values of equal chance of few repeats."""
    from scipy.special import ndtri  # here: it takes long to import

    none = 1 - float(np.mean(of.factors))
    some = _POINTS[none < _POINTS]
    found = of.middle * np.exp(of.width * ndtri((some - none) / (1 - none)))
    return np.concatenate([np.zeros(len(_POINTS) - len(some)), found])


@dataclass(frozen=True)
class Certain:
    """What stated times leave no doubt of: the least time of all steps and of one, the most samples and goodput.

    A step's part of the time in which training stands for checkpoints and pauses is in `step_s`.
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
    """What is certain of a run whose step time is stated. Pauses count, and stalls of checkpoints if they are stated.

    What published runs were off is not of these; draws of a stated spread are in, by their quantiles.
    """
    if resolved.step is not None or not resolved.mode.in_step or not all(one.steps for one in histories):
        return Certain()
    stalls_s = [_pauses_and_stalls_s(resolved, one) for one in histories]
    steps_s = [one.breakdown_s.get("compute", 0.0) + stall_s for one, stall_s in zip(histories, stalls_s, strict=True)]
    kept_s = [sum_of(one.breakdown_s, KEPT) for one in histories]
    step_s, _ = range_of(seconds / one.steps for seconds, one in zip(steps_s, histories, strict=True)).ends()
    _, goodput = range_of(kept / (kept + stall) for kept, stall in zip(kept_s, stalls_s, strict=True)).ends()
    steps, samples = min(map(resolved.all_steps, histories)), max(one.samples / one.steps for one in histories)
    return Certain(step_s * steps, step_s, samples / step_s if step_s else inf, min(goodput, 1.0))


def _pauses_and_stalls_s(resolved: ResolvedRun, history: History) -> float:
    """How long training stands in a run at least: for pauses, and for checkpoints whose stall is stated."""
    said, pauses_s = resolved.scenario.checkpoint, history.breakdown_s.get("pause", 0.0)
    return pauses_s + history.counts.get("checkpoints", 0.0) * (said.stall or 0.0 if said is not None else 0.0)


def added_by_failures(history: History) -> float:
    """What failures add to each second that the run takes without them."""
    failed_s = sum_of(history.breakdown_s, OF_FAILURES)
    others_s = history.wall_s - failed_s
    return failed_s / others_s if others_s > _LEAST * history.wall_s else 0.0


def _deviation(values: Sequence[float], repeats: int) -> float:
    """The standard deviation of a normal that has the 95 % quantile of one more value; 0 of a single one."""
    from scipy.special import stdtrit  # here: it takes long to import

    many = len(values)
    if many < 2:
        return 0.0
    return stdev(values) * float(stdtrit(repeats - 1, 0.95)) / Z90 * sqrt(1 + 1 / many)


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
    return log(step.report.interval_high_s / step.report.interval_low_s) / (2 * Z90) * step_share(history)


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


def step_share(history: History) -> float:
    """The share of the time in steps, to which the uncertainty of a step belongs."""
    return sum_of(history.breakdown_s, ("compute", "wait")) / (history.wall_s or 1.0)
