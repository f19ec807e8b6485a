"""Handles of shared memory: how long a process needs to open what another one of its node shares.

Every opened handle is a fresh one, of memory that was allocated for it, as the first handle of a bucket is. What the
opening process needs once (a context on the other GPU) is in the first openings, which are left out.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from ..case import Case, Facts
from ..timing import Bench, Measurement

_SIZES = (1 << 25, 1 << 28, 1 << 30)  # above 20 MiB torch's allocator has a segment for each
_QUICK = 1 << 28
_UNCOUNTED, _COUNTED = 2, 10
_LASTS_S = 1.0


def cases(facts: Facts) -> Iterator[Case]:
    """Opened by the second rank of a node."""
    if len(facts.nodes[0]) < 2:
        return
    for size in _SIZES:
        yield Case(
            "handles",
            "ipc_open",
            {"bytes": size, "through": "cuda_ipc" if facts.cuda else "file"},
            partial(_open_handles, size=size),
            facts.nodes[0][:2],
            "host.ipc_open",
            {"count": 1.0},
            footprint_bytes=size,
            cache="hot",
            quick=size == _QUICK,
            lasts_s=_LASTS_S,
        )


def _open_handles(bench: Bench, size: int) -> Measurement:
    shares = bench.rank == bench.team[0]
    handles = CudaHandles(bench) if bench.device.kind == "cuda" else FileHandles()
    samples, wrong = [], 0
    for value in range(1, _UNCOUNTED + _COUNTED + 1):
        handle, _ = gather_results(bench, partial(handles.share, size, value) if shares else None)
        _, (seconds, byte) = gather_results(bench, None if shares else partial(_open, handles, handle))
        handles.forget()
        samples.append(seconds)
        wrong += byte != value
    return Measurement(tuple(samples[_UNCOUNTED:]), 0 if shares else wrong)


def _open(handles: "CudaHandles | FileHandles", handle: list[Any]) -> tuple[float, int]:
    """Seconds of opening, and the last byte of what was opened, which is closed again."""
    start = time.perf_counter()
    memory = handles.open(handle)
    seconds = time.perf_counter() - start
    return seconds, int(memory[-1])


def gather_results(bench: Bench, act: Callable[[], Any] | None) -> list[Any]:
    """What the acts of all ranks return, as JSON has it; what fails on one fails on all, so that none waits.

    Raises:
        RuntimeError: the act of a rank failed; its error in one line.
    """
    try:
        mine = {"returned": act() if act else None}
    except Exception as error:  # the others must hear of it
        mine = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    answers = bench.exchange(mine)
    for answer in answers:
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
    return [answer["returned"] for answer in answers]


class CudaHandles:
    """CUDA IPC, as torch.multiprocessing uses it (torch/multiprocessing/reductions.py), without pickle.

    A handle is a list that JSON can say; bytes in it are written in hexadecimal.
    """

    def __init__(self, bench: Bench):
        self._bench = bench
        self._shared: torch.Tensor | None = None

    def share(self, size: int, value: int) -> list[Any]:
        """A handle of fresh memory, whose last byte has this value.

        Its fields: cudaIpcMemHandle, torch's counter of users, and the event that says it is written.
        """
        self._shared = self._bench.empty(size, dtype=torch.uint8)
        self._shared[-1] = value
        fields = self._shared.untyped_storage()._share_cuda_()
        return [{"hex": field.hex()} if isinstance(field, bytes) else field for field in fields]

    def open(self, handle: list[Any]) -> torch.Tensor:
        """The memory of a handle of another process; on the device where it is, as torch does it."""
        fields = [bytes.fromhex(field["hex"]) if isinstance(field, dict) else field for field in handle]
        storage = torch.UntypedStorage._new_shared_cuda(*fields)
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)

    def forget(self) -> None:
        """The allocator gives back what was shared, so that the next handle is another one."""
        if self._shared is not None:
            self._shared = None
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()


class FileHandles:
    """A file that both map: what comes nearest on a CPU. It has a page where it was written, and holes elsewhere."""

    def __init__(self) -> None:
        self._shared = ""

    def share(self, size: int, value: int) -> list[Any]:
        """Share a file: (name, size in bytes)."""
        file, self._shared = tempfile.mkstemp(prefix="runcast-")
        os.truncate(file, size)
        os.pwrite(file, bytes([value]), size - 1)
        os.close(file)
        return [self._shared, size]

    def open(self, handle: list[Any]) -> torch.Tensor:
        """Open a shared file by mmap."""
        name, size = handle
        return torch.from_file(name, shared=True, size=size, dtype=torch.uint8)

    def forget(self) -> None:
        """The file is gone."""
        if self._shared:
            os.unlink(self._shared)
            self._shared = ""
