"""Whether this machine has the memory that its ranks will allocate; asked before any of them starts."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...simulator.base.errors import UserError
from ...simulator.base.units import format_bytes
from ...simulator.systems.weight_update.resolve import Resolved
from .content import content_of

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of the container that this process is in


def check_memory(resolved: Resolved, ranks: Sequence[int], device: str = "cpu") -> None:
    """Compare what the given ranks will allocate in host memory with what this machine has, where that is known.

    Raises:
        UserError: it has less, or the update cannot be executed at all.
    """
    needed, available = needed_bytes(resolved, ranks, device), available_bytes()
    if available is None or sum(needed.values()) <= available:
        return
    parts = ", ".join(f"{format_bytes(size)} of {what}" for what, size in needed.items())
    smaller = "model.overrides, as in the tiny scenarios" if resolved.spec is not None else "model.bytes"
    raise UserError(
        f"{resolved.where}: {len(ranks)} ranks on this machine need {format_bytes(sum(needed.values()))} of memory "
        f"({parts}), but {format_bytes(available)} are available: take a smaller model ({smaller}), smaller buckets "
        "(update.bucket) or fewer ranks (nodes, cluster.gpus_per_node)"
    )


def needed_bytes(resolved: Resolved, ranks: Sequence[int], device: str = "cpu") -> dict[str, int]:
    """Host bytes by purpose of the given ranks of an unfolded scenario; on CUDA, only what they send is there."""
    content, program = content_of(resolved), resolved.program
    here = [buffer for buffer in program.buffers if program.places[buffer.place].ranks[0] in ranks]
    needed = {"weights to send": sum(buffer.bytes for buffer in here if buffer.memory != "device")}
    if device == "cpu":
        needed["weights to send"] += sum(content.shard_bytes(rank) for rank in ranks)
        needed["buffers"] = sum(buffer.bytes for buffer in here if buffer.memory == "device")
        needed["weights to receive"] = sum(content.kept_bytes(rank) for rank in ranks)
    return needed


def available_bytes() -> int | None:
    """What can be allocated without swapping: of Linux what is free, elsewhere all there is; None where unknown."""
    bounds = []
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    with suppress(OSError, ValueError):  # ValueError: "max", no limit
        bounds.append(int(_CGROUP_LIMIT.read_text()))
    if not bounds:
        with suppress(OSError, ValueError, AttributeError):
            bounds.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(bounds, default=None)
