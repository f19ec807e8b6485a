"""Copies between host and device, and on the device: pinned or not, both ways at once, by NUMA node, by all ranks.

`copy.<way>.bidirectional` is what nvbandwidth means by it: one copy, while others run the other way throughout.
`h2d_and_d2h` is until both have ended, so it tells the slower way, and is no sample. `copy.<way>.concurrent` is one
GPU's copy while all GPUs of the node copy the same way, and `copy.p2p` one GPU's memory copied to another's.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..beside import beside
from ..case import Act, Case, Facts, Measure, Measurement
from ..device import Device
from ..timing import Bench, Checked, Prepare, bench_later, cold, hot
from .exact import Stretch, checked, message
from .teams import in_node, powers

_SIZES, _QUICK = powers(12, 30), powers(12, 28, step=4)
_LARGE = 1 << 22  # copies that share a way to the host do not disturb each other below

Copy = Callable[[Bench, torch.Tensor], Checked]
"""A copy between the device and this memory of the host."""


def cases(facts: Facts) -> Iterator[Case]:
    """All copies of the first rank, then those of all ranks of its node at once."""
    for size in _SIZES:
        yield from _plain(size)
        yield from _by_numa(facts, size)
        if size >= _LARGE:
            yield from _both_ways(size)
            yield from _at_once(facts, size)
        if facts.cuda and len(facts.nodes[0]) > 1:
            yield _case("p2p", {"bytes": size}, hot(_p2p(size)), "copy.p2p", over="wire")


def _plain(size: int) -> Iterator[Case]:
    for name, copy in _WAYS.items():
        for pinned in (True, False):
            host = "pinned" if pinned else "pageable"
            cost_class = f"copy.{name}" + ("" if pinned else ".pageable")
            yield _case(name, {"bytes": size, "host": host}, hot(_with_host(copy, size, pinned)), cost_class)
    yield _case("d2d", {"bytes": size}, cold(lambda bench: _d2d(bench, size)), "copy.d2d", over="memory", cache="cold")
    both = hot(lambda bench: _both(bench, size))
    yield _case("h2d_and_d2h", {"bytes": size, "host": "pinned"}, both, ways=2)


def _both_ways(size: int) -> Iterator[Case]:
    """One copy while others run the other way; what it takes alone and what it costs them is told in `more`."""
    for name, other in (("h2d", "d2h"), ("d2h", "h2d")):
        params = {"bytes": size, "host": "pinned", "beside": other}
        measure = _beside(_WAYS[name], _WAYS[other], size)
        yield _case(name, params, measure, f"copy.{name}.bidirectional", footprint_bytes=4 * size)


@bench_later
def _beside(bench: Bench, copy: Copy, other: Copy, size: int) -> Measurement:
    ours, theirs = (way(bench, bench.device.host(size)) for way in (copy, other))
    measured = beside(bench, ours.act, theirs.act)
    return replace(measured, wrong=ours.wrong() + theirs.wrong())


def _by_numa(facts: Facts, size: int) -> Iterator[Case]:
    """Pinned memory of every NUMA node; no samples of a class, since they say the same as those on no node by name."""
    for node in range(facts.numa_nodes if facts.numa_nodes > 1 else 0):
        numa = "near" if node == facts.near_numa else "far"
        params = {"bytes": size, "host": "pinned", "numa": numa, "numa_node": node}
        for name, copy in _WAYS.items():
            yield _case(name, params, _on_numa(copy, size, node))


def _at_once(facts: Facts, size: int) -> Iterator[Case]:
    """Ranks of one node together: they may share a PCIe switch, and the host's memory."""
    for team in in_node(facts):
        params = {"bytes": size, "host": "pinned", "at_once": len(team.ranks)}
        for name in _WAYS if team.whole else ("h2d",):
            cost_class = f"copy.{name}.concurrent" if team.whole else ""
            copies = hot(_with_host(_WAYS[name], size, pinned=True))
            yield _case(name, params, copies, cost_class, team=team.ranks)


def _case(
    name: str, params: dict[str, Any], measure: Measure, cost_class: str = "", ways: int = 1, **more: Any
) -> Case:
    size = params["bytes"]
    return Case(
        "copies",
        name,
        params,
        measure,
        cost_class=cost_class,
        features={"bytes": float(size)} if cost_class else {},
        bytes=ways * size,
        calls=ways,
        quick=bool(cost_class) and size in _QUICK,
        **{"over": "host", "cache": "hot", "footprint_bytes": 2 * ways * size} | more,
    )


def _with_host(copy: Copy, size: int, pinned: bool) -> Prepare:
    return lambda bench: copy(bench, bench.device.host(size, pinned))


@bench_later
def _on_numa(bench: Bench, copy: Copy, size: int, node: int) -> Measurement:
    with running_on(node), memory_here(bench.device, size) as host:
        return hot(lambda bench: copy(bench, host))(bench)


def _h2d(bench: Bench, host: torch.Tensor) -> Checked:
    device = bench.empty(len(host), dtype=torch.uint8)
    return _checked_copy(bench, host, device)


def _d2h(bench: Bench, host: torch.Tensor) -> Checked:
    device = bench.empty(len(host), dtype=torch.uint8)
    return _checked_copy(bench, device, host)


_WAYS: dict[str, Copy] = {"h2d": _h2d, "d2h": _d2h}


def _d2d(bench: Bench, size: int) -> Checked:
    source, target = (bench.empty(size, dtype=torch.uint8) for _ in range(2))
    return _checked_copy(bench, source, target)


@bench_later
def _p2p(bench: Bench, size: int) -> Checked:
    """To the next GPU, as this process counts them; it fails where this process sees one only."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        raise RuntimeError("this process sees one GPU only")
    source = bench.empty(size, dtype=torch.uint8)
    target = torch.empty_like(source, device=torch.device("cuda", (source.get_device() + 1) % gpus))
    given, due = Stretch(source, message(0)), Stretch(target, message(0))
    return checked(bench, lambda: target.copy_(source, non_blocking=True), [given], [due])


def _both(bench: Bench, size: int) -> Checked:
    up, down = (bench.device.host(size) for _ in range(2))
    target, source = (bench.empty(size, dtype=torch.uint8) for _ in range(2))
    act = bench.device.at_once([_copy(up, target), _copy(source, down)])
    given = [Stretch(up, message(0)), Stretch(source, message(1))]
    return checked(bench, act, given, [Stretch(target, message(0)), Stretch(down, message(1))])


def _checked_copy(bench: Bench, source: torch.Tensor, target: torch.Tensor) -> Checked:
    given, due = Stretch(source, message(0)), Stretch(target, message(0))
    return checked(bench, _copy(source, target), [given], [due])


def _copy(source: torch.Tensor, target: torch.Tensor) -> Act:
    """Pinned memory is copied while the host goes on; pageable memory as by plain `copy_`, which waits."""
    pinned = source.is_pinned() or target.is_pinned()
    return lambda: target.copy_(source, non_blocking=pinned)


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
