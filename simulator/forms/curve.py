"""Measured curves: seconds over message size, monotone, kept on a grid of our own and interpolated in log-log.

PCHIP never leaves the interval between two neighbours (Fritsch and Carlson, SIAM J. Numer. Anal. 17, 1980), so a curve
through rising points rises. Below the first size a message costs what that one does. Above the last size the rate is
that of the last octave; that is no knowledge, and whoever asks is told (see `profile.model`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .form import Floats

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator


@dataclass(frozen=True, eq=False)
class Curve:
    """Seconds at sizes in bytes, both rising."""

    bytes: Floats
    seconds: Floats

    @classmethod
    def through(cls, bytes_: Floats, seconds: Floats, points: int | None = None) -> "Curve":
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
        at = np.log(np.clip(bytes_, self.bytes[0], self.bytes[-1]))
        seconds: Floats = np.exp(self._pchip(at))
        return seconds

    @cached_property
    def _pchip(self) -> "PchipInterpolator":
        from scipy.interpolate import PchipInterpolator

        return PchipInterpolator(np.log(self.bytes), np.log(self.seconds))

    @cached_property
    def _tail_s_per_byte(self) -> float:
        last = self.bytes[-1]
        octave = max(last / 2, self.bytes[0])
        return float((self.seconds[-1] - self._inside(np.array([octave]))[0]) / (last - octave))
