"""Training as one process: rounds, checkpoints and failures, one after the other, over weeks.

Between two events that change anything (a failure, a rank that turns slow, a node that returns), rounds and the
checkpoints among them are drawn all at once; the process sleeps until the last of them, or until it is interrupted.
Work since the last checkpoint that is safe is lost with a failure, and done again.
"""

from collections.abc import Mapping
from math import ceil, inf

import numpy as np
from simpy import Environment, Interrupt
from simpy.events import ProcessGenerator

from ....base.arrays import Floats
from ..history import MOST_SPANS, History, Recorder
from ..sync.rounds import Parts
from ..target import Stage
from .chart import LANE, TrainingChart
from .failures import Failure
from .input import Queues, mean_batch_s, queues_of
from .plan import TrainingPlan
from .ranks import Ranks
from .saved import Saved, Stretch

_MOST_ROUNDS = 65_536  # drawn at once
_FIRST_ROUNDS = 16  # while nothing is known of how long they take
_ROUNDING = 1e-6  # of a round, of samples that are summed over all of them


def run_training(plan: TrainingPlan) -> History:
    """Train until the steps are done, or the time is over."""
    return _Training(plan).run()


class _Stopped(Exception):  # noqa: N818  # a signal inside this module
    """The run has to stop for this."""

    def __init__(self, failure: Failure):
        self.failure = failure


class _Over(Exception):  # noqa: N818
    """The time of the run is over."""


_OF_RANKS = ("compute", "wait")
"""What ranks take for the steps of a round."""
_TURNED = "a rank takes another time for its steps"
"""Why the trainer is interrupted where a speed changes."""


