"""Host memory on one NUMA node, and this thread on its CPUs."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..device import Device

_NODES = Path("/sys/devices/system/node")


def cpus_of(node: int) -> set[int]:
    """The CPUs of a NUMA node.

    Raises:
        OSError: there is no such node.
    """
    return set(parsed((_NODES / f"node{node}" / "cpulist").read_text()))


def parsed(cpulist: str) -> Iterator[int]:
    """0, 1, 2, 3 and 8 of `0-3,8`, as Linux writes lists of CPUs."""
    for part in cpulist.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)


@contextmanager
def running_on(node: int) -> Iterator[None]:
    """This thread runs on the CPUs of that node, and where it ran before afterwards.

    Raises:
        OSError: there is no such node, or this process may use none of its CPUs.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus_of(node))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def memory_here(device: Device, size_bytes: int) -> Iterator[torch.Tensor]:
    """Pinned bytes on the NUMA node where this thread runs: new pages, which lie where they are first written.

    Allocators may hand out pages that were written elsewhere, and torch's threads run where they like: hence fresh
    pages of the kernel, and one thread that writes them.
    """
    memory = torch.frombuffer(mmap.mmap(-1, size_bytes), dtype=torch.uint8)
    ctypes.memset(memory.data_ptr(), 1, size_bytes)
    device.pin(memory)
    try:
        yield memory
    finally:
        device.unpin(memory)
