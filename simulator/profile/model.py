"""Fitted cost models: from features to seconds, with a spread and where the answer comes from.

Nothing is predicted silently outside the range that was measured: such an answer is marked `extrapolated`, and its
spread grows with every doubling beyond, by what extrapolating was seen to cost when the model was fitted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base.arrays import Floats
from ..base.schema import HUGE, MOST, count, number
from ..hardware import Limits
from .forms import BUS_FACTOR, ZERO_BASED, Columns, CostClass, Curve, cost_class
from .parameters import MEASURED_ON, PROVENANCE

Z90 = NormalDist().inv_cdf(0.95)
"""A 90 % interval reaches this many standard deviations of log(seconds) to both sides."""

_OTHER_CHIP = 0.1
"""Spread that kernels add per doubling of the chip's rates: 5.3 % became 12 % from H100 to B200 (docs/profiles.md)."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Seconds of each op, their relative standard deviation, and an index into `PROVENANCE`."""

    seconds: Floats
    spread: Floats
    provenance: NDArray[np.int64]

    def interval(self) -> tuple[Floats, Floats]:
        """Seconds between which nine of ten measurements should lie."""
        reach = np.exp(Z90 * self.spread)
        return self.seconds / reach, self.seconds * reach

    def labels(self) -> list[str]:
        """The provenance of each answer, in words."""
        return [PROVENANCE[index] for index in self.provenance]


Number = Annotated[float, number(0, HUGE)]
Rows = Annotated[int, count(0, 10**12)]
Spread = Annotated[float, number(0, 5)]


@dataclass(frozen=True)
class Errors:
    """|predicted/measured - 1| of rows that a fit had not seen, as fractions; `bias` is the median with its sign."""

    rows: Rows
    median: Number
    p90: Number
    bias: Annotated[float, number(-1, HUGE)]


@dataclass(frozen=True)
class Band(Errors):
    """The errors of one band of sizes, from `size` up to that of the next band, and the spread to state in it."""

    size: Number
    spread: Spread


