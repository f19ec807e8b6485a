"""The device seam: where tensors live, what waiting means, and how long work takes by the device's own clock.

`CpuDevice` says what each method does; those of `CudaDevice` do the same on a GPU.
"""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

_SPIN_HZ = 2e9  # cycles of `torch.cuda._sleep` per second, roughly
_LONGEST_HOLD_S = 0.02
_EVENT_S = 5e-6  # of the host, to make and record an event, at the most
_CPU_FLUSH_BYTES = 64e6
_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"  # as many as there can be: streams that share one wait for each other
_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # of mallopt, <malloc.h>

Act = Callable[[], object]
"""Does the thing once: enqueues work on the current stream, or has done it when it returns."""

Marks = list[float]
"""Seconds on a clock that all lanes share: where a lane began, and where each of its acts ended."""


@dataclass(frozen=True)
class Lane:
    """An act, how often it is repeated, and what the host needs to issue it once."""

    act: Act
    repeats: int
    issue_s: float

    @property
    def total_issue_s(self) -> float:
        """Seconds that the host needs to issue all of it, with its marks."""
        return (self.issue_s + _EVENT_S) * (self.repeats + 1)


def keep_freed_memory() -> None:
    """Let this process keep freed memory, as CUDA's caching allocator does.

    Else each call may or may not take its pages from the system anew. All threads share one heap, since those of their
    own are given back. Only glibc has mallopt.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


class CpuDevice:
    """Host memory and Gloo: an act has ended when it returns."""

    kind = "cpu"
    torch_device = torch.device("cpu")
    collectives = "gloo"  # what torch.distributed calls the library

    def __init__(self) -> None:
        keep_freed_memory()
        self._flush = torch.zeros(int(_CPU_FLUSH_BYTES), dtype=torch.uint8)
        self._threads = ThreadPoolExecutor(max_workers=4)

    def synchronize(self) -> None:
        """Wait for everything that was issued."""

    def host_memory(self, size_bytes: int, pinned: bool = True) -> torch.Tensor:
        """Host memory as bytes, written once; pinned where that means something."""
        return torch.ones(size_bytes, dtype=torch.uint8)

    def pin(self, memory: torch.Tensor) -> AbstractContextManager[None]:
        """Pin host memory that is there already; at the end waits for everything that was issued."""
        return contextlib.nullcontext()

    def times(
        self, act: Act, repeats: int, inner: int, cold: bool, issue_s: float, align: Act | None = None
    ) -> list[float]:
        """Seconds of one act, `repeats` times, each over `inner` acts in a row.

        `cold` empties the caches before, `align` brings ranks together. What the host needs to issue an act
        (`issue_s`) is not in it as far as the device's queue is deep.
        """
        samples = []
        for _ in range(repeats):
            if cold:
                self._flush.add_(1)
            if align:
                align()
            start = time.perf_counter()
            for _ in range(inner):
                act()
            samples.append((time.perf_counter() - start) / inner)
        return samples

    def concurrent_act(self, acts: Sequence[Act]) -> Act:
        """One act that does several at the same time and ends when all have."""

        def do_all() -> None:
            for future in [self._threads.submit(act) for act in acts]:
                future.result()

        return do_all

    def run_lanes(self, lanes: Sequence[Lane]) -> list[Marks]:
        """Run one or two lanes at the same time, the last one in this thread, or on the current stream."""
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


class CudaDevice:
    """A GPU and NCCL. What of it has run on real GPUs so far: docs/measuring.md."""

    kind = "cuda"
    collectives = "nccl"

    def __init__(self, local_rank: int):
        # Before CUDA starts: calls that wait, or streams that share a queue, as Megatron wants them, would be timed.
        os.environ.update([_QUEUES])
        for name in _BLOCKING:
            os.environ.pop(name, None)
        # Slurm may show each task its own GPU only, as number 0
        self.torch_device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(self.torch_device)
        l2_bytes = getattr(torch.cuda.get_device_properties(self.torch_device), "L2_cache_size", 0)
        self._flush = torch.empty(max(2 * l2_bytes, 128_000_000), dtype=torch.uint8, device=self.torch_device)

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.torch_device)

    def host_memory(self, size_bytes: int, pinned: bool = True) -> torch.Tensor:
        """Pinned memory lets the copy engine read it without a staging copy."""
        memory = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pinned)
        return memory.fill_(1)  # a page that was never written is no page yet

    @contextlib.contextmanager
    def pin(self, memory: torch.Tensor) -> Iterator[None]:
        """Pin memory by cudaHostRegister, which takes whole pages."""
        self._check(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
        try:
            yield
        finally:
            self.synchronize()
            self._check(torch.cuda.cudart().cudaHostUnregister(memory.data_ptr()))

    def _check(self, code: Any) -> None:
        """CUDA keeps a failure for whoever looks next, a kernel of another case say: one of our own takes it."""
        if int(code):
            with contextlib.suppress(RuntimeError):
                torch.ones(1, device=self.torch_device)
        torch.cuda.check_error(int(code))

    def times(
        self, act: Act, repeats: int, inner: int, cold: bool, issue_s: float, align: Act | None = None
    ) -> list[float]:
        """Between events; a spin kernel holds the stream while the host issues, so that the host is not timed."""
        acts = inner + (align is not None)  # that one is issued behind the spin kernel too
        pairs = []
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if cold:
                self._flush.zero_()
            _hold_stream(1.5 * issue_s * acts + 2e-5)
            if align:
                align()
            start.record()
            for _ in range(inner):
                act()
            end.record()
            pairs.append((start, end))
        self.synchronize()
        return [1e-3 * start.elapsed_time(end) / inner for start, end in pairs]

    def concurrent_act(self, acts: Sequence[Act]) -> Act:
        """A stream each; the current stream waits for all."""
        streams = [torch.cuda.Stream(self.torch_device) for _ in acts]

        def issue_all() -> None:
            main = torch.cuda.current_stream(self.torch_device)
            for stream, act in zip(streams, acts, strict=True):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    act()
            for stream in streams:
                main.wait_stream(stream)

        return issue_all

    def run_lanes(self, lanes: Sequence[Lane]) -> list[Marks]:
        """The last of two lanes runs on the current stream, the other on a new one: several new ones may share a queue.

        A spin kernel holds both back while the host issues, so that the host is not timed. The lane that is issued
        sooner goes first: the other may be longer than a queue (1024), and the host then waits for the device.
        """
        main = torch.cuda.current_stream(self.torch_device)
        _hold_stream(1.5 * sum(lane.total_issue_s for lane in lanes) + 1e-4)
        gate = torch.cuda.Event(enable_timing=True)
        gate.record()
        streams = [main] if len(lanes) == 1 else [torch.cuda.Stream(self.torch_device), main]
        order = sorted(range(len(lanes)), key=lambda at: lanes[at].total_issue_s)
        events = {at: _issue_lane(streams[at], gate, lanes[at]) for at in order}
        self.synchronize()
        return [[1e-3 * gate.elapsed_time(event) for event in events[at]] for at in range(len(lanes))]


Device = CpuDevice | CudaDevice


def repeat(act: Act, times: int) -> Act:
    """One act that does another one so many times in a row."""

    def acts() -> None:
        for _ in range(times):
            act()

    return acts


def _hold_stream(seconds: float) -> None:
    torch.cuda._sleep(int(min(seconds, _LONGEST_HOLD_S) * _SPIN_HZ))


def _issue_lane(stream: torch.cuda.Stream, gate: torch.cuda.Event, lane: Lane) -> list[torch.cuda.Event]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(lane.repeats + 1)]
    stream.wait_event(gate)
    with torch.cuda.stream(stream):
        events[0].record()
        for event in events[1:]:
            lane.act()
            event.record()
    return events


def pick_device(kind: str, local_rank: int) -> Device:
    """The device called `cpu` or `cuda`."""
    return CudaDevice(local_rank) if kind == "cuda" else CpuDevice()
