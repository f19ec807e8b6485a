"""The workers of a run as numbers: what a step of one takes, what it sends, over which link, how fast it is."""

from dataclasses import dataclass, field

import numpy as np

from .spread import Distribution, Spread


@dataclass(frozen=True)
class Team:
    """`workers` that each train on `samples` per step.

    A step takes `step_s` on average, times the worker's own factor of `speeds` (empty: all 1), times a draw of
    `jitter`: that of all workers, or one for each; then, if workers are groups, an exchange of `inside_s`
    inside each. Gradients of a worker have `gradient_bytes`, the model `parameter_bytes`. Each worker's link carries
    `link_bytes_per_s` in each direction, after `latency_s`. Equal seeds give equal runs.
    """

    workers: int
    step_s: float
    samples: float
    gradient_bytes: float = 0.0
    parameter_bytes: float = 0.0
    link_bytes_per_s: float = float("inf")
    latency_s: float = 0.0
    speeds: tuple[float, ...] = ()
    jitter: Distribution | tuple[Distribution, ...] = field(default_factory=Spread)
    seed: int = 0
    inside_s: float = 0.0

    def speed(self, worker: int) -> float:
        """How many times longer this worker's steps take than those of a usual one."""
        return self.speeds[worker] if self.speeds else 1.0

    def jitter_of(self, worker: int) -> Distribution:
        """How this worker's steps vary."""
        return self.jitter[worker] if isinstance(self.jitter, tuple) else self.jitter

    def rng(self, *stream: int) -> np.random.Generator:
        """Random numbers of one purpose; those of others do not move them."""
        return np.random.default_rng((self.seed, *stream))
