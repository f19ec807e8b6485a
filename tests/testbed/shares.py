"""Shares of a processor: a host that has one computes at its own pace, whatever other hosts of this machine do.

The share is a quota of the kernel's control group for processors, version 1 or 2. Its period is short, so that work of
some tens of milliseconds is slowed down evenly. A group has the name of its host's namespace, and goes with it.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")

PERIOD_US = 10_000
_WEIGHT = {"cpu.shares": "100000", "cpu.weight": "5000"}
"""Of a host against other programs; both files mean about a hundred times the usual one."""

_MOST = 0.85  # of a core: its hosts leave the rest to the kernel, which forwards their packets
_PATIENCE_S = 5.0  # until the processes of a group have ended that were killed


@cache
def folder() -> Path | None:
    """Where groups for processors are made; None: there is no such place."""
    if os.access(_V1 / "cgroup.procs", os.W_OK):
        return _V1
    with suppress(OSError):
        if "cpu" in (_V2 / "cgroup.subtree_control").read_text().split() and os.access(_V2, os.W_OK):
            return _V2
    return None


def missing(hosts: int, share: float) -> str:
    """Why so many hosts cannot have such a share each here; empty if they can."""
    on_one = -(-hosts // (cores := os.cpu_count() or 1))
    if on_one * share > _MOST:
        return f"{hosts} hosts with {share:.0%} of a core each need more than {cores} cores"
    return _refused()


@cache
def _refused() -> str:
    if folder() is None:
        return "shares of a processor need a writable control group for processors (cgroup v1 cpu, or v2 with cpu)"
    name = f"runcast-testbed-try-{os.getpid()}"
    try:
        make(name, 0.5)
    except OSError as error:
        return f"shares of a processor cannot be made here: {error}"
    finally:
        remove(name)
    return ""


def make(name: str, share: float) -> None:
    """Make a group that may use this share of a core.

    Raises:
        OSError: the kernel refuses it.
    """
    own, quota_us = _path(name), round(share * PERIOD_US)
    own.mkdir()
    if (own / "cpu.max").exists():
        _write(own / "cpu.max", f"{quota_us} {PERIOD_US}")
    else:
        _write(own / "cpu.cfs_period_us", str(PERIOD_US))
        _write(own / "cpu.cfs_quota_us", str(quota_us))
    for file, weight in _WEIGHT.items():
        if (own / file).exists():
            _write(own / file, weight)


def enter(name: str, core: int) -> list[str]:
    """The beginning of a command that runs in a group, on one core."""
    join = f'echo $$ > {_path(name)}/cgroup.procs && exec "$@"'
    return ["sh", "-c", join, "sh", "taskset", "-c", str(core)]


def names() -> list[str]:
    """All groups that are there."""
    found = folder()
    return [path.name for path in found.iterdir() if path.is_dir()] if found else []


def remove(name: str) -> None:
    """Kill what runs in a group, then remove it; one that is gone already is none of our business."""
    if folder() is None or not (own := _path(name)).is_dir():
        return
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        with suppress(OSError):
            _kill((own / "cgroup.procs").read_text().split())
            own.rmdir()
            return
        time.sleep(0.01)


def _kill(processes: Sequence[str]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(int(process), 9)


def _path(name: str) -> Path:
    found = folder()
    assert found is not None
    return found / name


def _write(file: Path, text: str) -> None:
    file.write_text(text)