class _Training:
    """The state of one run."""

    def __init__(self, plan: TrainingPlan):
        self.plan, self.env, self.record = plan, Environment(), Recorder(MOST_SPANS if plan.drawn else 0)
        self.rng = np.random.default_rng((plan.seed, 0))
        self.saved = Saved(plan.saving, plan.work_s)
        self.ranks = Ranks(plan.crew, plan.workers, plan.nodes, plan.spares, plan.speed, plan.elastic)
        self.queues = Queues(plan.input.prefetch) if plan.input is not None else None
        self.chart, self.over = TrainingChart(self.record, plan.drawn), False
        self.mean_s, self.next_failure_s = 0.0, inf  # of the rounds that were drawn last
        self.round_s: float | None = None  # what ranks take for the round in work, as fast as they are, if they turned
        self.broken: list[Failure] = []  # what has failed since training stands, and is not replaced yet
        self.noticed_s = -inf  # when all of it is noticed
        self.save_end_s: float | None = None  # of the checkpoint before a planned stop
        self.restarts_s = plan.restart.draw(plan.seed)
        for turn in plan.speed.turn:  # before the trainer: its first round has ranks that are slow from the start
            self.env.process(self._turn(turn.at, turn.rank, turn.factor, turn.lasts, plan.repair_s))
        self.trainer = self.env.process(self._train())

    def run(self) -> History:
        self.env.process(self._fail())
        if self.plan.wall_s < inf:
            self.env.process(self._end())
        self.env.run(self.trainer)
        kept = self.saved.all
        for cause, seconds in kept.seconds.items():
            self.record.spend(cause, seconds)
        return self.record.history(self.env.now, kept.steps, kept.samples, {0: kept.steps})

    # What the trainer does

    def _train(self) -> ProcessGenerator:
        try:
            if self.plan.starts:
                yield from self._go_on("start")
            while self._left() > 0:
                try:
                    yield from self._work()
                except _Stopped as stopped:
                    self._stop(stopped.failure, works=True)
                    yield from self._go_on()
        except _Over:
            pass

    def _left(self) -> float:
        """Steps until the end of the run, if they stay as they are now."""
        done, samples = self.saved, self._samples_in_step
        rounding = _ROUNDING if done.steps else 0.0  # the first step is made, however few samples are asked for
        left = min(self.plan.steps - done.steps, (self.plan.enough - done.samples) / samples - rounding)
        return ceil(left) if left < inf else inf

    @property
    def _samples_in_step(self) -> float:
        """What all workers that are fed train on."""
        return self.plan.samples * self.ranks.fed * self._stage.batch

    def _work(self) -> ProcessGenerator:
        """Rounds with the checkpoints between them, until something changes."""
        yield from self._take_back()
        stretch = self._draw()
        start_s, over_s = self.env.now, stretch.length_s
        try:
            while self.env.now < start_s + over_s:
                try:
                    yield self.env.timeout(start_s + over_s - self.env.now)
                except Interrupt as interrupt:
                    self._heed(interrupt.cause)
                    if interrupt.cause == _TURNED:
                        stretch = self._turn_round(stretch, self.env.now - start_s)
                    over_s = stretch.next_end_s(self.env.now - start_s)
        finally:
            self._keep(stretch, start_s)

    def _turn_round(self, stretch: Stretch, at_s: float) -> Stretch:
        """The stretch with the rest of the round that runs now at other speeds of ranks; a single step is not cut."""
        rounds = self.plan.rounds_of(self.ranks.workers).shorten(stretch.steps)
        if stretch.steps == 1 or (share := stretch.share_done(at_s, rounds.after_s)) is None:
            return stretch
        new = self._of_batch(rounds.draw(self.rng, 1, self.ranks.crew))
        now = {cause: float(stretch.parts[cause][stretch.ended(at_s)]) for cause in _OF_RANKS}
        own_s, full_s = sum(now.values()), sum(float(new[cause][0]) for cause in _OF_RANKS)
        left, self.round_s = (1 - share) * own_s / (self.round_s or own_s), full_s
        return stretch.change(at_s, {cause: share * now[cause] + left * float(new[cause][0]) for cause in _OF_RANKS})

    def _draw(self) -> Stretch:
        """The next rounds and checkpoints, as long as nothing changes."""
        self.round_s = None
        left, stage = self._left(), self._stage
        rounds = self.plan.rounds_of(self.ranks.workers).shorten(left)
        soon_s = min(self.next_failure_s, self.ranks.next_return_s if self.ranks.gaps else inf)
        alike = min(stage.until - self.saved.steps, self._before_epoch) / rounds.steps
        count = int(min(left / rounds.steps, ceil(min(alike, self._before(soon_s), _MOST_ROUNDS))))
        parts = self._of_batch(rounds.draw(self.rng, count, self.ranks.crew))
        if self.queues is not None:
            parts["input"] = self._feed(sum(parts.values(), np.zeros(count)), rounds.steps, stage.batch)
        if self.plan.pauses:
            parts["pause"] = self._pauses(count, rounds.steps)
        self.mean_s = sum(float(part.mean()) for part in parts.values())
        samples, is_last = rounds.steps * self._samples_in_step, count * rounds.steps >= left
        return self.saved.plan(parts, rounds.steps, samples, self.env.now, last=is_last)

    def _of_batch(self, parts: Parts) -> dict[str, Floats]:
        """Parts of rounds with what ranks take for the batch size that the next round has."""
        return {cause: self._stage.time * part if cause in _OF_RANKS else part for cause, part in parts.items()}

    def _pauses(self, count: int, steps: int) -> Floats:
        """How long training stands after each of the next rounds of so many steps."""
        done = self.saved.steps + steps * np.arange(count + 1)
        return sum((np.diff(done // every) * seconds for every, seconds in self.plan.pauses), np.zeros(count))

    @property
    def _stage(self) -> Stage:
        """The batch size that the next round has."""
        done = self.saved.steps + 1e-9
        return next((stage for stage in self.plan.batches if stage.until > done), Stage(inf, 1.0, 1.0))

    def _before(self, at_s: float) -> float:
        """About how many rounds there are until then: drawing more is of no use."""
        if not self.mean_s:
            return _FIRST_ROUNDS
        return max(at_s - self.env.now, 0.0) / self.mean_s + 1

    @property
    def _read(self) -> float:
        """Samples that all workers have read so far."""
        return self.saved.steps * self._read_in_step

    @property
    def _read_in_step(self) -> float:
        return 0.0 if self.plan.input is None else self.plan.input.samples * self.plan.workers

    @property
    def _before_epoch(self) -> float:
        """Steps until caches are warm."""
        if self.plan.input is None or self.plan.input.dataset is None:
            return inf
        left = (self.plan.input.dataset - self._read) / self._read_in_step
        return left if left > 1e-9 else inf

    def _feed(self, step_s: Floats, steps: int, batch: float) -> Floats:
        """How long rounds wait for input, which shares the store with a checkpoint that is being written.

        A worker reads `batch` times its usual samples, and those of workers that have left.
        """
        said, queues, workers = self.plan.input, self.queues, self.ranks.workers
        assert said is not None
        assert queues is not None
        epoch = int(self._read / (said.dataset or inf))
        more, own_s = batch * self.ranks.fed / workers, float(step_s.mean()) / steps
        calm_s, busy_s = (more * said.batch_s(workers, epoch, taken) for taken in (0.0, self.saved.fair_write_share))
        self.saved.share_store(more * said.store_s(workers, epoch) / max(own_s, busy_s))
        batch_s = mean_batch_s(own_s, calm_s, busy_s, self.saved.writing_share)
        number, jitter = queues_of(workers, said.prefetch, said.jitter, steps)
        queues.resize(number)
        each_s = np.full(len(step_s), batch_s)
        return queues.feed(step_s, each_s, lambda batches: jitter.draw(self.rng, (batches, number)), steps)

    def _keep(self, stretch: Stretch, start_s: float) -> None:
        """Count what was done of a stretch."""
        lasted_s = self.env.now - start_s
        done = self.saved.keep(stretch, lasted_s, self.env.now)
        self.record.spend("checkpoint", done.stalled_s)
        cut_off = "unfinished" if self.over else "lost"
        self.record.spend(cut_off, done.unfinished_s)
        self.record.count("checkpoints", done.checkpoints)
        work = stretch.work(0, done.rounds)
        seconds = work.seconds | {"checkpoint": done.stalled_s, cut_off: done.unfinished_s}
        self.chart.work(seconds, start_s, f"{work.steps:,} steps")
        self.chart.checkpoints(stretch, lasted_s, start_s)
        self.chart.steps(stretch.parts, done.rounds, start_s)

    # Failures

    def _fail(self) -> ProcessGenerator:
        for failure in self.plan.failures():
            self.next_failure_s = failure.at_s
            yield self.env.timeout(max(failure.at_s - self.env.now, 0.0))
            if not self.trainer.is_alive:
                return
            if failure.effect == "slow":
                node = self.ranks.first_node if failure.of_job else failure.nodes[0]
                self.env.process(self._turn(0.0, self.ranks.rank_of(node), failure.factor, None, failure.repair_s))
            else:
                self._interrupt(failure)
        self.next_failure_s = inf

    def _interrupt(self, failure: Failure) -> None:
        """Tell the trainer, if it needs any of the nodes; others are away until they are noticed and repaired.

        Software stops the run whichever nodes are there.
        """
        there = set(failure.nodes) - self.ranks.gaps
        if failure.of_job or any(map(self.ranks.is_needed, there)):
            self.trainer.interrupt(failure)
        elif there:
            self._note(failure)
            noticed_s = self.env.now + (failure.detect_s if failure.effect == "stop" else 0.0)
            self._send_away(dict.fromkeys(there, noticed_s + failure.repair_s))
            self.trainer.interrupt(None)

    def _turn(
        self, wait_s: float, rank: int, factor: float, lasts_s: float | None, repair_s: float
    ) -> ProcessGenerator:
        """A rank turns slow, and is found, is well again, or neither. One that is found is replaced, and repaired."""
        if wait_s:
            yield self.env.timeout(wait_s)
        node = self.ranks.node_of(rank)
        if node in self.ranks.gaps:
            return
        self._set_speed(rank, factor, f"rank {rank} takes {factor:g} times longer")
        detect_s = self.plan.speed.detect
        if detect_s is not None and (lasts_s is None or detect_s < lasts_s):
            yield self.env.timeout(detect_s)
            if self.trainer.is_alive and self.ranks.turned.get(rank):
                self._interrupt(Failure(self.env.now, f"slow rank {rank}", (node,), "planned", 0.0, repair_s))
        elif lasts_s is not None:
            yield self.env.timeout(lasts_s)
            self._set_speed(rank, 1.0, f"rank {rank} is as fast as before")

    def _set_speed(self, rank: int, factor: float, words: str) -> None:
        if self.trainer.is_alive:
            self.ranks.turn(rank, factor)
            self.record.happen(self.env.now, "speed", words)
            if self.env.now:  # else it has not begun
                self.trainer.interrupt(_TURNED)

    def _end(self) -> ProcessGenerator:
        yield self.env.timeout(self.plan.wall_s)
        if self.trainer.is_alive:
            self.trainer.interrupt(_Over())

    def _heed(self, news: object) -> None:
        """Raise what stops the trainer; everything else waits until the round has ended."""
        if isinstance(news, _Over):
            self.over = True
            raise news
        if isinstance(news, Failure):
            raise _Stopped(news)

    def _stop(self, failure: Failure, *, works: bool) -> None:
        """Training stands for a failure; `works`: it went on until now, so a planned stop has something to save."""
        self._note(failure)
        self.broken.append(failure)
        planned, saving = failure.effect == "planned", self.plan.saving
        if not planned:
            self.noticed_s = max(self.noticed_s, self.env.now + failure.detect_s)
        if not planned or saving is None:
            self._lose()
        elif works:
            self.save_end_s = self.env.now + saving.stall_s + saving.write_s

    def _note(self, failure: Failure) -> None:
        self.record.happen(self.env.now, _word(failure), f"{failure.name}, {failure.place}")

    def _go_on(self, cause: str = "restart") -> ProcessGenerator:
        """Until training goes on. What fails meanwhile is noticed and replaced, too; then the restart begins anew."""
        while True:
            try:
                yield from self._save_all()
                yield from self._spend("detect", max(self.noticed_s - self.env.now, 0.0), self._broken_names)
                yield from self._replace()
                yield from self._spend(cause, next(self.restarts_s))
                return
            except _Stopped as stopped:
                cause = "restart"
                self._stop(stopped.failure, works=False)

    @property
    def _broken_names(self) -> str:
        return ", ".join(dict.fromkeys(failure.name for failure in self.broken))

    def _save_all(self) -> ProcessGenerator:
        """Save what is done before a stop that was planned, unless a failure has undone it meanwhile."""
        if self.save_end_s is None:
            return
        yield from self._spend("checkpoint", max(self.save_end_s - self.env.now, 0.0), "before a stop")
        self.record.count("checkpoints")
        self.saved.save()
        self.save_end_s = None

    def _lose(self) -> None:
        """What is not safe is lost."""
        self.save_end_s = None
        lost = self.saved.lose(self.env.now)
        self.record.spend("lost", lost.length_s)
        self.chart.lose(lost.seconds)

    def _replace(self) -> ProcessGenerator:
        """Take spare nodes for those that failed, go on without them, or wait until enough are repaired."""
        names = self._broken_names
        self._send_broken_away()
        self.ranks.fill(self.env.now)
        if self.ranks.can_go_on:
            yield from self._resize()
        while not self.ranks.can_go_on:
            yield from self._spend("repair", max(self.ranks.next_return_s - self.env.now, 0.0), names)
            self.ranks.fill(self.env.now)

    def _send_broken_away(self) -> None:
        """Nodes that failed are away until they are repaired; one that failed twice until the longer repair ends.

        Software that is started again changes no node, unless its cause says for how long one is away.
        """
        until_s: dict[int, float] = {}
        for failure in (one for one in self.broken if one.repair_s or not one.of_job):
            for node in set(failure.nodes) - self.ranks.gaps:
                until_s[node] = max(self.env.now + failure.repair_s, until_s.get(node, 0.0))
        self.broken.clear()
        self._send_away(until_s)

    def _send_away(self, until_s: Mapping[int, float]) -> None:
        """Nodes are away until they are there again as new."""
        for node, at_s in until_s.items():
            self.ranks.renew(node)
            if at_s > self.env.now:
                self.ranks.send_away(node, at_s)

    def _take_back(self) -> ProcessGenerator:
        """Nodes that have returned fill gaps; samples are shared anew if speeds have changed."""
        if self.ranks.gaps and self.ranks.next_return_s <= self.env.now:
            self.ranks.fill(self.env.now)
            yield from self._resize()
        if self.ranks.unbalanced:
            self.ranks.unbalanced = False
            yield from self._spend("resize", self.plan.speed.rebalance, "samples are shared anew")

    def _resize(self) -> ProcessGenerator:
        if self.plan.elastic is not None and self.ranks.is_resized:
            self.mean_s = 0.0
            self.record.happen(self.env.now, "resize", f"{self.ranks.workers} workers, {len(self.ranks.gaps)} gaps")
            yield from self._spend("resize", self.plan.elastic.resize)
            self.ranks.settle()

    # Time

    def _spend(self, cause: str, seconds: float, name: str = "") -> ProcessGenerator:
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
            self.record.span(LANE, cause, start_s, self.env.now, name or cause)


def _word(failure: Failure) -> str:
    return "stops" if failure.effect == "planned" else "failures"
