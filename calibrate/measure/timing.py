"""What a case measures with, and how the times of an act become a measurement: hot, cold or on the host.

A case prepares its tensors and returns the act, or a `Checked` act whose results are looked at once it has been timed.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .device import Act, Device


@dataclass(frozen=True)
class Measurement:
    """Seconds of one act each; elements that came out wrong, where results are checked; other numbers, by name."""

    samples_s: tuple[float, ...]
    wrong: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Bench:
    """`rank` is this one's in the world; `group` is the process group of the case's team, None where it is alone."""

    device: Device
    budget_s: float
    rank: int = 0
    team: tuple[int, ...] = (0,)
    group: Any = None
    exchange: Callable[[Any], list[Any]] = field(default=lambda value: [value])
    """All ranks of the team give a value (one that JSON can say) and get everybody's, in the team's order."""
    longest_s: float = math.inf
    """What the plan allows a call."""

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

    def align(self) -> Act | None:
        """An act after which all ranks of the team are equally far; None for a single rank."""
        if self.group is None:
            return None
        token = torch.zeros(1, device=self.device.torch_device)
        return lambda: dist.all_reduce(token, group=self.group)

    def meet(self) -> None:
        """Wait until all ranks of the team are here, and nothing is under way."""
        self.device.synchronize()
        align = self.align()
        if align:
            align()
            self.device.synchronize()


Measure = Callable[[Bench], Measurement]


class TooSlowError(Exception):
    """One call takes so many seconds, which is more than this bench gives it; on all ranks of the team."""

    def __init__(self, call_s: float):
        super().__init__(f"one call takes {call_s:.3g} s")
        self.call_s = call_s


@dataclass(frozen=True)
class Checked:
    """An act, and how many elements of its result are wrong (None: not checked)."""

    act: Act
    wrong: Callable[[], int | None] = lambda: None


Prepare = Callable[..., Act | Checked]
"""`prepare(bench, *shape)` makes the tensors of a case and returns its act."""

_WARM_UPS = 25
_FEWEST, _MOST = 5, 100
_HOT_SAMPLE_S = 1e-3  # a hot sample lasts at least this long, over several acts if need be
_MOST_INNER = 200
_SLACK = 2.0  # a call may take so much longer than the plan allows: its guess was rough


def cold(prepare: Prepare, *shape: Any) -> Measure:
    """Device seconds of single acts of `prepare(bench, *shape)`, caches emptied before each."""
    return lambda bench: _measure_on_device(bench, _prepare(bench, prepare, shape), cold=True)


def hot(prepare: Prepare, *shape: Any) -> Measure:
    """Device seconds of acts of `prepare(bench, *shape)` in a row."""
    return lambda bench: _measure_on_device(bench, _prepare(bench, prepare, shape), cold=False)


def time_host(prepare: Prepare, *shape: Any) -> Measure:
    """Host seconds until an act of `prepare(bench, *shape)` returns; the device is idle before each."""

    def measure(bench: Bench) -> Measurement:
        work = _prepare(bench, prepare, shape)
        one_s, _ = warm_up(bench, work.act)
        samples = [_call(bench, work.act)[1] for _ in range(_repeats(bench.budget_s, one_s))]
        return Measurement(tuple(samples), work.wrong())

    return measure


def measure_in(setting: Callable[[], AbstractContextManager[Any]], measure: Measure) -> Measure:
    """The measurement inside a context, such as one that makes torch use another kernel."""

    def measure_inside(bench: Bench) -> Measurement:
        with setting():
            return measure(bench)

    return measure_inside


def backward_of(forward: Callable[[], torch.Tensor], inputs: Sequence[torch.Tensor]) -> Act:
    """The backward pass of an act, for the gradients of these inputs."""
    for tensor in inputs:
        tensor.requires_grad_()
    result = forward()
    gradient = torch.randn_like(result) if result.dim() else None  # that of a loss is one
    return lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True)


def _prepare(bench: Bench, prepare: Prepare, shape: tuple[Any, ...]) -> Checked:
    work = prepare(bench, *shape)
    return work if isinstance(work, Checked) else Checked(work)


def _measure_on_device(bench: Bench, work: Checked, cold: bool) -> Measurement:
    one_s, issue_s = warm_up(bench, work.act)
    inner = 1 if cold else min(max(int(_HOT_SAMPLE_S / one_s), 1), _MOST_INNER)
    repeats = _repeats(bench.budget_s, inner * one_s)
    bench.meet()  # the first collective of a group connects it
    samples = bench.device.times(work.act, repeats, inner, cold, issue_s, bench.align())
    return Measurement(tuple(samples), work.wrong(), {"issue_s": issue_s, "acts_per_sample": inner})


def warm_up(bench: Bench, act: Act) -> tuple[float, float]:
    """Act until warm, a quarter of the budget at most; seconds of one act to its end, and to its return.

    Raises:
        TooSlowError: an act takes far longer than a call may.
    """
    first, _ = _call(bench, act)
    if bench.device.kind == "cpu":  # on a GPU the first call may load a library or compile
        _check_call(bench, bench.slowest(first))
    seconds, issue = _call(bench, act)
    seconds = bench.slowest(seconds)
    _check_call(bench, seconds)
    for _ in range(min(int(0.25 * bench.budget_s / max(seconds, 1e-7)), _WARM_UPS)):
        seconds, issue = _call(bench, act)
    return max(bench.slowest(seconds), 1e-7), issue


def _check_call(bench: Bench, seconds: float) -> None:
    if seconds > _SLACK * bench.longest_s:
        raise TooSlowError(seconds)


def _call(bench: Bench, act: Act) -> tuple[float, float]:
    """Seconds of one act to its end, and to its return."""
    start = time.perf_counter()
    act()
    issued = time.perf_counter()
    bench.device.synchronize()
    return time.perf_counter() - start, issued - start


def _repeats(budget_s: float, sample_s: float) -> int:
    return min(max(int(budget_s / sample_s), _FEWEST), _MOST)
