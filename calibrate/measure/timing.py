"""What a case measures with, and how the times of an act become a measurement: hot, cold or on the host.

A case prepares its tensors and returns the act, or a `Checked` act whose results are looked at once it has been timed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.distributed as dist

from .case import Act, Facts, Measure, Measurement
from .device import Device


@dataclass
class Bench:
    """`rank` is this one's in the world; `group` is the process group of the case's team, None where it is alone."""

    device: Device
    facts: Facts
    budget_s: float
    rank: int = 0
    team: tuple[int, ...] = (0,)
    group: Any = None
    exchange: Callable[[str], list[str]] = field(default=lambda text: [text])
    """All ranks of the team give a text and get everybody's, in the team's order."""

    def rand(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Random normal values on the device: zeros and constants draw less power and raise clocks."""
        return torch.randn(*shape, device=self.device.torch_device, dtype=torch.float32).to(dtype)

    def empty(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Memory of the device, unwritten."""
        return torch.empty(*shape, device=self.device.torch_device, dtype=dtype)

    def slowest(self, seconds: float) -> float:
        """The largest of what the ranks of the team give: they must agree on counts of collectives."""
        if self.group is None:
            return seconds
        value = torch.tensor([seconds], dtype=torch.float32, device=self.device.torch_device)
        dist.all_reduce(value, dist.ReduceOp.MAX, group=self.group)
        return float(value.item())

    def align(self) -> Callable[[], object] | None:
        """An act after which all ranks of the team are equally far; None where there is one."""
        if self.group is None:
            return None
        token = torch.zeros(1, device=self.device.torch_device)
        return lambda: dist.all_reduce(token, group=self.group)


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

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def bench_later(make: Callable[Concatenate[Bench, _Given], _Made]) -> Callable[_Given, Callable[[Bench], _Made]]:
    """`make(bench, shape)` as `make(shape)(bench)`: the list of cases has the shape, and a worker the bench."""
    return lambda *args, **kwargs: lambda bench: make(bench, *args, **kwargs)


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
