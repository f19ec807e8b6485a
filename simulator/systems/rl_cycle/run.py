"""The cycle itself: a trainer and a pool of rollout engines as two SimPy processes that meet at batches and updates.

    trainer   batch i done? -> [release, onload] -> train i -> [offload] -> stop rollouts -> update -> [KV] -> next
    rollouts  requests of batches 0 .. version + staleness, in order; stopped while the update pauses them

Brackets: the switch of colocated GPUs. With staleness 0 the two alternate; otherwise they run at once. Batches are
trained on in order, and batch b starts at version b - staleness or later, so no request is older than the bound.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event, Interrupt

from ...program import ProgramBuilder
from ...timeline import Timeline
from .plan import CyclePlan
from .pool import Pool

Process = Generator[Event, object, None]


@dataclass(frozen=True)
class Request:
    """One request: `version` and `start_s` are those of its first kept token, `end_s` is NaN if it still runs.

    `engine` is the last one that ran it.
    """

    number: int
    batch: int
    tokens: int
    engine: int
    version: int
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class CycleRun:
    """The run: spans, requests, and for each step its end and how long rollouts were paused and drained.

    Full KV caches `preempted` requests so many times, warm-up included.

    `busy[i]` slots decode from `busy_since_s[i]` to the next entry.
    """

    plan: CyclePlan
    timeline: Timeline
    requests: tuple[Request, ...]
    step_end_s: NDArray[np.float64]
    pause_s: NDArray[np.float64]
    drain_s: NDArray[np.float64]
    lost_tokens: NDArray[np.float64]
    preempted: int
    busy_since_s: NDArray[np.float64]
    busy: NDArray[np.int64]

    def staleness(self, since_step: int = 0) -> NDArray[np.int64]:
        """Versions between the start of each request and the training on it."""
        trained = [one for one in self.requests if since_step <= one.batch < self.plan.steps]
        return np.array([one.batch - one.version for one in trained], np.int64)


def run_cycle(plan: CyclePlan) -> CycleRun:
    """Run all steps; rollouts are cut off at the end of the last."""
    return _Cycle(plan).run()


class _Cycle:
    """The state of one run."""

    def __init__(self, plan: CyclePlan):
        self.plan, self.env, self.record = plan, Environment(), _Record(plan)
        rollouts = plan.rollouts
        self.pool = Pool(rollouts.engines, rollouts.slots, rollouts.pace, rollouts.samples)
        self.version = 0
        self.opening: tuple[int, ...] = ()  # the span whose end let rollouts go on
        self.tokens = list[int]()
        self.begun: dict[int, tuple[int, int, float]] = {}  # request: engine, version, time
        self.ended: dict[int, float] = {}
        self.missing: list[int] = []  # requests that each batch still waits for
        self.oldest = 0  # the first batch that waits for any
        self.complete: list[Event] = []
        self.completed_by: dict[int, tuple[int, ...]] = {}
        self.quiet: Event | None = None
        self.step_end, self.pauses, self.drains = list[float](), list[float](), list[float]()
        self.lost, self.busy = list[float](), [(0.0, 0)]
        self._allow()
        self.rolling = self.env.process(self._roll_out())

    def run(self) -> CycleRun:
        self.env.run(self.env.process(self._train()))
        self.record.close(self.record.engines, self.env.now)
        since, busy = zip(*self.busy, strict=True)
        return CycleRun(
            plan=self.plan,
            timeline=self.record.timeline(),
            requests=tuple(self._request(number) for number in sorted(self.begun)),
            step_end_s=np.array(self.step_end),
            pause_s=np.array(self.pauses),
            drain_s=np.array(self.drains),
            lost_tokens=np.array(self.lost),
            preempted=self.pool.preempted,
            busy_since_s=np.array(since),
            busy=np.array(busy, np.int64),
        )

    # The trainer

    def _train(self) -> Process:
        plan, after = self.plan, tuple[int, ...]()
        for step in range(plan.steps):
            yield self.complete[step]
            after += self.completed_by[step]
            stopped_s = self.env.now
            after = yield from self._phase("prepare", plan.prepare_s, step, after)
            if plan.switch is not None:
                after = yield from self._phase("release", plan.switch.release_s, step, after)
                after = yield from self._phase("onload", plan.switch.onload_s, step, after)
            after = yield from self._phase("train", plan.train_s, step, after)
            if plan.switch is not None:
                after = yield from self._phase("offload", plan.switch.offload_s, step, after)
            drained_s = self.env.now
            after = yield from self._stop_rollouts(after)
            self.drains.append(self.env.now - drained_s)
            if plan.switch is None:
                resumed = self.env.process(self._pause(step, after))
                after = yield from self._phase("update", plan.update_s, step, after)
                yield resumed
                self.pauses.append(plan.pause_s)
            else:
                after = yield from self._phase("update", plan.update_s, step, after)
                after = yield from self._phase("kv_alloc", plan.switch.kv_alloc_s, step, after)
                self._go_on(after)
                self.pauses.append(self.env.now - stopped_s)
            self.step_end.append(self.env.now)

    def _phase(
        self, kind: str, seconds: float, step: int, after: tuple[int, ...]
    ) -> Generator[Event, object, tuple[int, ...]]:
        """A span on the trainer's GPUs, which what follows waits for; none if it takes no time."""
        if seconds == 0:
            return after
        start_s = self.env.now
        yield self.env.timeout(seconds)
        return (self.record.add(kind, f"{kind} {step}", self.record.trainer, start_s, self.env.now, after, step),)

    def _pause(self, step: int, after: tuple[int, ...]) -> Process:
        """The update as disaggregated engines see it: afterwards they go on with the new weights.

        Engines whose requests are kept would have decoded meanwhile, so theirs comes behind what they did; others have
        waited for the trainer.
        """
        start_s, pause_s = self.env.now, self.plan.pause_s
        if pause_s:
            yield self.env.timeout(pause_s)
            kept = [engine for engine in self.record.engines if self.pool.engines[engine].running]
            others = [engine for engine in self.record.engines if engine not in kept]
            parts = ((kept, (*self.record.last_of(kept), *after)), (others, after))
            after = tuple(
                self.record.add("pause", f"update {step}", engines, start_s, self.env.now, before, step)
                for engines, before in parts if engines
            )  # fmt: skip
        self._go_on(after)

    def _stop_rollouts(self, after: tuple[int, ...]) -> Generator[Event, object, tuple[int, ...]]:
        """Stop decoding: when running requests have ended, or at once, as the plan says."""
        self.pool.closed = self.plan.rollouts.interrupt == "drain"
        yield self.env.timeout(0)  # what ends at this instant has ended
        if self.pool.closed:
            if self.pool.running:
                self.quiet = self.env.event()
                yield self.quiet
                after += self.record.last_of(self.record.engines)
            self.pool.closed = False
        self.record.close(self.record.engines, self.env.now)
        self.pool.halt(self.env.now)
        self.lost.append(self.pool.abort(self.env.now) if self.plan.rollouts.interrupt == "abort" else 0.0)
        self._note_busy()
        self.rolling.interrupt()
        return after

    def _go_on(self, after: tuple[int, ...]) -> None:
        """Engines go on with the new weights."""
        self.version += 1
        self.opening = after
        self.pool.go_on(self.env.now, recompute=self.plan.rollouts.interrupt == "keep")
        self._allow()
        self._watch(self.record.engines)
        self.rolling.interrupt()

    # The rollouts

    def _allow(self) -> None:
        """Add the batches that may start at this version."""
        rollouts = self.plan.rollouts
        while len(self.missing) <= self.version + self.plan.staleness:
            drawn = rollouts.lengths.draw(rollouts.requests, rollouts.seed, len(self.missing))
            self.pool.add(len(self.tokens), drawn, rollouts.draw_prompts(len(self.missing)))
            self.tokens += drawn
            self.missing.append(rollouts.requests)
            self.complete.append(self.env.event())

    def _roll_out(self) -> Process:
        changed = set[int]()
        while True:
            for number, engine in self.pool.deal(self.env.now):
                first = self.begun[number][1:] if number in self.pool.resumed else (self.version, self.env.now)
                self.begun[number] = (engine, *first)
                changed.add(engine)
            self._watch(sorted(changed))
            changed = set()
            next_s = self.pool.next_end_s()
            try:
                yield self.env.event() if next_s == np.inf else self.env.timeout(max(next_s - self.env.now, 0.0))
            except Interrupt:
                continue
            changed = self._finish()

    def _finish(self) -> set[int]:
        """End requests, and batches with them; the engines that changed."""
        done, completed = self.pool.finish(self.env.now), list[int]()
        for number, _ in done:
            self.ended[number] = self.env.now
            batch = number // self.plan.rollouts.requests
            self.missing[batch] -= 1
            completed += [batch] * (not self.missing[batch])
        quiet = self.quiet is not None and not self.pool.running
        closed = self.record.close(self.record.engines, self.env.now) if completed or quiet else ()
        for batch in completed:
            self.completed_by[batch] = closed
            self.complete[batch].succeed()
        while self.oldest < len(self.missing) and not self.missing[self.oldest]:
            self.oldest += 1
        if self.quiet is not None and quiet:
            self.quiet.succeed()
            self.quiet = None
        return {engine for _, engine in done} if done and not completed else set(self.record.engines)

    # What is written down

    def _request(self, number: int) -> Request:
        engine, version, start_s = self.begun[number]
        batch, end_s = number // self.plan.rollouts.requests, self.ended.get(number, np.nan)
        return Request(number, batch, self.tokens[number], engine, version, start_s, end_s)

    def _watch(self, engines: Iterable[int]) -> None:
        for engine in engines:
            self.record.watch(engine, self._kind(engine), self.oldest, self.env.now, self.opening)
        self._note_busy()

    def _kind(self, engine: int) -> str:
        """`rollout` if an engine decodes in at least half of the slots that a batch can fill, else `tail`."""
        running = len(self.pool.engines[engine].running)
        if not running or self.pool.halted:
            return ""
        return "rollout" if 2 * running * len(self.pool.engines) >= self.plan.rollouts.usable else "tail"

    def _note_busy(self) -> None:
        busy = 0 if self.pool.halted else self.pool.running
        if busy != self.busy[-1][1]:
            self.busy.append((self.env.now, busy))


