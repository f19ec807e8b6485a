"""Training as one process: rounds, checkpoints and failures, one after the other, over weeks.

Between two events that change anything (a checkpoint, a failure, a rank that turns slow, a node that returns), rounds
are drawn all at once; the process sleeps until the last of them, or until it is interrupted. Work since the last
checkpoint that is safe is lost with a failure, and done again.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event, Interrupt, Process

from .elastic import Elastic
from .failures import Failure
from .history import History, Recorder
from .input import Input, Queue
from .ranks import Ranks
from .rounds import Parts, Rounds
from .speed import Crew, Speed
from .storage import Saving

Floats = NDArray[np.float64]
Steps = Generator[Event, object, None]
_MOST_ROUNDS = 65_536  # drawn at once
_LEAST_S = 1e-9
_SHOWN_STEPS = 100  # at the start of a run, one by one in charts


@dataclass(frozen=True)
class Restart:
    """Seconds from when a failure is noticed until training goes on, nodes being there."""

    place_s: float = 0.0
    init_s: float = 0.0
    read_s: float = 0.0
    warmup_s: float = 0.0

    @property
    def seconds(self) -> float:
        """All phases."""
        return self.place_s + self.init_s + self.read_s + self.warmup_s


@dataclass(frozen=True)
class TrainingPlan:
    """A run of `steps` steps, or of `wall_s` seconds, whichever ends first.

    `rounds_of(workers)` says how so many workers keep in step; they train on `samples` each per step. `crew` has the
    ranks in the order of workers and nodes. `failures` are in the order of time. `work_s` is the work between two
    checkpoints (None: none are made).
    """

    rounds_of: Callable[[int], Rounds]
    crew: Crew
    workers: int
    nodes: int
    samples: float
    steps: float = inf
    wall_s: float = inf
    saving: Saving | None = None
    work_s: float | None = None
    failures: Callable[[], Iterator[Failure]] = lambda: iter(())
    restart: Restart = Restart()
    spares: int = 0
    speed: Speed = field(default_factory=Speed)
    input: Input | None = None
    elastic: Elastic | None = None
    starts: bool = False
    seed: int = 0


def run_training(plan: TrainingPlan) -> History:
    """Train until the steps are done, or the time is over."""
    return _Training(plan).run()


class _Stopped(Exception):  # noqa: N818  # a signal inside this module
    """The run has to stop for this."""

    def __init__(self, failure: Failure):
        self.failure = failure


class _Over(Exception):  # noqa: N818
    """The time of the run is over."""


@dataclass
class _Work:
    """Steps that no safe checkpoint holds yet: how many, their samples, and their seconds by cause."""

    rounds: int = 0
    samples: float = 0.0
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "_Work") -> None:
        self.rounds += other.rounds
        self.samples += other.samples
        self.seconds.update(other.seconds)


class _Training:
    """The state of one run."""

    def __init__(self, plan: TrainingPlan):
        self.plan, self.env, self.record = plan, Environment(), Recorder()
        self.rng = np.random.default_rng((plan.seed, 0))
        self.safe, self.written, self.fresh = _Work(), _Work(), _Work()
        self.worked_s = 0.0  # since the last checkpoint
        self.writer: Process | None = None
        self.written_s = 0.0
        self.ranks = Ranks(plan.crew, plan.workers, plan.nodes, plan.spares, plan.speed, plan.elastic)
        self.queue = Queue(plan.input.prefetch) if plan.input is not None else None
        self.shown = _SHOWN_STEPS
        self.typical: tuple[Crew | None, float] = (None, 0.0)
        self.trainer = self.env.process(self._train())

    def run(self) -> History:
        self.env.process(self._fail())
        for turn in self.plan.speed.turn:
            self.env.process(self._turn(turn.at, turn.rank, turn.factor, turn.lasts))
        if self.plan.wall_s < inf:
            self.env.process(self._end())
        self.env.run(self.trainer)
        for work in (self.written, self.fresh):
            self.safe.add(work)
        for cause, seconds in self.safe.seconds.items():
            self.record.spend(cause, seconds)
        rounds = self.plan.rounds_of(self.plan.workers)
        steps = self.safe.rounds * rounds.steps
        return self.record.history(self.env.now, steps, self.safe.samples, {round(rounds.behind): steps})

    @property
    def done(self) -> int:
        """Rounds that are done, safe or not."""
        return self.safe.rounds + self.written.rounds + self.fresh.rounds

    # What the trainer does

    def _train(self) -> Steps:
        try:
            if self.plan.starts:
                yield from self._spend("restart", self.plan.restart.seconds, "start")
            while self._left() > 0:
                try:
                    yield from self._work()
                except _Stopped as stopped:
                    yield from self._come_back(stopped.failure)
        except _Over:
            pass

    def _left(self) -> int:
        each = self.plan.rounds_of(self.plan.workers).steps
        return ceil(min(self.plan.steps / each - self.done, _MOST_ROUNDS) - 1e-9)

    def _work(self) -> Steps:
        """Rounds until the next checkpoint, or until something changes; and the checkpoint."""
        yield from self._take_back()
        parts, ends_s = self._draw()
        start_s, done, over_s = self.env.now, 0, float(ends_s[-1])
        try:
            while self.env.now < start_s + over_s:
                try:
                    yield self.env.timeout(start_s + over_s - self.env.now)
                except Interrupt as interrupt:
                    self._heed(interrupt.cause)
                    over_s = float(ends_s[min(self._ended(ends_s, start_s), len(ends_s) - 1)])
        finally:
            done = self._ended(ends_s, start_s)
            self._keep(parts, done, start_s)
            unfinished_s = self.env.now - start_s - (float(ends_s[done - 1]) if done else 0.0)
            self.record.spend("lost", max(unfinished_s, 0.0))
        if self.plan.work_s is not None and self.worked_s >= self.plan.work_s * (1 - 1e-9) and self._left() > 0:
            yield from self._save()

    def _ended(self, ends_s: Floats, start_s: float) -> int:
        """How many of the rounds have ended by now; now is rounded."""
        return int(np.searchsorted(ends_s, (self.env.now - start_s) * (1 + 1e-12) + 1e-12 * self.env.now, "right"))

    def _draw(self) -> tuple[Parts, Floats]:
        """The rounds until the next checkpoint by cause, and when each ends."""
        plan, crew = self.plan, self.ranks.crew
        rounds = plan.rounds_of(self.ranks.workers)
        until_s = inf if plan.work_s is None else plan.work_s - self.worked_s
        asked = ceil(min(self._left(), 1.2 * until_s / self._typical_s(rounds, crew) + 8))
        parts = dict(rounds.draw(self.rng, asked, crew))
        if self.queue is not None:
            parts["input"] = self._feed(sum(parts.values(), np.zeros(asked)), rounds.steps)
        ends_s = np.cumsum(sum(parts.values(), np.zeros(asked)))
        cut = min(int(np.searchsorted(ends_s, until_s * (1 - 1e-9))) + 1, asked)
        return {cause: part[:cut] for cause, part in parts.items()}, ends_s[:cut]

    def _typical_s(self, rounds: Rounds, crew: Crew) -> float:
        """About how long a round takes; it says how many are worth drawing."""
        if self.typical[0] is not crew:
            drawn = rounds.draw(np.random.default_rng(0), 16, crew)
            self.typical = crew, max(sum(float(part.mean()) for part in drawn.values()), _LEAST_S)
        return self.typical[1]

    def _feed(self, step_s: Floats, steps: int) -> Floats:
        """How long rounds wait for input."""
        said, queue = self.plan.input, self.queue
        assert said is not None
        assert queue is not None
        taken = self.plan.saving.store_share / 2 if self.writer is not None and self.plan.saving is not None else 0.0
        samples = self.done * steps * said.samples * self.ranks.workers
        each_s = steps * said.batch_s(self.ranks.workers, said.epoch_of(samples), taken)
        return queue.feed(step_s, each_s * said.jitter.draw(self.rng, len(step_s)))

    def _keep(self, parts: Parts, rounds: int, start_s: float) -> None:
        """Count the first of these rounds as work that is not safe yet."""
        each = self.plan.rounds_of(self.ranks.workers).steps
        work = _Work(rounds, rounds * each * self.plan.samples * self.ranks.fed)
        for cause, part in parts.items():
            work.seconds[cause] = float(part[:rounds].sum())
        self.fresh.add(work)
        self.worked_s += sum(work.seconds.values())
        self.record.span("run", "compute", start_s, start_s + sum(work.seconds.values()), f"{rounds * each:,} steps")
        self._show(parts, rounds, start_s)

    def _show(self, parts: Parts, rounds: int, start_s: float) -> None:
        """Note the first steps of a run one by one."""
        at_s = start_s
        for i in range(min(rounds, self.shown)):
            for cause in ("input", "compute", "wait", "encode", "exchange"):
                if cause in parts:
                    self.record.span("step", cause, at_s, at_s + float(parts[cause][i]), f"{cause} {i}")
                    at_s += float(parts[cause][i])
        self.shown -= min(rounds, self.shown)

    # Checkpoints

    def _save(self) -> Steps:
        """Stand for a checkpoint; what it holds is safe when it is written."""
        saving = self.plan.saving
        assert saving is not None
        if self.writer is not None:
            yield from self._spend("checkpoint", self.written_s - self.env.now, "the one before is being written")
            yield self.env.timeout(0)
        yield from self._spend("checkpoint", saving.stall_s)
        self.worked_s = 0.0
        self.record.count("checkpoints")
        self.written.add(self.fresh)
        self.fresh = _Work()
        if saving.write_s:
            self.written_s = self.env.now + saving.write_s
            self.writer = self.env.process(self._write(saving.write_s))
        else:
            self._is_safe()

    def _write(self, seconds: float) -> Steps:
        start_s = self.env.now
        try:
            yield self.env.timeout(seconds)
        except Interrupt:
            return
        self.record.span("store", "checkpoint", start_s, self.env.now, "write")
        self.writer = None
        self._is_safe()

    def _is_safe(self) -> None:
        self.safe.add(self.written)
        self.written = _Work()

    # Failures

    def _fail(self) -> Steps:
        for failure in self.plan.failures():
            yield self.env.timeout(max(failure.at_s - self.env.now, 0.0))
            if not self.trainer.is_alive:
                return
            if failure.effect == "slow":
                self.env.process(self._turn(0.0, self.ranks.rank_of(failure.node), failure.factor, None))
            elif not self.ranks.is_away(failure.node):
                self.trainer.interrupt(failure)

    def _turn(self, wait_s: float, rank: int, factor: float, lasts_s: float | None) -> Steps:
        """A rank turns slow, and is found, is well again, or neither."""
        yield self.env.timeout(wait_s)
        self._set_speed(rank, factor, f"rank {rank} takes {factor:g} times longer")
        detect_s = self.plan.speed.detect
        if detect_s is not None and (lasts_s is None or detect_s < lasts_s):
            yield self.env.timeout(detect_s)
            if self.trainer.is_alive and self.ranks.turned.get(rank):
                node = self.ranks.node_of(rank)
                self.trainer.interrupt(Failure(self.env.now, f"slow rank {rank}", node, "planned", 0.0, 0.0))
        elif lasts_s is not None:
            yield self.env.timeout(lasts_s)
            self._set_speed(rank, 1.0, f"rank {rank} is as fast as before")

    def _set_speed(self, rank: int, factor: float, words: str) -> None:
        if self.trainer.is_alive:
            self.ranks.turn(rank, factor)
            self.record.happen(self.env.now, "speed", words)
            self.trainer.interrupt(None)

    def _end(self) -> Steps:
        yield self.env.timeout(self.plan.wall_s)
        if self.trainer.is_alive:
            self.trainer.interrupt(_Over())

    def _heed(self, news: object) -> None:
        """Raise what stops the trainer; everything else waits until the round has ended."""
        if isinstance(news, _Over):
            raise news
        if isinstance(news, Failure):
            raise _Stopped(news)

    def _come_back(self, failure: Failure) -> Steps:
        """From a failure until training goes on; another failure meanwhile begins it anew."""
        while True:
            self.record.happen(self.env.now, _word(failure), f"{failure.name}, node {failure.node}")
            try:
                if failure.effect == "planned":
                    yield from self._save_all()
                else:
                    self._lose()
                    yield from self._spend("detect", failure.detect_s, failure.name)
                yield from self._replace(failure)
                yield from self._spend("restart", self.plan.restart.seconds)
                return
            except _Stopped as stopped:
                failure = stopped.failure

    def _save_all(self) -> Steps:
        """Save what is done before a stop that was planned, if there are checkpoints at all."""
        if self.plan.saving is None:
            self._lose()
            return
        yield from self._save()
        if self.writer is not None:
            yield from self._spend("checkpoint", self.written_s - self.env.now, "write before a stop")
            yield self.env.timeout(0)

    def _lose(self) -> None:
        """What is not safe is lost."""
        if self.writer is not None:
            self.writer.interrupt()
            self.writer = None
        for work in (self.written, self.fresh):
            self.record.spend("lost", sum(work.seconds.values()))
        self.written, self.fresh, self.worked_s = _Work(), _Work(), 0.0

    def _replace(self, failure: Failure) -> Steps:
        """Take a spare node for the failed one, go on without it, or wait for one that is repaired."""
        self.ranks.renew(failure.node)
        if not failure.repair_s:
            return
        self.ranks.send_away(failure.node, self.env.now + failure.repair_s)
        self.ranks.fill(self.env.now)
        if self.ranks.can_go_on:
            yield from self._resize()
        while not self.ranks.can_go_on:
            yield from self._spend("repair", max(self.ranks.next_return_s - self.env.now, 0.0), failure.name)
            self.ranks.fill(self.env.now)

    def _take_back(self) -> Steps:
        """Nodes that have returned fill gaps; samples are shared anew if speeds have changed."""
        if self.ranks.gaps and self.ranks.next_return_s <= self.env.now:
            self.ranks.fill(self.env.now)
            yield from self._resize()
        if self.ranks.unbalanced:
            self.ranks.unbalanced = False
            yield from self._spend("resize", self.plan.speed.rebalance, "samples are shared anew")

    def _resize(self) -> Steps:
        if self.plan.elastic is not None and self.ranks.is_resized():
            self.record.happen(self.env.now, "resize", f"{self.ranks.workers} workers, {len(self.ranks.gaps)} gaps")
            yield from self._spend("resize", self.plan.elastic.resize)

    # Time

    def _spend(self, cause: str, seconds: float, name: str = "") -> Steps:
        """Wait for a cause, whatever else happens meanwhile; a failure ends it."""
        start_s, end_s = self.env.now, self.env.now + seconds
        try:
            while self.env.now < end_s:
                try:
                    yield self.env.timeout(end_s - self.env.now)
                except Interrupt as interrupt:
                    self._heed(interrupt.cause)
        finally:
            self.record.spend(cause, self.env.now - start_s)
            self.record.span("run", cause, start_s, self.env.now, name or cause)


def _word(failure: Failure) -> str:
    return "stops" if failure.effect == "planned" else "failures"
