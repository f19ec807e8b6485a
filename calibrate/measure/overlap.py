"""Two things at the same time: how long each takes beside the other, and alone.

Both lanes repeat an act and mark the clock after each; they start together and may end apart. What counts is only what
surely ran beside the other: an act that began after the other lane's first act had ended, and ended before its last.
Alone is measured in the same way, so that a ratio is of like with like. On CUDA a lane is a stream, elsewhere a thread.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from .device import Act, Lane, Marks, repeat
from .timing import Bench, Measurement, warm_up

_FEWEST_STEPS, _MOST_STEPS = 12, 200
_MOST_PASSES = 1000
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 8
_NOISE_PER_STEPS = 4  # the steps last as long as so many acts of the noise, so that both sides have samples
_OUTLAST = 2.0  # the noise lasts so much longer than the steps would alone
_MORE = 4  # times as many steps, if they are too few
_LONG_TRY_S = 1.0  # what took longer is not tried again with more steps
_STEP_S = 2e-4  # a step lasts at least this long, over several acts if need be
_TRIAL = 4  # acts from which estimates come, and of the noise at the least


@dataclass
class _Samples:
    """Seconds of every step and of every act of the noise: alone, and beside the other."""

    alone: list[float] = field(default_factory=list)
    noise_alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    noise_beside: list[float] = field(default_factory=list)


def measure_overlap(bench: Bench, work: Act, noise: Act | None) -> Measurement:
    """Seconds of `work` beside `noise`, or alone where there is none.

    `more` has medians in seconds: `alone_s` of the work, `noise_alone_s` and `noise_beside_s` of one act of the noise
    (None without noise, or if none of its acts lay within the steps), each the mean of the ranks; and this rank's raw
    `alone_samples_s`. The noise may be a collective of the team: every rank issues it equally often.

    Raises:
        RuntimeError: no step ran beside the noise.
    """
    lane, times, step_s = _step(bench, work, _STEP_S)
    samples, passes = _Samples(), 0
    if noise is None:
        for _ in range(_rounds(bench, _FEWEST_STEPS * step_s)):
            samples.alone += _run_alone(bench, replace(lane, repeats=_FEWEST_STEPS))
        samples.beside = samples.alone
    else:
        other, _, noise_s = _step(bench, noise)
        samples, passes = _run_both(bench, lane, step_s, other, noise_s)
        if bench.slowest(0.0 if samples.beside else 1.0):  # of one rank, so of all: they stay in step
            raise RuntimeError("no step ran beside the noise: the device did one after the other")
    alone = [s / times for s in samples.alone]
    more = {
        "alone_s": _mean_median(bench, alone),
        "noise_alone_s": _mean_median(bench, samples.noise_alone),
        "noise_beside_s": _mean_median(bench, samples.noise_beside),
        "noise_acts": passes,
        "acts_per_sample": times,
        "alone_samples_s": alone,
    }
    return Measurement(tuple(s / times for s in samples.beside), more=more)


def _mean_median(bench: Bench, samples: Sequence[float]) -> float | None:
    """The mean of the medians of those ranks that have samples."""
    medians = [one for one in bench.exchange(median(samples) if samples else None) if one is not None]
    return sum(medians) / len(medians) if medians else None


def _step(bench: Bench, act: Act, least_s: float = 0.0) -> tuple[Lane, int, float]:
    """The act as often in a row as takes at least so long: a lane of it, how often, and seconds on the slowest rank."""
    _, issue_s = warm_up(bench, act)
    one_s = max(bench.slowest(median(_run_alone(bench, Lane(act, _TRIAL, issue_s)))), 1e-7)
    times = _clamp(least_s / one_s, 1, _MOST_STEPS)
    return Lane(repeat(act, times) if times > 1 else act, 1, times * issue_s), times, times * one_s


def _clamp(value: float, least: int, most: int) -> int:
    return min(max(math.ceil(value), least), most)


def _rounds(bench: Bench, round_s: float) -> int:
    return _clamp(bench.budget_s / round_s, _FEWEST_ROUNDS, _MOST_ROUNDS)


def _run_both(bench: Bench, work: Lane, step_s: float, noise: Lane, noise_s: float) -> tuple[_Samples, int]:
    """Samples of several rounds, and how often the noise was done in each round; the same on all ranks.

    Where one side slows the other so much that it has no whole act beside it, rounds with more steps follow.
    """
    fewest = _clamp(_NOISE_PER_STEPS * noise_s / step_s, _FEWEST_STEPS, _MOST_STEPS)
    for steps in (fewest, _MORE * fewest):
        start_s = time.monotonic()
        passes = _clamp(_OUTLAST * steps * step_s / noise_s + 2, _TRIAL, _MOST_PASSES)
        work, noise, samples = replace(work, repeats=steps), replace(noise, repeats=passes), _Samples()
        for _ in range(_rounds(bench, steps * step_s)):
            samples.alone += _run_alone(bench, work)
            samples.noise_alone += _run_alone(bench, replace(noise, repeats=_TRIAL))
            bench.meet()
            theirs, ours = bench.device.run_lanes([noise, work])
            samples.beside += _seconds_within(ours, theirs)
            samples.noise_beside += _seconds_within(theirs, ours)
        enough = samples.beside and samples.noise_beside
        if bench.slowest(time.monotonic() - start_s) > _LONG_TRY_S or not bench.slowest(0.0 if enough else 1.0):
            break
    return samples, passes


def _run_alone(bench: Bench, lane: Lane) -> list[float]:
    """Seconds of every act but the first."""
    bench.meet()
    (marks,) = bench.device.run_lanes([lane])
    return _seconds_within(marks, marks)


def _seconds_within(marks: Marks, other: Marks) -> list[float]:
    """How long the acts took that lay within the other lane's time; of neither lane does the first act count."""
    return [b - a for a, b in pairwise(marks[1:]) if other[1] <= a and b <= other[-1]]
