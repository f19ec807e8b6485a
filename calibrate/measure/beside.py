"""Two things at the same time: how long each takes beside the other, and alone.

Both lanes repeat an act and mark the clock after each; they start together and may end apart. What counts is only what
surely ran beside the other: an act that began after the other lane's first act had ended, and ended before its last.
Alone is measured in the same way, so that a ratio is of like with like. On CUDA a lane is a stream, elsewhere a thread.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from .case import Act, Measurement
from .statistics import median
from .timing import Bench, warm_up

_FEWEST_STEPS, _MOST_STEPS = 12, 200
_MOST_PASSES = 1000
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 8
_NOISE_PER_STEPS = 4  # the steps last as long as so many acts of the noise, so that both sides have samples
_OUTLAST = 2.0  # the noise lasts so much longer than the steps would alone
_MORE = 4  # times as many steps, if they are too few
_STEP_S = 2e-4  # a step lasts at least this long, over several acts if need be
_TRIAL = 4  # acts from which estimates come, and of the noise at the least
_EVENT_S = 5e-6  # of the host, to make and record an event, at the most
_SPIN_HZ = 2e9  # cycles of `torch.cuda._sleep` per second, roughly
_LONGEST_HOLD_S = 0.02


@dataclass(frozen=True)
class Lane:
    """An act, how often it is repeated, and what the host needs to issue it once."""

    act: Act
    repeats: int
    issue_s: float

    @property
    def issued_s(self) -> float:
        """What the host needs to issue all of it, with its marks."""
        return (self.issue_s + _EVENT_S) * (self.repeats + 1)


Marks = list[float]
"""Seconds on a clock that all lanes share: where a lane began, and where each of its acts ended."""

Run = Callable[[Sequence[Lane]], list[Marks]]
"""Runs lanes at the same time."""


def beside(bench: Bench, work: Act, noise: Act | None) -> Measurement:
    """Seconds of `work` beside `noise`, or alone where there is none.

    `more` has medians in seconds: `alone_s` of the work, `noise_alone_s` and `noise_beside_s` of one act of the noise
    (None without noise, or if none of its acts lay within the steps), each the mean of the ranks; and this rank's raw
    `alone_samples_s`. The noise may be a collective of the team: every rank issues it equally often.

    Raises:
        RuntimeError: no step ran beside the noise.
    """
    run = _on_streams(bench) if bench.facts.cuda else _in_threads
    step = _step(bench, run, work)
    if noise is None:
        lane = step.lane(_FEWEST_STEPS)
        alone = [s for _ in range(_rounds(bench, step, lane.repeats)) for s in _alone(bench, run, lane)]
        return _told(bench, step, [_Round(alone, [], alone, [])], 0)
    other = _Act.of(bench, run, noise)
    rounds, passes = _both(bench, run, step, other)
    if bench.slowest(0.0 if any(one.beside for one in rounds) else 1.0):  # of one rank, so of all: they stay in step
        raise RuntimeError("no step ran beside the noise: the device did one after the other")
    return _told(bench, step, rounds, passes)


@dataclass(frozen=True)
class _Round:
    """Seconds of every step and of every act of the noise: alone, and beside the other."""

    alone: list[float]
    noise_alone: list[float]
    beside: list[float]
    noise_beside: list[float]


def _told(bench: Bench, step: "_Act", rounds: Sequence[_Round], passes: int) -> Measurement:
    alone = [s / step.times for one in rounds for s in one.alone]
    more = {
        "alone_s": _of_all(bench, alone),
        "noise_alone_s": _of_all(bench, [s for one in rounds for s in one.noise_alone]),
        "noise_beside_s": _of_all(bench, [s for one in rounds for s in one.noise_beside]),
        "noise_acts": passes,
        "acts_per_sample": step.times,
        "alone_samples_s": alone,
    }
    return Measurement(tuple(s / step.times for one in rounds for s in one.beside), more=more)


def _of_all(bench: Bench, samples: Sequence[float]) -> float | None:
    """The mean of the medians of those ranks that have samples."""
    told = [json.loads(text) for text in bench.exchange(json.dumps(median(samples) if samples else None))]
    known = [float(one) for one in told if one is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class _Act:
    """An act that does something so many times; its seconds on the slowest rank, and those until it is issued."""

    act: Act
    times: int
    seconds: float
    issue_s: float

    @classmethod
    def of(cls, bench: Bench, run: Run, act: Act) -> "_Act":
        _, issue_s = warm_up(bench, act)
        seconds = median(_alone(bench, run, Lane(act, _TRIAL, issue_s)))
        return cls(act, 1, max(bench.slowest(seconds), 1e-7), issue_s)

    def lane(self, repeats: int) -> Lane:
        return Lane(self.act, repeats, self.issue_s)


def _step(bench: Bench, run: Run, work: Act) -> _Act:
    """The work as often in a row as makes a step that is long enough to be timed."""
    one = _Act.of(bench, run, work)
    times = _bounded(_STEP_S / one.seconds, 1, _MOST_STEPS)
    return one if times == 1 else _Act(_several(work, times), times, times * one.seconds, times * one.issue_s)


def _several(act: Act, times: int) -> Act:
    def acts() -> None:
        for _ in range(times):
            act()

    return acts


def _bounded(value: float, least: int, most: int) -> int:
    return min(max(math.ceil(value), least), most)


def _alone(bench: Bench, run: Run, lane: Lane) -> list[float]:
    """Seconds of every act but the first."""
    _meet(bench)
    (marks,) = run([lane])
    return _within(marks, marks)


def _rounds(bench: Bench, step: _Act, steps: int) -> int:
    return _bounded(bench.budget_s / (steps * step.seconds), _FEWEST_ROUNDS, _MOST_ROUNDS)


def _both(bench: Bench, run: Run, step: _Act, other: _Act) -> tuple[list[_Round], int]:
    """Rounds, each alone and together, and how often the noise was done in each; the same on all ranks.

    Where one side slows the other so much that it has no whole act beside it, rounds with more steps follow.
    """
    fewest = _bounded(_NOISE_PER_STEPS * other.seconds / step.seconds, _FEWEST_STEPS, _MOST_STEPS)
    for steps in (fewest, _MORE * fewest):
        passes = _bounded(_OUTLAST * steps * step.seconds / other.seconds + 2, _TRIAL, _MOST_PASSES)
        lanes = step.lane(steps), other.lane(passes)
        rounds = [_round(bench, run, *lanes) for _ in range(_rounds(bench, step, steps))]
        complete = any(one.beside for one in rounds) and any(one.noise_beside for one in rounds)
        if not bench.slowest(0.0 if complete else 1.0):
            break
    return rounds, passes


def _round(bench: Bench, run: Run, work: Lane, noise: Lane) -> _Round:
    alone = _alone(bench, run, work)
    noise_alone = _alone(bench, run, replace(noise, repeats=_TRIAL))
    _meet(bench)
    theirs, ours = run([noise, work])
    return _Round(alone, noise_alone, _within(ours, theirs), _within(theirs, ours))


def _within(marks: Marks, other: Marks) -> list[float]:
    """How long the acts took that lay within the other lane's time; of neither lane does the first act count."""
    inside = [(a, b) for a, b in pairwise(marks[1:]) if other[1] <= a and b <= other[-1]]
    return [b - a for a, b in inside]


