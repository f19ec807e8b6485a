"""What of a run is safe: rounds with checkpoints between them, and what a failure at any time leaves of them."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from ....base.arrays import Floats, Ints
from ..sync.rounds import Parts
from .storage import Saving


@dataclass
class Work:
    """Steps with their samples, and their seconds by cause."""

    steps: int = 0
    samples: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def __add__(self, other: "Work") -> "Work":
        causes = self.seconds.keys() | other.seconds.keys()
        seconds = {cause: self.seconds.get(cause, 0.0) + other.seconds.get(cause, 0.0) for cause in sorted(causes)}
        return Work(self.steps + other.steps, self.samples + other.samples, seconds)

    @property
    def length_s(self) -> float:
        """The seconds of all its parts together."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Done:
    """What was done of a stretch: whole rounds, checkpoints, seconds of these, and of a round that did not end."""

    rounds: int
    checkpoints: int
    stalled_s: float
    unfinished_s: float


@dataclass(frozen=True, eq=False)
class Stretch:
    """Rounds in which nothing changes, with checkpoints after some of them; times count from its start.

    Each has so many `steps` and `samples`. Round i runs from `starts_s[i]` to `ends_s[i]`. After the rounds `after`
    (their number), training stands until `marks_s`; what it has done by then is safe `write_s` later.
    """

    parts: Parts
    steps: int
    samples: float
    starts_s: Floats
    ends_s: Floats
    after: Ints
    marks_s: Floats

    @property
    def length_s(self) -> float:
        """Until the last round and the checkpoint behind it."""
        return max(float(self.ends_s[-1]), float(self.marks_s[-1]) if len(self.marks_s) else 0.0)

    def next_end_s(self, at_s: float) -> float:
        """When the round that runs at this time ends, or the checkpoint that is being made."""
        mark = int(np.searchsorted(self.marks_s, at_s))
        if mark < len(self.marks_s) and self.ends_s[self.after[mark] - 1] <= at_s:
            return float(self.marks_s[mark])
        return float(self.ends_s[min(self.ended(at_s), len(self.ends_s) - 1)])

    def ended(self, at_s: float) -> int:
        """How many rounds have ended by then; times are rounded."""
        return int(np.searchsorted(self.ends_s, at_s + 1e-9 * max(at_s, 1e-3), "right"))

    def marked(self, at_s: float) -> int:
        """How many checkpoints have been made by then."""
        return int(np.searchsorted(self.marks_s, at_s + 1e-9 * max(at_s, 1e-3), "right"))

    def share_done(self, at_s: float, after_s: float) -> float | None:
        """The share that has been done of the steps of the round that runs at this time; None where none runs.

        A round ends with `after_s` seconds of exchanges and the like, and the time for which it stands.
        """
        number = self.ended(at_s)
        if number == len(self.ends_s) or at_s < self.starts_s[number]:
            return None
        begun_s, stands_s = float(self.starts_s[number]), self.parts.get("pause", np.zeros(number + 1))[number]
        steps_s = float(self.ends_s[number]) - begun_s - float(stands_s) - after_s
        return min((at_s - begun_s) / steps_s, 1.0) if steps_s > 0 else 1.0

    def change(self, at_s: float, seconds: Mapping[str, float]) -> "Stretch":
        """The stretch up to the round that runs at this time, which has other seconds of these causes."""
        last = self.ended(at_s)
        parts = {cause: part[: last + 1].copy() for cause, part in self.parts.items()}
        more_s = sum(value - float(parts[cause][last]) for cause, value in seconds.items())
        for cause, value in seconds.items():
            parts[cause][last] = value
        marked = self.after <= last + 1
        after, ends_s = self.after[marked], self.ends_s[: last + 1] + more_s * (np.arange(last + 1) == last)
        marks_s = self.marks_s[marked] + more_s * (after == last + 1)
        return replace(
            self, parts=parts, starts_s=self.starts_s[: last + 1], ends_s=ends_s, after=after, marks_s=marks_s
        )

    def done(self, lasted_s: float, rounds: int, marks: int) -> Done:
        """What was done in so long: these rounds, these checkpoints, and a part of one or the other."""
        stalled_s = float((self.marks_s - self.ends_s[self.after - 1])[:marks].sum())
        at_s = float(self.ends_s[rounds - 1]) if rounds else 0.0
        if marks < len(self.after) and rounds == self.after[marks]:
            return Done(rounds, marks, stalled_s + lasted_s - at_s, 0.0)
        at_s = max(at_s, float(self.marks_s[marks - 1]) if marks else 0.0)
        return Done(rounds, marks, stalled_s, max(lasted_s - at_s, 0.0))

    def work(self, first: int, after: int) -> Work:
        """Rounds from the first to before `after`."""
        seconds = {cause: float(part[first:after].sum()) for cause, part in self.parts.items()}
        return Work((after - first) * self.steps, (after - first) * self.samples, seconds)

    def checkpoints(self, lasted_s: float) -> list[tuple[float, float]]:
        """When training stands for checkpoints, as far as it lasted."""
        begin_s = self.ends_s[self.after - 1]
        begun = begin_s < lasted_s
        return list(zip(begin_s[begun].tolist(), np.minimum(self.marks_s[begun], lasted_s).tolist(), strict=True))


