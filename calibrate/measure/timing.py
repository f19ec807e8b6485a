"""Budgets: how often an act is repeated, hot, cold or on the host, and how its times become a measurement.

A case prepares its tensors and returns the act, or a `Checked` act whose results are looked at once it has been timed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from .bench import Bench
from .case import Act, Measure, Measurement

_WARM_UPS = 25
_FEWEST, _MOST = 5, 100
_HOT_SAMPLE_S = 1e-3  # a hot sample lasts at least this long, over several acts if need be
_MOST_INNER = 200


@dataclass(frozen=True)
class Checked:
    """An act, and how many elements of its result are wrong."""

    act: Act
    wrong: Callable[[], int]


Prepare = Callable[[Bench], Act | Checked]


def cold(prepare: Prepare) -> Measure:
    """Device seconds of single acts, caches emptied before each."""
    return lambda bench: _measured(bench, prepare(bench), cold=True)


def hot(prepare: Prepare) -> Measure:
    """Device seconds of acts in a row."""
    return lambda bench: _measured(bench, prepare(bench), cold=False)


def on_host(prepare: Prepare) -> Measure:
    """Host seconds until the call returns; the device is idle before each."""
    return lambda bench: _on_host(bench, prepare(bench))


def _measured(bench: Bench, work: Act | Checked, cold: bool) -> Measurement:
    act = work.act if isinstance(work, Checked) else work
    one_s, issue_s = warm_up(bench, act)
    inner = 1 if cold else min(max(int(_HOT_SAMPLE_S / one_s), 1), _MOST_INNER)
    repeats = _repeats(bench.budget_s, inner * one_s)
    align = bench.align()
    if align:
        align()  # the first collective of a group connects it
        bench.device.synchronize()
    samples = bench.device.times(act, repeats, inner, cold, issue_s, align)
    wrong = work.wrong() if isinstance(work, Checked) else None
    return Measurement(tuple(samples), wrong, {"issue_s": issue_s, "acts_per_sample": inner})


def _on_host(bench: Bench, work: Act | Checked) -> Measurement:
    act = work.act if isinstance(work, Checked) else work
    one_s, _ = warm_up(bench, act)
    samples = [_issued(bench, act) for _ in range(_repeats(bench.budget_s, one_s))]
    return Measurement(tuple(samples), work.wrong() if isinstance(work, Checked) else None)


def warm_up(bench: Bench, act: Act) -> tuple[float, float]:
    """Act until warm, a quarter of the budget at most; seconds of one act to its end, and to its return."""
    act()
    bench.device.synchronize()
    seconds, issue = _one(bench, act)
    seconds = bench.slowest(seconds)
    for _ in range(min(int(0.25 * bench.budget_s / max(seconds, 1e-7)), _WARM_UPS)):
        seconds, issue = _one(bench, act)
    return max(bench.slowest(seconds), 1e-7), issue


def _one(bench: Bench, act: Act) -> tuple[float, float]:
    start = time.perf_counter()
    act()
    issued = time.perf_counter()
    bench.device.synchronize()
    return time.perf_counter() - start, issued - start


def _issued(bench: Bench, act: Act) -> float:
    start = time.perf_counter()
    act()
    seconds = time.perf_counter() - start
    bench.device.synchronize()
    return seconds


def _repeats(budget_s: float, sample_s: float) -> int:
    return min(max(int(budget_s / sample_s), _FEWEST), _MOST)
