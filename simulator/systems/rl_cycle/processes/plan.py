"""What an RL cycle does, as values: how long training, update and switch take, and what rollouts must decode."""

from dataclasses import dataclass
from typing import Literal

from .lengths import Lengths
from .pool import Pace

Interrupt = Literal["drain", "abort", "keep"]


@dataclass(frozen=True)
class Switch:
    """Seconds in which GPUs that train and roll out in turn change over: before training, and after it."""

    release_s: float = 0.0
    onload_s: float = 0.0
    offload_s: float = 0.0
    kv_alloc_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.release_s + self.onload_s + self.offload_s + self.kv_alloc_s


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

    `switch` is None where the pools are disaggregated: ranks 0 to `rollout_gpus` - 1 roll out, the others train.
    A batch may be started at most `staleness` versions before the one that trains on it. `pause_s`, at most
    `update_s`, is the part of an update in which engines cannot decode.
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
