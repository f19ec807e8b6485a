"""The plan of an RL cycle: how long training, update and switch take, and what rollouts decode."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Literal

import numpy as np

from .pool import Pace

_Z99 = 2.3263478740408408  # 99 % of a normal distribution
LARGEST_TAIL = exp(_Z99**2 / 2)  # a lognormal's 99th percentile is at most this many times its mean

Interrupt = Literal["drain", "abort", "keep"]


@dataclass(frozen=True)
class Lengths:
    """The distribution of tokens per request, sampled batch by batch from one seed.

    Lognormal with `mu` and `sigma` of the logarithm, or one of `tokens`, each with its probability.
    """

    mu: float = 0.0
    sigma: float = 0.0
    tokens: tuple[int, ...] = ()
    probability: tuple[float, ...] = ()
    most: int | None = None

    @classmethod
    def constant(cls, tokens: int) -> "Lengths":
        """Equal lengths for all requests."""
        return cls(tokens=(tokens,), probability=(1.0,))

    @classmethod
    def lognormal(cls, mean: float, p99: float, most: int | None = None) -> "Lengths":
        """A lognormal of this mean and 99th percentile, cut off at `most`.

        sigma is the smaller solution of ln(p99 / mean) = z sigma - sigma^2 / 2.
        """
        assert mean < p99 <= mean * LARGEST_TAIL
        sigma = _Z99 - sqrt(max(_Z99**2 - 2 * log(p99 / mean), 0.0))
        return cls(mu=log(mean) - sigma**2 / 2, sigma=sigma, most=most)

    @classmethod
    def histogram(cls, tokens: Sequence[int], weights: Sequence[float], most: int | None = None) -> "Lengths":
        """These lengths, each as often as its weight says."""
        total = float(sum(weights))
        return cls(tokens=tuple(tokens), probability=tuple(weight / total for weight in weights), most=most)

    def draw(self, requests: int, seed: int, batch: int) -> list[int]:
        """The tokens of each request of a batch; they depend on seed and batch only."""
        random = np.random.default_rng((seed, batch))
        if self.tokens:
            drawn = random.choice(np.array(self.tokens), requests, p=np.array(self.probability))
        else:
            drawn = np.rint(random.lognormal(self.mu, self.sigma, requests))
        return [int(tokens) for tokens in np.clip(drawn, 1, self.most)]


@dataclass(frozen=True)
class Switch:
    """Seconds in which GPUs that train and roll out in turn change over, before and after training."""

    release_s: float = 0.0
    onload_s: float = 0.0
    offload_s: float = 0.0
    kv_alloc_s: float = 0.0


@dataclass(frozen=True)
class Rollouts:
    """The pool of engines, and the requests of a batch."""

    requests: int
    engines: int
    slots: int
    pace: Pace
    lengths: Lengths
    seed: int = 0
    interrupt: Interrupt = "drain"

    @property
    def usable(self) -> int:
        """The slots of the pool that one batch can fill."""
        return min(self.slots * self.engines, self.requests)


@dataclass(frozen=True)
class CyclePlan:
    """`steps` steps, the first `warmup` of which are not counted.

    `switch` is None if disaggregated: ranks 0 to `rollout_gpus` - 1 roll out, the others train. A batch may start at
    most `staleness` versions before the one that trains on it. Engines cannot decode during `pause_s` of the
    `update_s`.
    """

    steps: int
    warmup: int
    staleness: int
    train_s: float
    update_s: float
    pause_s: float
    rollouts: Rollouts
    rollout_gpus: int
    trainer_gpus: int = 0
    switch: Switch | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.warmup < self.steps
        assert 0 <= self.pause_s <= self.update_s
        assert self.switch is None or self.staleness == 0, "one set of GPUs does one thing at a time"
        assert self.rollout_gpus % self.rollouts.engines == 0
