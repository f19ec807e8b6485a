"""How much longer or shorter one step takes than another: a distribution of factors, and the slowest of many ranks."""

from collections.abc import Iterator
from itertools import repeat
from math import log, sqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from ...base.arrays import Floats, Ints
from ..tables import Table, as_tuple

Factor = Annotated[float, Field(ge=1, le=1000)]

_LEAST = 0.01  # a Gaussian has values below zero; no step takes less than this share of the mean


class Distribution:
    """How a time varies: factors on it."""

    @property
    def varies(self) -> bool:
        """Whether factors differ."""
        raise NotImplementedError

    @property
    def mean(self) -> float:
        """The mean factor."""
        raise NotImplementedError

    @property
    def deviation(self) -> float:
        """The standard deviation of factors."""
        raise NotImplementedError

    def quantile(self, share: Floats) -> Floats:
        """The factor below which this share of them lies."""
        raise NotImplementedError

    def share_below(self, factor: Floats) -> Floats:
        """The share of factors that are not above these, which are above 0: the inverse of `quantile`."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> Floats:
        """Independent factors."""
        return self.quantile(rng.random(shape))

    def slowest(self, rng: np.random.Generator, steps: int, ranks: int | Ints, spare: int = 0) -> Floats:
        """Per step, the factor of the slowest of the first `ranks` to arrive, of `ranks + spare`; 0 of no ranks.

        The k-th smallest of n uniform numbers has the distribution Beta(k, n - k + 1) (David and Nagaraja, Order
        Statistics, 2003, section 2.3), so that one number per step is drawn and not one per rank.
        """
        some = np.maximum(ranks, 1)
        drawn = self.quantile(rng.beta(some, spare + 1, steps)) if self.varies else np.full(steps, self.mean)
        return np.where(np.greater(ranks, 0), drawn, 0.0)


def draw_each(
    jitter: Distribution | tuple[Distribution, ...], rng: np.random.Generator, steps: int, ranks: int
) -> Floats:
    """Independent factors, [steps, ranks], of the distribution of all ranks, or of that of each."""
    drawn = rng.random((steps, ranks))
    if isinstance(jitter, Distribution):
        return jitter.quantile(drawn)
    return np.stack([one.quantile(drawn[:, i]) for i, one in enumerate(jitter)], axis=1)


class Spread(Distribution, Table):
    """A distribution of factors on a time. Its mean is 1, except that a trace is taken as it is."""

    kind: Literal["gaussian", "lognormal", "pareto", "trace"] = Field("gaussian", description="which distribution")
    spread: Annotated[float, Field(ge=0, le=10)] = Field(
        0.0, description="standard deviation as a share of the mean; a Gaussian's is at most 0.5"
    )
    values: Annotated[tuple[PositiveFloat, ...], BeforeValidator(as_tuple)] = Field(
        (), description="trace: factors that were seen, each as likely as the others"
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Spread":
        if (self.kind == "trace") != bool(self.values):
            raise ValueError("kind = 'trace' and values must be given together")
        if self.values and self.spread:
            raise ValueError("a trace has no spread but that of its values")
        if self.kind == "gaussian" and self.spread > 0.5:
            raise ValueError("a Gaussian's spread is at most 0.5: wider ones have times below zero; use lognormal")
        return self

    @property
    def varies(self) -> bool:
        """Whether factors differ."""
        return self.spread > 0 or len(set(self.values)) > 1

    @property
    def mean(self) -> float:
        """The mean factor."""
        return sum(self.values) / len(self.values) if self.values else 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of factors."""
        return float(np.std(self.values)) if self.values else self.spread

    def quantile(self, share: Floats) -> Floats:
        """The factor below which this share of them lies."""
        if self.values:
            return np.quantile(np.array(self.values), share, method="inverted_cdf")
        if not self.spread:
            return np.ones_like(share)
        if self.kind == "pareto":
            return (self._alpha - 1) / self._alpha * (1 - share) ** (-1 / self._alpha)
        from scipy.special import ndtri  # here: it takes long to import, and few scenarios need it

        if self.kind == "gaussian":
            return np.asarray(np.maximum(1 + self.spread * ndtri(share), _LEAST))
        return np.asarray(np.exp(self._sigma * ndtri(share) - self._sigma**2 / 2))

    def share_below(self, factor: Floats) -> Floats:
        """The share of factors that are not above these, which are above 0: the inverse of `quantile`."""
        if self.values or not self.spread:
            values = sorted(self.values) or [1.0]
            return np.searchsorted(values, factor, side="right") / len(values)
        if self.kind == "pareto":
            least = (self._alpha - 1) / self._alpha
            return 1 - (least / np.maximum(factor, least)) ** self._alpha
        from scipy.special import ndtr

        if self.kind == "gaussian":
            return np.where(factor < _LEAST, 0.0, ndtr((factor - 1) / self.spread))
        return np.asarray(ndtr(np.log(factor) / self._sigma + self._sigma / 2))

    @property
    def _alpha(self) -> float:
        """Of a Pareto with this ratio of deviation to mean."""
        return 1 + sqrt(1 + 1 / self.spread**2)

    @property
    def _sigma(self) -> float:
        """Of the logarithm of a lognormal with this ratio of deviation to mean."""
        return sqrt(log(1 + self.spread**2))


def draw_times(mean_s: float, spread: Spread, rng: np.random.Generator) -> Iterator[float]:
    """Independent times, one after the other: `mean_s` times a factor each. Nothing is drawn where they do not vary."""
    while spread.varies:
        yield mean_s * float(spread.draw(rng, 1)[0])
    yield from repeat(mean_s * spread.mean)


class Throttle(Table):
    """Ranks that become too hot run slower for some of the time."""

    factor: Factor = Field(description="how many times longer the steps of a hot rank take")
    share: Annotated[float, Field(ge=0, le=1)] = Field(description="share of its steps in which a rank is hot")
