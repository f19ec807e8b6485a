"""Input: samples that are read, prepared and queued, and how long steps wait for them."""

from collections import deque
from collections.abc import Callable
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ....base.arrays import Floats
from ...tables import Rate, Seconds, Size, Table
from ..slowest import slowest_of
from ..spread import Distribution, Spread

_MOST_NUMBERS = 1 << 20  # drawn at once
Share = Annotated[float, Field(ge=0, le=1)]


class Input(Table):
    """How a worker gets its samples."""

    sample: Size = Field(description="bytes of a sample in the store: an image, a sequence of tokens, a clip")
    samples: PositiveFloat = Field(description="samples of a worker's step")
    cpu: Seconds = Field(0.0, description="CPU seconds to prepare a sample")
    cpus: PositiveInt = Field(1, description="processes of a worker that prepare samples")
    readers: PositiveInt = Field(1, description="streams of a worker that read at once")
    reader_rate: Rate | None = Field(None, description="rate of one stream (default: no limit but the store's)")
    latency: Seconds = Field(0.0, description="of each read: open, seek, request to an object store")
    prefetch: PositiveInt = Field(2, description="batches that are prepared ahead")
    store: Rate | None = Field(None, description="rate of the shared store, for all workers together")
    dataset: PositiveFloat | None = Field(None, description="samples of an epoch (default: none is read twice)")
    hit: Share | None = Field(None, description="share that caches hold from the second epoch on (default: from cache)")
    cache: Size | None = Field(None, description="bytes of all caches together")
    jitter: Spread = Field(default=Spread(), description="how the time of a batch varies")

    @model_validator(mode="after")
    def _goes_together(self) -> "Input":
        if self.dataset is None and (self.hit is not None or self.cache is not None):
            raise ValueError("hit and cache go with dataset: caches help from the second epoch on")
        if self.hit is not None and self.cache is not None:
            raise ValueError("give hit or cache, not both")
        return self

    @property
    def warm(self) -> float:
        """The share of samples that caches hold from the second epoch on."""
        if self.cache is not None and self.dataset is not None:
            return min(self.cache / (self.dataset * self.sample), 1.0)
        return self.hit or 0.0

    def batch_s(self, workers: int, epoch: int, taken: float = 0.0) -> float:
        """Seconds between two batches of a worker, read and prepared one after the other: t_read / R + t_prep / P.

        (Murray et al., tf.data, VLDB 2021, arXiv 2101.12127.) Workers share what others have not `taken` of the store;
        caches answer for their share of the bytes (Mohan et al., CoorDL, arXiv 2007.06775).
        """
        stream_s = self.latency + (self.sample / self.reader_rate if self.reader_rate else 0.0)
        shared_s = self.store_s(workers, epoch) / (1 - taken)
        return max(self._missed(epoch) * stream_s / self.readers, shared_s) + self.samples * self.cpu / self.cpus

    def store_s(self, workers: int, epoch: int) -> float:
        """Seconds for which a batch of each worker keeps all of the store busy."""
        return self._missed(epoch) * self.sample * workers / self.store if self.store else 0.0

    def _missed(self, epoch: int) -> float:
        """Samples of a batch that no cache holds."""
        return self.samples * (1 - (self.warm if epoch else 0.0))


def mean_batch_s(step_s: float, calm_s: float, busy_s: float, busy: float) -> float:
    """Seconds between batches where they take `busy_s` in a share `busy` of the time, else `calm_s`.

    Batches per second add up. A queue of a few batches does not last for a checkpoint, so that what a step takes longer
    than a batch in calm times is lost.
    """
    if busy_s <= calm_s:
        return calm_s
    return 1 / ((1 - busy) / max(calm_s, min(step_s, busy_s)) + busy / busy_s)


def queues_of(workers: int, prefetch: int, jitter: Distribution, steps: int) -> tuple[int, Distribution]:
    """How many queues stand for those of all workers, and how the times of their batches vary.

    One does where nothing varies; and where one batch is prepared ahead of rounds of one step, as all workers then
    begin theirs together, so that a step waits for the slowest of them.
    """
    if workers == 1 or not jitter.varies:
        return 1, jitter
    if prefetch == steps == 1:
        return 1, slowest_of([(jitter, np.ones(workers))])
    return workers, jitter


