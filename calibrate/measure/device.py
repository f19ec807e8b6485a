"""The device seam: where tensors live, what waiting means, and how long work takes by the device's own clock."""

import contextlib
import ctypes
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch

from .case import Act

_SPIN_HZ = 2e9  # cycles of `torch.cuda._sleep` per second, roughly
_LONGEST_HOLD_S = 0.02
_CPU_FLUSH_BYTES = 64e6
_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"  # as many as there can be: streams that share one wait for each other
_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of mallopt, <malloc.h>


class Device(Protocol):
    """What differs between kinds of devices."""

    kind: str
    torch_device: torch.device
    collectives: str  # what torch.distributed calls the library

    def synchronize(self) -> None:
        """Wait for everything that was issued."""

    def host(self, size_bytes: int, pinned: bool = True) -> torch.Tensor:
        """Host memory as bytes, written once; pinned where that means something."""

    def pin(self, memory: torch.Tensor) -> None:
        """Pin host memory that is there already, until `unpin`."""

    def unpin(self, memory: torch.Tensor) -> None:
        """Before memory that was pinned by `pin` is freed; waits for everything that was issued."""

    def times(
        self, act: Act, repeats: int, inner: int, cold: bool, issue_s: float, align: Act | None = None
    ) -> list[float]:
        """Seconds of one act, `repeats` times, each over `inner` acts in a row.

        `cold` empties the caches before, `align` brings ranks together. What the host needs to issue an act
        (`issue_s`) is not in it as far as the device's queue is deep.
        """

    def at_once(self, acts: Sequence[Act]) -> Act:
        """One act that does several at the same time and ends when all have."""


class CpuDevice:
    """Host memory and Gloo: an act has ended when it returns."""

    kind = "cpu"
    torch_device = torch.device("cpu")
    collectives = "gloo"

    def __init__(self) -> None:
        _keep_freed_memory()
        self._flush = torch.zeros(int(_CPU_FLUSH_BYTES), dtype=torch.uint8)
        self._threads = ThreadPoolExecutor(max_workers=4)

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def host(self, size_bytes: int, pinned: bool = True) -> torch.Tensor:
        """Plain memory."""
        return torch.ones(size_bytes, dtype=torch.uint8)

    def pin(self, memory: torch.Tensor) -> None:
        """Means nothing here."""

    def unpin(self, memory: torch.Tensor) -> None:
        """Nor does this."""

    def times(
        self, act: Act, repeats: int, inner: int, cold: bool, issue_s: float, align: Act | None = None
    ) -> list[float]:
        """By the monotonic clock."""
        return [self._time(act, inner, cold, align) for _ in range(repeats)]

    def _time(self, act: Act, inner: int, cold: bool, align: Act | None) -> float:
        if cold:
            self._flush.add_(1)
        if align:
            align()
        start = time.perf_counter()
        for _ in range(inner):
            act()
        return (time.perf_counter() - start) / inner

    def at_once(self, acts: Sequence[Act]) -> Act:
        """A thread each."""

        def all_of_them() -> None:
            for future in [self._threads.submit(act) for act in acts]:
                future.result()

        return all_of_them


def _keep_freed_memory() -> None:
    """As CUDA's caching allocator does: else each call of a case may or may not take its pages from the system anew."""
    with contextlib.suppress(AttributeError, OSError):  # another libc than glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


class CudaDevice:
    """A GPU and NCCL. What of it has run on real GPUs so far: docs/measuring.md."""

    kind = "cuda"
    collectives = "nccl"

    def __init__(self, local_rank: int):
        _issue_without_waiting()
        # Slurm may show each task its own GPU only, as number 0
        self.torch_device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(self.torch_device)
        l2_bytes = getattr(torch.cuda.get_device_properties(self.torch_device), "L2_cache_size", 0)
        self._flush = torch.empty(max(2 * l2_bytes, 128_000_000), dtype=torch.uint8, device=self.torch_device)

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.torch_device)

    def host(self, size_bytes: int, pinned: bool = True) -> torch.Tensor:
        """Pinned memory lets the copy engine read it without a staging copy."""
        memory = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pinned)
        return memory.fill_(1)  # a page that was never written is no page yet

    def pin(self, memory: torch.Tensor) -> None:
        """By cudaHostRegister, which takes whole pages."""
        self._check(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))

    def unpin(self, memory: torch.Tensor) -> None:
        """By cudaHostUnregister."""
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
        hold = int(min(1.5 * issue_s * acts + 2e-5, _LONGEST_HOLD_S) * _SPIN_HZ)
        pairs = [self._between_events(act, inner, cold, hold, align) for _ in range(repeats)]
        self.synchronize()
        return [1e-3 * start.elapsed_time(end) / inner for start, end in pairs]

    def _between_events(
        self, act: Act, inner: int, cold: bool, hold: int, align: Act | None
    ) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if cold:
            self._flush.zero_()
        torch.cuda._sleep(hold)
        if align:
            align()
        start.record()
        for _ in range(inner):
            act()
        end.record()
        return start, end

    def at_once(self, acts: Sequence[Act]) -> Act:
        """A stream each; the current stream waits for all."""
        streams = [torch.cuda.Stream(self.torch_device) for _ in acts]

        def all_of_them() -> None:
            main = torch.cuda.current_stream(self.torch_device)
            for stream, act in zip(streams, acts, strict=True):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    act()
            for stream in streams:
                main.wait_stream(stream)

        return all_of_them


def _issue_without_waiting() -> None:
    """Before CUDA starts: calls that wait, or streams that share a queue, as Megatron wants them, would be timed."""
    os.environ.update([_QUEUES])
    for name in _BLOCKING:
        os.environ.pop(name, None)


def pick_device(kind: str, local_rank: int) -> Device:
    """The device called `cpu` or `cuda`."""
    return CudaDevice(local_rank) if kind == "cuda" else CpuDevice()
