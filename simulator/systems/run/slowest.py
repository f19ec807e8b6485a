"""The slowest of ranks that differ: all are done at t if each of them is, F(t) = prod_i F_i(t).

(David and Nagaraja, Order Statistics, 2003, section 5.2.) So that one number per step is drawn, whatever the number of
ranks, the inverse of F is a table: lines on the scale -log(-log F), on which the tail of a maximum is nearly straight
(that of a Gumbel distribution is). Points lie closer than `_FINE` on that scale, or nearly at one time, where F jumps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt

import numpy as np

from ...base.arrays import Floats
from .spread import Distribution, Throttle

_LOWEST, _HIGHEST = -3.5, 26.0  # scores of F = 4e-15 and 1 - 5e-12; a run draws fewer numbers than 1e11
_ALONE_HIGHEST = 34.0  # of one rank: 1 - 2e-15, near the last that a number of 64 bits holds
_FINE = 0.1  # between two points of the table
_JUMP = 1e-10  # relative: of times
_POINTS = 128  # to begin with
_ALIKE = 1e-4  # relative: of factors that count as one
_MOST_NUMBERS = 1 << 20  # of an array that is made on the way
_CELLS = 40_000  # of which a mean is made


@dataclass(frozen=True, eq=False)
class Slowest(Distribution):
    """The distribution of a maximum: times, ascending, and the score of the share of draws that are not above each."""

    times: Floats
    scores: Floats

    @property
    def varies(self) -> bool:
        """Whether factors differ."""
        return True

    @cached_property
    def mean(self) -> float:
        """The mean factor."""
        return float(np.average(self._middles, weights=self._weights))

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of factors."""
        return sqrt(float(np.average((self._middles - self.mean) ** 2, weights=self._weights)))

    def quantile(self, share: Floats) -> Floats:
        """The factor below which this share of them lies."""
        with np.errstate(divide="ignore"):
            return np.interp(_score(np.log(share)), self.scores, self.times)

    def share_below(self, factor: Floats) -> Floats:
        """The share of factors that are not above these."""
        return np.exp(-np.exp(-np.interp(factor, self.times, self.scores)))

    @property
    def _middles(self) -> Floats:
        return (self.times[1:] + self.times[:-1]) / 2

    @property
    def _weights(self) -> Floats:
        return np.diff(np.exp(-np.exp(-self.scores)))


@dataclass(frozen=True)
class SlowestOfEqual(Distribution):
    """The distribution of the slowest of so many equal ranks: F^ranks, exactly."""

    one: Distribution
    ranks: int

    @property
    def varies(self) -> bool:
        """Whether factors differ."""
        return self.one.varies

    @property
    def mean(self) -> float:
        """The mean factor."""
        return self._moments[0]

    @property
    def deviation(self) -> float:
        """The standard deviation of factors."""
        return self._moments[1]

    def quantile(self, share: Floats) -> Floats:
        """The factor below which this share of them lies."""
        return self.one.quantile(share ** (1 / self.ranks))

    def share_below(self, factor: Floats) -> Floats:
        """The share of factors that are not above these."""
        return self.one.share_below(factor) ** self.ranks

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Mean and deviation, from cells of the share that are small in the tail."""
        edges = np.exp(-np.exp(-np.linspace(_LOWEST, _ALONE_HIGHEST - log(self.ranks), _CELLS)))
        factors, weights = self.quantile((edges[1:] + edges[:-1]) / 2), np.diff(edges)
        mean = float(np.average(factors, weights=weights))
        return mean, sqrt(float(np.average((factors - mean) ** 2, weights=weights)))


Part = tuple[Distribution, Floats]
"""How the steps of some ranks vary, and a factor of each."""


def slowest_of(parts: Sequence[Part], throttle: Throttle | None = None) -> Slowest:
    """The slowest of all ranks of these parts, each of which is hot by itself."""
    alike = [_Alike.of(jitter, factors) for jitter, factors in parts]
    times = _between(alike, throttle)
    scores = _scores(alike, throttle, times)
    while len(at := np.flatnonzero((np.diff(scores) > _FINE) & (np.diff(times) > _JUMP * times[1:]))):
        more = np.sqrt(times[at] * times[at + 1])
        times = np.insert(times, at + 1, more)
        scores = np.insert(scores, at + 1, _scores(alike, throttle, more))
    return Slowest(times, np.maximum.accumulate(scores))


@dataclass(frozen=True)
class _Alike:
    """Ranks of one jitter: different factors, and how many ranks have each."""

    jitter: Distribution
    factors: Floats
    counts: Floats

    @classmethod
    def of(cls, jitter: Distribution, factors: Floats) -> "_Alike":
        """Factors that are nearly equal become their mean."""
        _, which, counts = np.unique(np.round(np.log(factors) / _ALIKE), return_inverse=True, return_counts=True)
        return cls(jitter, np.bincount(which, factors) / counts, counts.astype(np.float64))


def _between(alike: Sequence[_Alike], throttle: Throttle | None) -> Floats:
    """Times between which the slowest is: above where one rank alone is, below where all are together."""
    ranks = sum(int(one.counts.sum()) for one in alike)
    shares = np.array([_share_of(_LOWEST), _share_of(min(_HIGHEST + log(ranks), _ALONE_HIGHEST))])
    first, last = np.max([one.factors.max() * one.jitter.quantile(shares) for one in alike], axis=0)
    hot = 1.0 if throttle is None else throttle.factor
    return np.geomspace(first * (1 - 2 * _JUMP), hot * last * (1 + 2 * _JUMP), _POINTS)


def _scores(alike: Sequence[_Alike], throttle: Throttle | None, times: Floats) -> Floats:
    """At each time, the score of the share of steps in which all are done."""
    logs = np.zeros(len(times))
    for one in alike:
        block = max(_MOST_NUMBERS // len(times), 1)
        for first in range(0, len(one.factors), block):
            some = slice(first, first + block)
            logs += _log_share(one.jitter, throttle, times[:, None] / one.factors[some]) @ one.counts[some]
    return _score(logs)


def _log_share(jitter: Distribution, throttle: Throttle | None, times: Floats) -> Floats:
    shares = jitter.share_below(times)
    if throttle is not None:
        shares += throttle.share * (jitter.share_below(times / throttle.factor) - shares)
    return np.log(np.maximum(shares, 1e-300))


def _score(logs: Floats) -> Floats:
    """Of the logarithm of a share."""
    with np.errstate(divide="ignore"):
        return np.clip(-np.log(-logs), _LOWEST, 40.0)


def _share_of(score: float) -> float:
    """The share F of a score -log(-log F)."""
    return exp(-exp(-score))