class Queues:
    """The prefetch queues of workers that begin each round together: when their next batches are ready.

    Times count from the start of the next round. At the start all batches are there. A batch is begun when the one
    before it is ready and a slot is free, which a step frees as it starts.
    """

    def __init__(self, depth: int, queues: int = 1):
        self._ahead = np.zeros((depth, queues))  # the next batches, in order; the last one is begun last

    def resize(self, queues: int) -> None:
        """Workers leave; or join, whose batches are there."""
        more = max(queues - self._ahead.shape[1], 0)
        self._ahead = np.pad(self._ahead[:, :queues], ((0, 0), (0, more)), constant_values=self._ahead.min())

    def feed(self, round_s: Floats, batch_s: Floats, draw: Callable[[int], Floats], steps: int = 1) -> Floats:
        """How much longer each of these rounds of `steps` equal steps takes for the slowest queue, [rounds].

        A batch takes `batch_s` [rounds], times a factor of the next `draw(batches)`: [batches, queues].
        """
        block = max(_MOST_NUMBERS // self._ahead.shape[1] // steps, 1)
        parts = [slice(first, first + block) for first in range(0, len(round_s), block)]
        return np.concatenate([self._feed(round_s[some], batch_s[some], draw, steps) for some in parts])

    def _feed(self, round_s: Floats, batch_s: Floats, draw: Callable[[int], Floats], steps: int) -> Floats:
        drawn_s = np.repeat(batch_s, steps)[:, None] * draw(len(round_s) * steps)
        if drawn_s.shape[1] == 1:
            return self._feed_one(np.repeat(round_s / steps, steps), drawn_s[:, 0]).reshape(-1, steps).sum(axis=1)
        return self._feed_all(round_s, drawn_s) if steps == 1 else self._feed_rounds(round_s, drawn_s, steps)

    def _feed_rounds(self, round_s: Floats, batch_s: Floats, steps: int) -> Floats:
        """Workers that do not wait for each other inside a round."""
        now, waits, depth, done = 0.0, np.zeros(len(round_s)), len(self._ahead), 0
        ahead, last = self._ahead, self._ahead[-1].copy()
        for i, step_s in enumerate((round_s / steps).tolist()):
            own = np.full(len(last), now)
            for _ in range(steps):
                slot = ahead[done % depth]
                np.maximum(own, slot, out=own)
                np.maximum(last, own, out=last)
                last += batch_s[done]
                slot[:] = last
                own += step_s
                done += 1
            waits[i] = max(float(own.max()) - now - round_s[i], 0.0)
            now = float(own.max())
        self._ahead = np.roll(ahead, -(done % depth), axis=0) - now
        return waits

    def _feed_all(self, step_s: Floats, batch_s: Floats) -> Floats:
        now, waits, depth = 0.0, np.zeros(len(step_s)), len(self._ahead)
        ahead, last = self._ahead, self._ahead[-1].copy()
        for i, step in enumerate(step_s.tolist()):
            slot = ahead[i % depth]
            waits[i] = max(float(slot.max()) - now, 0.0)
            now += waits[i]
            np.maximum(last, now, out=last)
            last += batch_s[i]
            slot[:] = last
            now += step
        self._ahead = np.roll(ahead, -(len(step_s) % depth), axis=0) - now
        return waits

    def _feed_one(self, step_s: Floats, batch_s: Floats) -> Floats:
        """The same of one queue, ten times as fast."""
        now, waits, ahead = 0.0, np.zeros(len(step_s)), deque(self._ahead[:, 0].tolist())
        last = ahead[-1]
        for i, (step, batch) in enumerate(zip(step_s.tolist(), batch_s.tolist(), strict=True)):
            waits[i] = max(ahead.popleft() - now, 0.0)
            now += waits[i]
            last = max(last, now) + batch
            ahead.append(last)
            now += step
        self._ahead = np.array(ahead)[:, None] - now
        return waits
