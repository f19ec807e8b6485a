"""Handles of shared memory: how long a process needs to open what another one of its node shares.

Every opened handle is a fresh one, of memory that was allocated for it, as the first handle of a bucket is. What the
opening process needs once (a context on the other GPU) is in the first openings, which are left out.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from ..case import Case, Facts, Measurement
from ..timing import Bench, bench_later

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
            _opening(size),
            facts.nodes[0][:2],
            "host.ipc_open",
            {"count": 1.0},
            footprint_bytes=size,
            cache="hot",
            quick=size == _QUICK,
            lasts_s=_LASTS_S,
        )


@bench_later
def _opening(bench: Bench, size: int) -> Measurement:
    shares = bench.rank == bench.team[0]
    way: Handles = CudaHandles(bench) if bench.facts.cuda else FileHandles()
    samples, wrong = [], 0
    for value in range(1, _UNCOUNTED + _COUNTED + 1):
        handle, _ = in_step(bench, lambda value=value: way.share(size, value) if shares else None)  # type: ignore[misc]
        _, (seconds, seen) = in_step(bench, lambda handle=handle: None if shares else _timed(way, handle))  # type: ignore[misc]
        way.forget()
        samples.append(seconds)
        wrong += seen != value
    return Measurement(tuple(samples[_UNCOUNTED:]), 0 if shares else wrong)


def _timed(way: "Handles", handle: Any) -> tuple[float, int]:
    """Seconds of opening, and the last byte of what was opened, which is closed again."""
    start = time.perf_counter()
    memory = way.open(handle)
    seconds = time.perf_counter() - start
    return seconds, int(memory[-1])


def in_step(bench: Bench, act: Callable[[], Any]) -> list[Any]:
    """Every rank acts and hears what all acts returned, as JSON; what fails on one fails on all, so that none waits.

    Raises:
        RuntimeError: the act of a rank failed; its error in one line.
    """
    try:
        said = {"returned": act()}
    except Exception as error:  # told to the others, then raised
        said = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    heard = [json.loads(text) for text in bench.exchange(json.dumps(said))]
    for answer in heard:
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
    return [answer["returned"] for answer in heard]


class Handles(Protocol):
    """How memory is shared on a kind of device. A handle is what JSON can say."""

    def share(self, size: int, value: int) -> Any:
        """The handle of fresh memory, whose last byte has this value."""

    def open(self, handle: Any) -> torch.Tensor:
        """The memory of a handle of another process."""

    def forget(self) -> None:
        """What was shared is free again: nobody has it open any more."""


class CudaHandles:
    """CUDA IPC, as torch.multiprocessing uses it (torch/multiprocessing/reductions.py), without pickle."""

    def __init__(self, bench: Bench):
        self._bench = bench
        self._shared: torch.Tensor | None = None

    def share(self, size: int, value: int) -> list[Any]:
        """The fields of cudaIpcMemHandle, of torch's counter of users, and of the event that says it is written."""
        self._shared = self._bench.empty(size, dtype=torch.uint8)
        self._shared[-1] = value
        return [to_json(field) for field in self._shared.untyped_storage()._share_cuda_()]

    def open(self, handle: list[Any]) -> torch.Tensor:
        """On the device where the memory is, as torch does it."""
        storage = torch.UntypedStorage._new_shared_cuda(*map(from_json, handle))
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)

    def forget(self) -> None:
        """The allocator gives the memory back, so that the next handle is another one."""
        if self._shared is not None:
            self._shared = None
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()


class FileHandles:
    """A file that both map: what comes nearest on a CPU. It has a page where it was written, and holes elsewhere."""

    def __init__(self) -> None:
        self._shared = ""

    def share(self, size: int, value: int) -> list[Any]:
        """Its name and size."""
        file, self._shared = tempfile.mkstemp(prefix="runcast-")
        os.truncate(file, size)
        os.pwrite(file, bytes([value]), size - 1)
        os.close(file)
        return [self._shared, size]

    def open(self, handle: list[Any]) -> torch.Tensor:
        """By mmap."""
        name, size = handle
        return torch.from_file(name, shared=True, size=size, dtype=torch.uint8)

    def forget(self) -> None:
        """The file is gone."""
        if self._shared:
            os.unlink(self._shared)
            self._shared = ""


def to_json(field: Any) -> Any:
    """Bytes as text."""
    return {"hex": field.hex()} if isinstance(field, bytes) else field


def from_json(field: Any) -> Any:
    """What `to_json` was given."""
    return bytes.fromhex(field["hex"]) if isinstance(field, dict) else field
