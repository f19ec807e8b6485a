"""Rounds of workers that all wait for each other: many at once, as seconds by cause.

A round ends with an exchange: after every step (all-reduce, with or without backup workers), or after several (local
SGD, DiLoCo).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Protocol

import numpy as np

from ....base.arrays import Floats
from ..speed import Crew
from ..spread import Distribution, Spread

Parts = Mapping[str, Floats]


class Rounds(Protocol):
    """How workers keep in step."""

    @property
    def steps(self) -> int:
        """Steps of each worker in a round."""

    @property
    def round_s(self) -> float:
        """Seconds of a round that nothing disturbs."""

    @property
    def after_s(self) -> float:
        """Seconds of a round after its steps."""

    def shorten(self, steps: float) -> "Rounds":
        """The same with rounds of at most so many steps."""

    def draw(self, rng: np.random.Generator, rounds: int, crew: Crew) -> Parts:
        """Seconds of each of so many rounds, by cause."""


@dataclass(frozen=True)
class EachStep:
    """Gradients are exchanged after each step; the slowest `backup` workers are not waited for (arXiv 1604.00981)."""

    step_s: float
    exchange_s: float = 0.0
    encode_s: float = 0.0
    backup: int = 0
    steps: int = 1

    @property
    def round_s(self) -> float:
        """Seconds of a round that nothing disturbs."""
        return self.step_s + self.after_s

    @property
    def after_s(self) -> float:
        """Seconds of a round after its step."""
        return self.exchange_s + self.encode_s

    def shorten(self, steps: float) -> "EachStep":
        """A round has one step."""
        return self

    def draw(self, rng: np.random.Generator, rounds: int, crew: Crew) -> Parts:
        """Seconds of each of so many rounds, by cause."""
        slowest_s = self.step_s * crew.draw(rng, rounds, self.backup)
        waiting = crew.units if self.backup else crew
        return _parts(slowest_s, self.step_s, waiting, self.exchange_s, self.encode_s)


@dataclass(frozen=True)
class Local:
    """Each worker makes `steps` steps of its own, then models are exchanged: H t_c + t_AR (arXiv 1805.09767).

    In `fragments`, parts of the model are exchanged in turn, equally far apart (Streaming DiLoCo, arXiv 2501.18512). An
    exchange may take the time of `delay` steps until its result is needed; only what is longer is waited for. As
    `delay` is at most `steps`, no other update of the same fragment comes between: nothing is stale. Where workers are
    groups, each step ends with an exchange of `inside_s` inside them.
    """

    step_s: float
    steps: int
    exchange_s: float = 0.0
    encode_s: float = 0.0
    fragments: int = 1
    delay: int = 0
    inside_s: float = 0.0

    @property
    def exposed_s(self) -> float:
        """What workers wait for exchanges in a round. Those of a fragment must be done when the next one's begin."""
        hidden_s = min(self.delay, self.steps / self.fragments) * (self.step_s + self.inside_s)
        return self.fragments * max(self.exchange_s / self.fragments - hidden_s, 0.0)

    @property
    def round_s(self) -> float:
        """Seconds of a round that nothing disturbs."""
        return self.steps * (self.step_s + self.inside_s) + self.after_s

    @property
    def after_s(self) -> float:
        """Seconds of a round after its steps, each of which ends with an exchange inside groups."""
        return self.exposed_s + self.encode_s

    def shorten(self, steps: float) -> "Local":
        """Rounds of at most so many steps, as the last one of a run is."""
        return self if steps >= self.steps else replace(self, steps=int(steps))

    def draw(self, rng: np.random.Generator, rounds: int, crew: Crew) -> Parts:
        """Seconds of each of so many rounds, by cause."""
        calm = crew.units if self.steps == 1 else _over_rounds(crew, self.steps)
        own_s = self.steps * self.step_s
        exchange_s = self.steps * self.inside_s + self.exposed_s
        return _parts(own_s * calm.draw(rng, rounds), own_s, calm, exchange_s, self.encode_s)


def _over_rounds(crew: Crew, steps: int) -> Crew:
    """The units as ranks whose step is the mean of so many."""
    units = crew.units
    if isinstance(units.jitter, tuple):
        means = np.array([one.mean for one in units.jitter])
        return replace(units, speeds=units.speeds * means, jitter=tuple(_calm(one, steps) for one in units.jitter))
    return replace(units, speeds=units.speeds * units.jitter.mean, jitter=_calm(units.jitter, steps))


def _calm(jitter: Distribution, steps: int) -> Spread:
    """How the mean of so many steps varies, over its own mean: a lognormal of this variance (Fenton 1960)."""
    return Spread(kind="lognormal", spread=min(jitter.deviation / jitter.mean / sqrt(steps), 10.0))


def _parts(slowest_s: Floats, own_s: float, crew: Crew, exchange_s: float, encode_s: float) -> Parts:
    """What the slowest takes longer than ranks on average is time in which the others wait."""
    mean_s = own_s * crew.mean
    wait_s = np.maximum(slowest_s - mean_s, 0.0) if crew.ranks > 1 else np.zeros_like(slowest_s)
    parts = {"compute": slowest_s - wait_s, "wait": wait_s}
    same = {"exchange": exchange_s, "encode": encode_s}
    return parts | {cause: np.full_like(slowest_s, seconds) for cause, seconds in same.items() if seconds}
