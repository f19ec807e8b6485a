"""Who is slow: how fast each rank is, how much its steps vary, and how work is shared among unequal ones."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from ...base.arrays import Floats
from ..tables import Seconds, Table
from .slowest import SlowestOfEqual, slowest_of
from .spread import Distribution, Factor, Spread, Throttle, draw_each


class Turn(Table):
    """A rank that turns slow at a time, without a word: a slow GPU, a link that lost lanes."""

    at: Seconds = Field(description="when, from the start of the run")
    rank: NonNegativeInt = Field(0, description="which rank; see speed.per")
    factor: Factor = Field(description="how many times longer its steps take from then on")
    lasts: Seconds | None = Field(None, description="how long (default: until it is replaced, or to the end)")


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


_MOST_NUMBERS = 1 << 20  # drawn at once


@dataclass(frozen=True, eq=False)
class Crew:
    """The ranks that keep in step now: a factor for each, how their steps vary, and how samples are shared.

    `shares[i]` is the share of an even part that rank i has; `speeds[i]` how many times longer an even part takes it.
    `jitter` is that of all ranks, or one for each. So many ranks in a row as `each` are a unit that may go on when its
    own ranks are done: a worker, or a group of workers.
    """

    speeds: Floats
    jitter: Distribution | tuple[Distribution, ...]
    shares: Floats | None = None
    throttle: Throttle | None = None
    each: int = 1

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
        return replace(self, shares=inverse * self.ranks / inverse.sum())

    @cached_property
    def units(self) -> "Crew":
        """The units as ranks. A step of a unit is that of its slowest rank, which is not always the same one."""
        if self.each == 1 and self.throttle is None:
            return self
        assert isinstance(self.jitter, Spread)
        rows = self.factors.reshape(-1, self.each)
        most = rows.max(axis=1)
        if not self._varies:
            return Crew(most, self.jitter)
        jitters = tuple(_of_unit(tuple(row), self.jitter, self.throttle) for row in (rows / most[:, None]).tolist())
        return Crew(most, jitters[0] if all(one is jitters[0] for one in jitters) else jitters)

    def draw(self, rng: np.random.Generator, steps: int, spare: int = 0) -> Floats:
        """Per step, the factor of the slowest rank, or of the slowest unit but `spare` others."""
        if spare:
            return self.units._slowest_but(rng, steps, spare)
        if not self._varies:
            return np.full(steps, (self.factors * [one.mean for one in self._jitters]).max())
        if self._are_equal:
            return self.factors[0] * self._slowest(rng, steps)
        return self._slowest_of_all.draw(rng, steps)

    @cached_property
    def mean(self) -> float:
        """The mean factor of a rank, without waiting."""
        hot = 1.0 if self.throttle is None else 1 + self.throttle.share * (self.throttle.factor - 1)
        if isinstance(self.jitter, tuple):
            return float(np.mean(self.factors * [one.mean for one in self.jitter])) * hot
        return float(self.factors.mean()) * self.jitter.mean * hot

    @cached_property
    def _are_equal(self) -> bool:
        """Whether all ranks are as fast as each other."""
        return len(self._jitters) == 1 and bool((self.factors == self.factors[0]).all())

    @property
    def _jitters(self) -> tuple[Distribution, ...]:
        """One for all ranks, or one for each."""
        return self.jitter if isinstance(self.jitter, tuple) else (self.jitter,)

    @property
    def _varies(self) -> bool:
        return self.throttle is not None or any(one.varies for one in self._jitters)

    @cached_property
    def _slowest_of_all(self) -> Distribution:
        """The distribution of the slowest of all ranks."""
        parts = np.split(self.factors, len(self._jitters))
        return slowest_of(list(zip(self._jitters, parts, strict=True)), self.throttle)

    def _slowest(self, rng: np.random.Generator, steps: int) -> Floats:
        """Per step, the slowest of equal ranks, of which some are hot."""
        jitter = self._jitters[0]
        if self.throttle is None:
            return jitter.slowest(rng, steps, self.ranks)
        hot = rng.binomial(self.ranks, self.throttle.share, steps)
        cold = jitter.slowest(rng, steps, self.ranks - hot)
        return np.maximum(cold, self.throttle.factor * jitter.slowest(rng, steps, hot))

    def _slowest_but(self, rng: np.random.Generator, steps: int, spare: int) -> Floats:
        waited = self.ranks - spare
        if self._are_equal:
            return self.factors[0] * self._jitters[0].slowest(rng, steps, waited, spare)
        block, found = max(_MOST_NUMBERS // self.ranks, 1), np.empty(steps)
        for some in (slice(first, min(first + block, steps)) for first in range(0, steps, block)):
            drawn = self.factors * draw_each(self.jitter, rng, some.stop - some.start, self.ranks)
            found[some] = np.partition(drawn, waited - 1, axis=1)[:, waited - 1]
        return found


@lru_cache(maxsize=4096)
def _of_unit(factors: tuple[float, ...], jitter: Spread, throttle: Throttle | None) -> Distribution:
    """The slowest rank of a unit."""
    if throttle is None and set(factors) == {1.0}:
        return SlowestOfEqual(jitter, len(factors)) if len(factors) > 1 and jitter.varies else jitter
    return slowest_of([(jitter, np.array(factors))], throttle)
