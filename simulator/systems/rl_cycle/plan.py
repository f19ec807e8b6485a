"""The plan of an RL cycle: how long training, update and switch take, and what rollouts decode."""

from dataclasses import dataclass
from itertools import cycle
from operator import add
from typing import Literal

from ..lengths import Lengths
from .pace import Pace, Roofline

Interrupt = Literal["drain", "abort", "keep"]
_PROMPTS = 1  # the stream of random numbers that says how long prompts are


@dataclass(frozen=True)
class Switch:
    """Seconds in which GPUs that train and roll out in turn change over, before and after training."""

    release_s: float = 0.0
    onload_s: float = 0.0
    offload_s: float = 0.0
    kv_alloc_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all of it."""
        return self.release_s + self.onload_s + self.offload_s + self.kv_alloc_s


@dataclass(frozen=True)
class Rollouts:
    """The pool of engines, and the requests of a batch: `samples` answers to each prompt.

    `room` requests of the usual length fill the KV cache of an engine (None: it has room for all).
    """

    requests: int
    engines: int
    slots: int
    pace: Pace | Roofline
    lengths: Lengths
    seed: int = 0
    interrupt: Interrupt = "drain"
    prompts: Lengths | None = None
    samples: int = 1
    room: int | None = None

    @property
    def usable(self) -> int:
        """The slots of the pool that one batch can fill."""
        slots = self.slots if self.room is None else min(self.slots, max(self.room, 1))
        return min(slots * self.engines, self.requests)

    def longest(self, batches: int) -> int:
        """The tokens of the longest request of the first batches, with its prompt."""
        drawn = (self.lengths.draw(self.requests, self.seed, batch) for batch in range(batches))
        prompts = (self.draw_prompts(batch) or [0] for batch in range(batches))
        return max(max(map(add, one, cycle(of))) for one, of in zip(drawn, prompts, strict=True))

    def draw_prompts(self, batch: int) -> list[int]:
        """The tokens of the prompt of each request of a batch; none where prompts take no time."""
        if self.prompts is None:
            return []
        drawn = self.prompts.draw(-(-self.requests // self.samples), self.seed, batch, _PROMPTS)
        return [drawn[number // self.samples] for number in range(self.requests)]


@dataclass(frozen=True)
class CyclePlan:
    """`steps` steps, the first `warmup` of which are not counted.

    `switch` is None if disaggregated: ranks 0 to `rollout_gpus` - 1 roll out, the others train. A batch may start at
    most `staleness` versions before the one that trains on it. Engines cannot decode during `pause_s` of the
    `update_s`. The trainer's GPUs take `prepare_s` between a rollout and its training.
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
    prepare_s: float = 0.0
    switch: Switch | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.warmup < self.steps
        assert 0 <= self.pause_s <= self.update_s
        assert self.switch is None or self.staleness == 0, "one set of GPUs does one thing at a time"
        assert self.rollout_gpus % self.rollouts.engines == 0