class Saved:
    """The work that is safe, that a checkpoint holds which is being written, and that none holds."""

    def __init__(self, saving: Saving | None, work_s: float | None):
        self._alone = self._saving = saving
        self._every_s = inf if work_s is None or saving is None else work_s
        self._safe, self._writing, self._fresh = Work(), Work(), Work()
        self._safe_at_s = -inf

    @property
    def all(self) -> Work:
        """All work, safe or not."""
        return self._safe + self._writing + self._fresh

    @property
    def steps(self) -> int:
        """All steps, safe or not."""
        return self._safe.steps + self._writing.steps + self._fresh.steps

    @property
    def samples(self) -> float:
        """What these train on."""
        return self._safe.samples + self._writing.samples + self._fresh.samples

    @property
    def fair_write_share(self) -> float:
        """The share of the store that readers cannot have while a checkpoint is being written."""
        return 0.0 if self._alone is None else self._alone.fair_write_share

    def share_store(self, read_share: float) -> None:
        """Readers take this share of the store while a checkpoint is being written, from now on."""
        self._saving = None if self._alone is None else self._alone.share_with_readers(read_share)

    @property
    def writing_share(self) -> float:
        """The share of the time in which a checkpoint is being written."""
        if self._saving is None or self._every_s == inf:
            return 0.0
        return min(self._saving.write_s / (self._every_s + self._saving.stall_s), 1.0)

    def plan(self, parts: Parts, steps: int, samples: float, now_s: float, *, last: bool) -> Stretch:
        """Rounds of so many steps and samples, with checkpoints: after the first round that ends when one is due.

        A checkpoint waits until the one before is written. None is made after the `last` round of a run.
        """
        seconds = sum(parts.values(), np.zeros(1))
        work_s = np.cumsum(seconds)
        after, stalls = self._checkpoints(work_s, now_s, last=last)
        stall_s = np.zeros(len(work_s))
        stall_s[after - 1] = stalls
        before_s = np.cumsum(stall_s) - stall_s
        ends_s = work_s + before_s
        return Stretch(parts, steps, samples, ends_s - seconds, ends_s, after, ends_s[after - 1] + stalls)

    def _checkpoints(self, work_s: Floats, now_s: float, *, last: bool) -> tuple[Ints, Floats]:
        """After how many rounds checkpoints are made, and how long training stands for each."""
        if self._every_s == inf or self._saving is None:
            return np.zeros(0, np.int64), np.zeros(0)
        after, stalls, ends_s = list[int](), list[float](), work_s.tolist()
        due_s, free_s, stood_s = self._every_s - self._fresh.length_s, self._safe_at_s - now_s, 0.0
        stall_s, write_s, rounds = self._saving.stall_s, self._saving.write_s, 0
        while True:
            rounds = bisect_left(ends_s, due_s * (1 - 1e-9), rounds) + 1
            if rounds > len(ends_s) or (last and rounds == len(ends_s)):
                return np.array(after, np.int64), np.array(stalls)
            end_s = ends_s[rounds - 1]
            stands_s = stall_s + max(free_s - end_s - stood_s, 0.0)
            stood_s += stands_s
            free_s, due_s = end_s + stood_s + write_s, end_s + self._every_s
            after.append(rounds)
            stalls.append(stands_s)

    def keep(self, stretch: Stretch, lasted_s: float, now_s: float) -> Done:
        """Add what was done of a stretch that lasted so long, until now."""
        rounds, marks, first = stretch.ended(lasted_s), stretch.marked(lasted_s), 0
        if marks or self._safe_at_s <= now_s:
            self._end_writing()
        if marks:
            first = int(stretch.after[marks - 1])
            self._mark(stretch, stretch.marked(lasted_s - self._write_s), first)
            self._safe_at_s = now_s - lasted_s + float(stretch.marks_s[marks - 1]) + self._write_s
        self._fresh += stretch.work(first, rounds)
        return stretch.done(lasted_s, rounds, marks)

    def _mark(self, stretch: Stretch, safe: int, after: int) -> None:
        """All before round `after` is in checkpoints, the first `safe` of which are written."""
        before = int(stretch.after[safe - 1]) if safe else 0
        written = stretch.work(before, after)
        if safe:
            self._safe += self._fresh + stretch.work(0, before)
        else:
            written += self._fresh
        self._writing, self._fresh = written, Work()

    @property
    def _write_s(self) -> float:
        return 0.0 if self._saving is None else self._saving.write_s

    def save(self) -> None:
        """All work is safe now."""
        self._safe, self._writing, self._fresh = self.all, Work(), Work()

    def _end_writing(self) -> None:
        """What was being written is safe."""
        if self._writing.steps:
            self._safe, self._writing = self._safe + self._writing, Work()

    def lose(self, now_s: float) -> Work:
        """A failure undoes what is not safe, which is returned."""
        if self._safe_at_s <= now_s:
            self._end_writing()
        lost = self._writing + self._fresh
        self._writing, self._fresh, self._safe_at_s = Work(), Work(), -inf
        return lost
