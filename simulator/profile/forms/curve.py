"""Measured curves: seconds over message size, monotone, kept on a grid of our own and interpolated in log-log.

PCHIP never leaves the interval between two neighbours (Fritsch and Butland, SIAM J. Sci. Comput. 5, 1984), so a curve
through rising points rises. It is written out here because `scipy.interpolate` takes longer to import than a step takes
to predict; a test compares the two. Below the first size a message costs what that one does. Above the last size the
rate is that of the last octave; that is no knowledge, and whoever asks is told (see `profile.model`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import PlainValidator

from ...base.arrays import Floats


def _rising(values: Any, strictly: bool = False) -> Floats:
    good = isinstance(values, list) and len(values) > 1 and all(type(value) in (int, float) for value in values)
    array = np.array(values if good else [np.nan, np.nan], np.float64)
    steps = np.diff(array)
    if not (np.isfinite(array).all() and array[0] > 0 and (steps > 0 if strictly else steps >= 0).all()):
        raise ValueError("expected at least two rising numbers greater than zero")
    return array


@dataclass(frozen=True, eq=False)
class Curve:
    """Seconds at sizes in bytes; sizes rise, and seconds never fall."""

    bytes: Annotated[Floats, PlainValidator(lambda values: _rising(values, strictly=True))]
    seconds: Annotated[Floats, PlainValidator(_rising)]

    @classmethod
    def fit(cls, bytes_: Floats, seconds: Floats, points: int | None = None) -> "Curve":
        """The curve through measured points (medians where a size repeats), on `points` sizes in even ratios.

        By default half again as many as were measured, so that little is lost between grids.
        """
        from scipy.optimize import isotonic_regression

        sizes, at = np.unique(bytes_, return_inverse=True)
        medians = np.array([np.median(np.log(seconds[at == i])) for i in range(len(sizes))])
        rising = cls(sizes.astype(np.float64), np.exp(isotonic_regression(medians).x))
        grid = np.geomspace(sizes[0], sizes[-1], points or -(-3 * len(sizes) // 2))
        grid[[0, -1]] = sizes[[0, -1]]
        return cls(grid, np.maximum.accumulate(rising(grid)))

    def __call__(self, bytes_: Floats) -> Floats:
        """Seconds at these sizes."""
        beyond = np.maximum(bytes_ - self.bytes[-1], 0.0)
        seconds: Floats = self._inside(bytes_) + beyond * self._tail_s_per_byte
        return seconds

    def _inside(self, bytes_: Floats) -> Floats:
        x, y, slope = self._knots
        at = np.log(np.clip(bytes_, self.bytes[0], self.bytes[-1]))
        i = np.clip(np.searchsorted(x, at, "right") - 1, 0, len(x) - 2)
        wide, t = x[i + 1] - x[i], at - x[i]
        mean, first, last = (y[i + 1] - y[i]) / wide, slope[i], slope[i + 1]
        bend, twist = (3 * mean - 2 * first - last) / wide, (first + last - 2 * mean) / wide**2
        seconds: Floats = np.exp(y[i] + t * (first + t * (bend + t * twist)))
        return seconds

    @cached_property
    def _knots(self) -> tuple[Floats, Floats, Floats]:
        x, y = np.log(self.bytes), np.log(self.seconds)
        return x, y, _slopes(np.diff(x), np.diff(y) / np.diff(x))

    @cached_property
    def _tail_s_per_byte(self) -> float:
        last = self.bytes[-1]
        octave = max(last / 2, self.bytes[0])
        return float((self.seconds[-1] - self._inside(np.array([octave]))[0]) / (last - octave))


def _slopes(wide: Floats, rise: Floats) -> Floats:
    """Slopes at points between intervals that are so wide and rise (or stay) so steeply: inside, the weighted harmonic
    mean of both sides (Fritsch and Butland, eq. 5), 0 beside a flat one; at the ends, the parabola's through three
    points, which does not fall (Moler, Numerical Computing with MATLAB, section 3.6).
    """
    if len(rise) == 1:
        return np.repeat(rise, 2)
    left, right = wide[:-1] + 2 * wide[1:], 2 * wide[:-1] + wide[1:]
    with np.errstate(divide="ignore"):
        inside = (left + right) / (left / rise[:-1] + right / rise[1:])
    ends = [
        max(((2 * wide[a] + wide[b]) * rise[a] - wide[a] * rise[b]) / (wide[a] + wide[b]), 0.0)
        for a, b in ((0, 1), (-1, -2))
    ]
    return np.concatenate(([ends[0]], inside, [ends[1]]))
