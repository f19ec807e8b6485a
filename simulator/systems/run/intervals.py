"""How sure the numbers of a run are: what repeats and the step leave open, and what the model has missed in real runs.

All widths are standard deviations of ln(number). `data/validation/run_errors.json` has what published runs were off
beyond repeats and the step; `runcast calibrate run-errors` writes it, and leaves each source out in turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import exp, hypot, log
from statistics import fmean, stdev

from ...base.files import read_json
from ...profile import Z90
from .history import History
from .resolve import ResolvedRun

_QUANTITIES: Mapping[str, Sequence[str]] = {
    "time": ("wall_s", "tokens_per_s", "goodput", "breakdown_s.compute"),
    "failures": ("counts.failures", "mtbf_s"),
}
"""Metrics of the report whose errors are of a kind. A ratio is of the kind of its first one."""

SHARES = ("goodput", "breakdown_s.compute / wall_s")
"""Metrics that are at most 1."""


def quantity_of(metric: str) -> str:
    """The kind of quantity that a metric is, empty if none was measured: "time" or "failures"."""
    above = metric.partition("/")[0].strip()
    return next((name for name, metrics in _QUANTITIES.items() if above in metrics), "")


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


def width_of(values: Iterable[float]) -> float:
    """The width of repeats; relative to their mean if some are zero, and 0 if all are or there is one."""
    known = list(values)
    if len(known) < 2 or not any(known):
        return 0.0
    return stdev(map(log, known)) if all(value > 0 for value in known) else stdev(known) / abs(fmean(known))


def speed_width(resolved: ResolvedRun, histories: Sequence[History]) -> float:
    """What repeats and a predicted step leave open of the throughput."""
    of_step, speeds = 0.0, (one.samples / one.wall_s for one in histories if one.wall_s)
    if (step := resolved.step) is not None:
        of_step = log(step.report.interval_high_s / step.report.interval_low_s) / (2 * Z90)
    return hypot(width_of(speeds), of_step * step_share(histories[0]))


def step_share(history: History) -> float:
    """The share of the time in steps, to which the uncertainty of a step belongs."""
    return sum(history.breakdown_s.get(cause, 0.0) for cause in ("compute", "wait")) / (history.wall_s or 1.0)


def interval(value: float, width: float, most: float = float("inf")) -> tuple[float, float]:
    """The 5 % and 95 % quantiles of a number of this width, which is at most `most`."""
    factor = exp(Z90 * width)
    return value / factor, max(min(value * factor, most), value)