class _Record:
    """Spans of a run as ops of a Program with their times.

    A lane for each engine, then one for the trainer if it has GPUs of its own.
    """

    def __init__(self, plan: CyclePlan):
        self.engines = tuple(range(plan.rollouts.engines))
        self.trainer = self.engines if plan.switch is not None else (len(self.engines),)
        self._builder = builder = ProgramBuilder()
        each, gpus = plan.rollout_gpus // plan.rollouts.engines, plan.rollout_gpus
        places = [(f"engine {engine}", range(engine * each, (engine + 1) * each)) for engine in self.engines]
        places += [("trainer", range(gpus, gpus + plan.trainer_gpus))] if plan.switch is None else []
        self._lanes = [builder.lane(builder.place(name, ranks), "gpu") for name, ranks in places]
        self._start_s, self._end_s, self._cause = list[float](), list[float](), list[int]()
        self._last: dict[int, int] = {}  # by lane, its last span
        self._open: dict[int, tuple[str, int, float, tuple[int, ...]]] = {}  # by engine: kind, step, start, after

    def add(
        self, kind: str, name: str, lanes: Sequence[int], start_s: float, end_s: float, after: Sequence[int], step: int
    ) -> int:
        """Add a span that has ended; its number. `after`: the spans that it waited for, the last of which is its cause.

        Of those that end at once it is the first.
        """
        span = self._builder.op(kind, [self._lanes[lane] for lane in lanes], after, name=name, tags={"step": step})
        self._start_s.append(start_s)
        self._end_s.append(end_s)
        self._cause.append(max(after, key=lambda before: self._end_s[before], default=-1))
        self._last.update(dict.fromkeys(lanes, span))
        return span

    def watch(self, engine: int, kind: str, step: int, now_s: float, opening: tuple[int, ...]) -> None:
        """Note what an engine does from now on ("" for nothing); it waited for `opening` if it was idle until now."""
        if self._open.get(engine, ("",))[0] == kind:
            return
        self.close([engine], now_s)
        if kind:
            last = self._last.get(engine, -1)
            goes_on = last >= 0 and self._end_s[last] == now_s
            self._open[engine] = kind, step, now_s, (last,) if goes_on else opening

    def close(self, engines: Iterable[int], now_s: float) -> tuple[int, ...]:
        """End the open spans of these engines now; their numbers."""
        closed = list[int]()
        for engine in engines:
            kind, step, start_s, after = self._open.pop(engine, ("", 0, 0.0, ()))
            if kind and start_s < now_s:
                closed.append(self.add(kind, f"{kind} {step}", [engine], start_s, now_s, after, step))
        return tuple(closed)

    def last_of(self, engines: Iterable[int]) -> tuple[int, ...]:
        """The last span of each of these engines that has one."""
        return tuple(self._last[engine] for engine in engines if engine in self._last)

    def timeline(self) -> Timeline:
        """All spans."""
        return Timeline(
            program=self._builder.build(),
            start_s=np.array(self._start_s),
            end_s=np.array(self._end_s),
            cause=np.array(self._cause, np.int64),
            cancelled=np.zeros(len(self._cause), bool),
        )
