"""Who is slow: how fast each rank is, how much its steps vary, and how work is shared among unequal ones."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from ...base.arrays import Floats
from ..tables import Seconds, Table
from .spread import Spread

Factor = Annotated[float, Field(ge=1, le=1000)]


class Turn(Table):
    """A rank that turns slow at a time, without a word: a slow GPU, a link that lost lanes."""

    at: Seconds = Field(description="when, from the start of the run")
    rank: NonNegativeInt = Field(0, description="which rank; see speed.per")
    factor: Factor = Field(description="how many times longer its steps take from then on")
    lasts: Seconds | None = Field(None, description="how long (default: until it is replaced, or to the end)")


class Throttle(Table):
    """Ranks that become too hot run slower for some of the time."""

    factor: Factor = Field(description="how many times longer the steps of a hot rank take")
    share: Annotated[float, Field(ge=0, le=1)] = Field(description="share of its steps in which a rank is hot")


class Speed(Table):
    """Unequal ranks: each waits for the slowest where they keep in step."""

    per: Literal["worker", "node", "gpu"] = Field("node", description="what a rank is: what varies by itself")
    jitter: Spread = Field(default=Spread(), description="how the steps of one rank vary")
    ranks: Spread = Field(default=Spread(), description="how ranks differ for the whole run")
    turn: tuple[Turn, ...] = Field((), description="ranks that turn slow at a time")
    throttle: Throttle | None = Field(None, description="ranks that are hot now and then")
    detect: Seconds | None = Field(
        None, description="time until a rank that turned slow is found and replaced, as a failure is (default: never)"
    )
    balance: Literal["even", "proportional", "dynamic"] = Field(
        "even",
        description="how samples are shared: alike, by the speeds at the start, or anew whenever speeds change",
    )
    rebalance: Seconds = Field(0.0, description="dynamic: how long training stands to share samples anew")

    @model_validator(mode="after")
    def _goes_together(self) -> "Speed":
        if self.rebalance and self.balance != "dynamic":
            raise ValueError("rebalance goes with balance = 'dynamic'")
        return self


@dataclass(frozen=True, eq=False)
class Crew:
    """The ranks that keep in step now: a factor for each, how their steps vary, and how samples are shared.

    `shares[i]` is the share of an even part that rank i has; `speeds[i]` how many times longer an even part takes it.
    """

    speeds: Floats
    jitter: Spread
    shares: Floats | None = None
    throttle: Throttle | None = None

    @property
    def ranks(self) -> int:
        """How many they are."""
        return len(self.speeds)

    @property
    def factors(self) -> Floats:
        """Per rank, the time of its step over that of a usual one."""
        return self.speeds if self.shares is None else self.speeds * self.shares

    def balanced(self) -> "Crew":
        """The same ranks with samples in proportion to their speed, so that all take equally long.

        The best share of rank i is proportional to its speed 1/f_i (arXiv 2005.14038), so each takes n / sum(1/f).
        """
        inverse = 1 / self.speeds
        return Crew(self.speeds, self.jitter, inverse * self.ranks / inverse.sum(), self.throttle)

    def draw(self, rng: np.random.Generator, steps: int, spare: int = 0) -> Floats:
        """Per step, the factor of the slowest rank, or of the slowest but `spare` others."""
        if spare:
            return self._slowest_but(rng, steps, spare)
        each = [factor * self._slowest(rng, steps, ranks) for factor, ranks in self._equal]
        return each[0] if len(each) == 1 else np.asarray(np.max(each, axis=0))

    @cached_property
    def _equal(self) -> list[tuple[float, int]]:
        """Factors that ranks have, and how many have each."""
        factors, counts = np.unique(self.factors, return_counts=True)
        return list(zip(factors.tolist(), counts.tolist(), strict=True))

    def _slowest(self, rng: np.random.Generator, steps: int, ranks: int) -> Floats:
        """Per step, the slowest of equal ranks, of which some are hot."""
        if self.throttle is None:
            return self.jitter.slowest(rng, steps, ranks)
        hot = rng.binomial(ranks, self.throttle.share, steps)
        cold = self.jitter.slowest(rng, steps, ranks - hot)
        return np.maximum(cold, self.throttle.factor * self.jitter.slowest(rng, steps, hot))

    @cached_property
    def mean(self) -> float:
        """The mean factor of a rank, without waiting."""
        hot = 1.0 if self.throttle is None else 1 + self.throttle.share * (self.throttle.factor - 1)
        return float(self.factors.mean()) * self.jitter.mean * hot

    def _slowest_but(self, rng: np.random.Generator, steps: int, spare: int) -> Floats:
        waited = self.ranks - spare
        if (self.factors == self.factors[0]).all() and self.throttle is None:
            return self.factors[0] * self.jitter.slowest(rng, steps, waited, spare)
        drawn = self.factors * self.jitter.draw(rng, (steps, self.ranks))
        if self.throttle is not None:
            drawn *= np.where(rng.random(drawn.shape) < self.throttle.share, self.throttle.factor, 1.0)
        return np.partition(drawn, waited - 1, axis=1)[:, waited - 1]