def _meet(bench: Bench) -> None:
    """All ranks of the team are here, and nothing is under way."""
    bench.device.synchronize()
    align = bench.align()
    if align:
        align()
        bench.device.synchronize()


def _in_threads(lanes: Sequence[Lane]) -> list[Marks]:
    """The last lane in this thread, the others in threads of their own."""
    start = threading.Barrier(len(lanes))  # so that none begins before all are there

    def walk(lane: Lane) -> Marks:
        start.wait()
        marks = [time.perf_counter()]
        for _ in range(lane.repeats):
            lane.act()
            marks.append(time.perf_counter())
        return marks

    *others, last = lanes
    with ThreadPoolExecutor(max_workers=max(len(others), 1)) as threads:
        walking = [threads.submit(walk, lane) for lane in others]
        marks = walk(last)
        return [*(thread.result() for thread in walking), marks]


def _on_streams(bench: Bench) -> Run:
    """The last of two lanes on the current stream, the other on a new one: streams may share a queue, not all of them.

    A spin kernel holds both back while the host issues, so that the host is not timed. The lane that is issued sooner
    goes first: the other may be longer than a queue (1024), and the host then waits for the device.
    """
    device = bench.device.torch_device

    def run(lanes: Sequence[Lane]) -> list[Marks]:
        main = torch.cuda.current_stream(device)
        hold_s = 1.5 * sum(lane.issued_s for lane in lanes) + 1e-4
        torch.cuda._sleep(int(min(hold_s, _LONGEST_HOLD_S) * _SPIN_HZ))
        gate = torch.cuda.Event(enable_timing=True)
        gate.record()
        streams = [main] if len(lanes) == 1 else [torch.cuda.Stream(device), main]
        order = sorted(range(len(lanes)), key=lambda at: lanes[at].issued_s)
        events = {at: _issue(streams[at], gate, lanes[at]) for at in order}
        bench.device.synchronize()
        return [[1e-3 * gate.elapsed_time(event) for event in events[at]] for at in range(len(lanes))]

    return run


def _issue(stream: torch.cuda.Stream, gate: torch.cuda.Event, lane: Lane) -> list[torch.cuda.Event]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(lane.repeats + 1)]
    stream.wait_event(gate)
    with torch.cuda.stream(stream):
        events[0].record()
        for event in events[1:]:
            lane.act()
            event.record()
    return events