@dataclass(frozen=True, eq=False)
class Model:
    """One cost class as one library runs it on one device.

    `range` holds the smallest and largest measured value of each axis of the class, `growth` what a doubling beyond
    them adds to the spread. `curves` are measured seconds over bytes by number of GPUs; `limits` are those of the
    device that was measured. `left_out` says how `held_out` was found. `wider` is the spread that was added, in
    squares, because a sibling device borrows it. `network` is the kind of network between nodes that was measured.
    """

    kind: str
    library: str
    coefficients: Mapping[str, Number]
    range: Mapping[str, tuple[Number, Number]]
    growth: Mapping[str, Spread]
    fitted: Errors
    held_out: Errors
    groups: Rows
    bands: Annotated[tuple[Band, ...], Field(min_length=1)]
    limits: Limits
    source: str
    curves: Mapping[Annotated[float, Field(ge=2, le=MOST, multiple_of=1)], Curve] = field(default_factory=dict)
    wider: Spread = 0.0
    left_out: str = "nothing"
    network: str = MEASURED_ON

    @property
    def cost_class(self) -> CostClass:
        """The cost class of the model."""
        found = cost_class(self.kind)
        assert found is not None, self.kind
        return found

    @property
    def parameters(self) -> int:
        """The number of fitted numbers, points of curves included."""
        return len(self.coefficients) + sum(len(curve.bytes) for curve in self.curves.values())

    def estimate(self, features: Mapping[str, object], limits: Limits | None = None) -> Estimate:
        """The cost of ops with these features, on the measured device or on one with other limits.

        Raises:
            UserError: a feature is missing or impossible.
        """
        here = self.limits if limits is None else limits
        x = self.cost_class.columns(features, here)
        growth = self.growth_beyond(x)
        elsewhere = max(self.wider, self._foreign(here))
        outside = (growth > 0) | (elsewhere > 0)
        # a model with no more rows than coefficients only repeats what was measured
        label = PROVENANCE.index("measured" if self.fitted.rows <= len(self.coefficients) else "fitted")
        on_curve = (x["gpus"][:, None] == self._curves_gpus).any(axis=1) if self.curves else np.False_
        inside = np.where(on_curve, PROVENANCE.index("interpolated"), label)
        return Estimate(
            seconds=self.seconds(x, here),
            spread=np.hypot(self._spread(x) + growth, elsewhere),
            provenance=np.where(outside, PROVENANCE.index("extrapolated"), inside),
        )

    def seconds(self, x: Columns, limits: Limits) -> Floats:
        """The formula, drawn onto the measured curves where there are some."""
        by_form = self.cost_class.form.seconds(x, limits, self.coefficients)
        return by_form * self._curve_over_form(x) if self.curves else by_form

    def doublings(self, x: Columns) -> dict[str, Floats]:
        """The distance of each axis from its measured range in doublings; rounding errors count as inside.

        An axis that may be zero has no doublings: outside counts as one.
        """
        far = {}
        for axis, value_of in self.cost_class.axes.items():
            low, high = self._ends(axis, x)
            value = value_of(x)
            if axis in ZERO_BASED:
                far[axis] = np.where((value < low - 1e-9) | (value > high + 1e-9), 1.0, 0.0)
                continue
            with np.errstate(over="ignore", divide="ignore"):  # what is infinitely far is outside, too
                doublings = np.maximum(np.log2(low / value), np.log2(value / high))
            far[axis] = np.where(doublings > 1e-6, doublings, 0.0)
        return far

    def _ends(self, axis: str, x: Columns) -> tuple[Floats | float, Floats | float]:
        """The measured range of an axis; that of sizes is the one of the curves in use."""
        if axis != "bytes" or not self.curves:
            return self.range[axis]
        below, above, _ = self._between(x)
        ends = self._curve_ends
        return np.maximum(ends[below, 0], ends[above, 0]), np.minimum(ends[below, 1], ends[above, 1])

    def growth_beyond(self, x: Columns) -> Floats:
        """The spread that is added outside the measured range; 0 inside."""
        if self._is_inside(x):
            return np.zeros(len(next(iter(x.values()))))
        far = self.doublings(x)
        total: Floats = np.sum([self.growth[axis] * doublings for axis, doublings in far.items()], axis=0)
        return total

    def _is_inside(self, x: Columns) -> bool:
        """Whether all ops lie in the measured range, to the last digit."""
        for axis, value_of in self.cost_class.axes.items():
            (low, high), value = self._ends(axis, x), value_of(x)
            if not ((low <= value) & (value <= high)).all():
                return False
        return True

    def _foreign(self, limits: Limits) -> float:
        """The spread that is added on another chip than the measured one; line rates are separate axes."""
        pairs = zip(self.cost_class.rates(self.limits), self.cost_class.rates(limits), strict=True)
        far = max((abs(math.log2(here / there)) for here, there in pairs), default=0.0)
        return _OTHER_CHIP * far if far > 1e-6 else 0.0

    def carry_over(self, wider: float) -> "Model":
        """The model for a sibling device, with a wider spread."""
        return replace(self, wider=float(np.hypot(self.wider, wider)))

    def be_sure(self) -> "Model":
        """The same model without any spread, outside its range too."""
        bands = tuple(replace(band, spread=0.0) for band in self.bands)
        return replace(self, bands=bands, growth=dict.fromkeys(self.growth, 0.0), wider=0.0)

    def convert(self, kind: str) -> "Model | None":
        """The model for another class with the same form, such as another dtype; None if the forms differ."""
        other = cost_class(kind)
        same = other is not None and other.form.name == self.cost_class.form.name
        return replace(self, kind=kind) if same else None

    def to_json(self) -> list[Any]:
        """Everything that an estimate depends on, for hashing."""
        curves = [(n, curve.bytes.tolist(), curve.seconds.tolist()) for n, curve in sorted(self.curves.items())]
        spreads = [(band.size, band.spread) for band in self.bands]
        numbers = [sorted(of.items()) for of in (self.coefficients, self.range, self.growth)]
        known = [numbers, curves, spreads, self.wider, vars(self.limits), self.fitted.rows]
        return known if self.network == MEASURED_ON else [*known, self.network]

    def _spread(self, x: Columns) -> Floats:
        size = self.cost_class.axes[self.cost_class.size](x)
        sizes, spreads = self._band_columns
        return spreads[np.maximum(np.searchsorted(sizes, size, side="right") - 1, 0)]

    @cached_property
    def _band_columns(self) -> tuple[Floats, Floats]:
        """The size at which each band begins, and its spread."""
        return np.array([band.size for band in self.bands]), np.array([band.spread for band in self.bands])

    @cached_property
    def _curves_gpus(self) -> Floats:
        """The numbers of GPUs that have a curve, rising."""
        return np.array(sorted(self.curves), np.float64)

    @cached_property
    def _curve_ends(self) -> Floats:
        """The smallest and the largest size of each curve, by number of GPUs."""
        return np.array([self.curves[gpus].bytes[[0, -1]] for gpus in sorted(self.curves)])

    def _curve_over_form(self, x: Columns) -> Floats:
        """The ratio of the measured curves to the formula, at equal bytes through the busiest link.

        Between two measured numbers of GPUs the logarithms are mixed by log n; beyond them the nearest one stands.
        """
        below, above, share = self._between(x)
        logs, rows = np.zeros((len(self.curves), len(share))), np.arange(len(share))
        for curve in {*below.tolist(), *above.tolist()}:
            logs[curve] = np.log(self._ratio(x, float(self._curves_gpus[curve])))
        return np.exp(logs[below, rows] * (1 - share) + logs[above, rows] * share)

    def _between(self, x: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """For each op the positions of the two curves around it, and its fraction towards the upper one."""
        known = np.log2(self._curves_gpus)
        at = np.interp(np.log2(x["gpus"]), known, np.arange(len(known)))
        below = np.floor(at).astype(np.int64)
        return below, np.minimum(np.ceil(at).astype(np.int64), len(known) - 1), at - below

    def _ratio(self, x: Columns, gpus: float) -> Floats:
        """Curve over form at equal bytes through the busiest link; beyond the last size never faster than the form.

        A curve's own tail is right where the last octave ran at full rate, and absurd where it did not.
        """
        factor, curve = BUS_FACTOR[self.kind], self.curves[gpus]
        size = x["bytes"] * factor(x["gpus"]) / factor(np.full_like(x["gpus"], gpus))
        ratio: Floats = curve(size) / self._measured_form(size, gpus)
        last = np.minimum(size, curve.bytes[-1])
        if (size > last).any():
            ratio = np.maximum(ratio, curve(last) / self._measured_form(last, gpus))
        return ratio

    def _measured_form(self, size: Floats, gpus: float) -> Floats:
        """The formula on the device that was measured."""
        assert self.cost_class.filled is not None
        line, rate = self.cost_class.filled
        x = {"bytes": size, "gpus": np.full_like(size, gpus), line: np.full_like(size, rate(self.limits))}
        return self.cost_class.form.seconds(x, self.limits, self.coefficients)


@dataclass(frozen=True)
class Ratio:
    """A class that nobody measured, as so many times another one's seconds: `factor`, and how unsure that is.

    The other class is asked with no feature below its value in `least`.
    """

    like: str
    factor: Annotated[float, number(1e-3, 1e3)]
    spread: Spread
    source: str
    least: Mapping[str, Number] = field(default_factory=dict)

    def features_of_like(self, features: Mapping[str, object]) -> Mapping[str, object]:
        """The features by which the other class is asked: no node without a GPU."""
        raised = {name: np.maximum(np.asarray(features[name], np.float64), low) for name, low in self.least.items()}
        asked = {**features, **raised}
        if "nodes" in raised and "gpus" in asked:
            asked["gpus"] = np.maximum(np.asarray(asked["gpus"], np.float64), raised["nodes"])
        return asked

    def apply(self, estimate: Estimate) -> Estimate:
        """The estimate of the other class, scaled; the label says that it was assumed, or still is extrapolated."""
        beyond = PROVENANCE.index("extrapolated")
        return Estimate(
            seconds=estimate.seconds * self.factor,
            spread=np.hypot(estimate.spread, self.spread),
            provenance=np.where(estimate.provenance == beyond, beyond, PROVENANCE.index("assumed")),
        )

    def be_sure(self) -> "Ratio":
        """The same ratio without a spread; that of the other class stays."""
        return replace(self, spread=0.0)

    def to_json(self) -> list[Any]:
        """Everything that an estimate depends on, for hashing."""
        return [self.like, self.factor, self.spread, sorted(self.least.items())]


@dataclass(frozen=True)
class Stated:
    """A class of calls that nobody measured: so many seconds per item of a call, and how unsure that is."""

    seconds: Annotated[float, number(1e-12, 1e3)]
    spread: Spread
    source: str

    def estimate(self, features: Mapping[str, object]) -> Estimate:
        """The seconds of calls with so many items each; the label says that they were assumed."""
        count = np.atleast_1d(np.asarray(features["count"], np.float64))
        assumed = np.full(len(count), PROVENANCE.index("assumed"))
        return Estimate(self.seconds * count, np.full(len(count), self.spread), assumed)

    def be_sure(self) -> "Stated":
        """The same seconds without a spread."""
        return replace(self, spread=0.0)

    def to_json(self) -> list[Any]:
        """Everything that an estimate depends on, for hashing."""
        return [self.seconds, self.spread]


Entry = Model | Ratio | Stated
"""What a profile knows of a cost class with one library."""


def errors_of(log_ratio: Floats) -> Errors:
    """The errors of log(predicted/measured); zeros where there is no row."""
    if not len(log_ratio):
        return Errors(0, 0.0, 0.0, 0.0)
    signed = np.expm1(log_ratio)
    off = np.abs(signed)
    return Errors(len(off), *(float(v) for v in (np.median(off), np.quantile(off, 0.9), np.median(signed))))
