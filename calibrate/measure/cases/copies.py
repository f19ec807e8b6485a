"""Copies between host and device, and on the device: pinned or not, both ways at once, by NUMA node, by all ranks.

`copy.<way>.bidirectional` is what nvbandwidth means by it: one copy, while others run the other way throughout.
`h2d_and_d2h` is until both have ended, so it tells the slower way, and is no sample. `copy.<way>.concurrent` is one
GPU's copy while all GPUs of the node copy the same way, and `copy.p2p` one GPU's memory copied to another's.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..case import Case, Facts, node_teams
from ..device import Act, Device
from ..overlap import measure_overlap
from ..timing import Bench, Checked, Measure, Measurement, cold, hot
from .exact import Stretch, check_stretches, message

_SIZES = [1 << power for power in range(12, 31, 2)]
_QUICK = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
_LARGE = 1 << 22  # copies that share a way to the host do not disturb each other below
_OTHER_WAY = {"h2d": "d2h", "d2h": "h2d"}


def cases(facts: Facts) -> Iterator[Case]:
    """All copies of the first rank, then those of all ranks of its node at once."""
    for size in _SIZES:
        yield from _alone(size)
        yield from _by_numa(facts, size)
        if size >= _LARGE:
            yield from _with_others(facts, size)
        if facts.cuda and len(facts.nodes[0]) > 1:
            yield _case("p2p", {"bytes": size}, hot(_p2p, size), "copy.p2p", over="wire")


def _alone(size: int) -> Iterator[Case]:
    for way in _OTHER_WAY:
        for host, suffix in (("pinned", ""), ("pageable", ".pageable")):
            measure = hot(_host_copy, way, size, host == "pinned")
            yield _case(way, {"bytes": size, "host": host}, measure, f"copy.{way}{suffix}")
    yield _case("d2d", {"bytes": size}, cold(_d2d, size), "copy.d2d", over="memory", cache="cold")
    yield _case("h2d_and_d2h", {"bytes": size, "host": "pinned"}, hot(_both_ways, size), ways=2)


def _by_numa(facts: Facts, size: int) -> Iterator[Case]:
    """Pinned memory of every NUMA node; no samples of a class, since they say the same as those on no node by name."""
    for node in range(facts.numa_nodes if facts.numa_nodes > 1 else 0):
        numa = "near" if node == facts.near_numa else "far"
        params = {"bytes": size, "host": "pinned", "numa": numa, "numa_node": node}
        for way in _OTHER_WAY:
            yield _case(way, params, partial(_on_numa, way=way, size=size, node=node))


def _with_others(facts: Facts, size: int) -> Iterator[Case]:
    """One copy while others run the other way: what it takes alone and what it costs them is told in `more`.

    And of ranks of one node together: they may share a PCIe switch, and the host's memory.
    """
    params = {"bytes": size, "host": "pinned"}
    for way, other in _OTHER_WAY.items():
        measure, cost_class = partial(_beside_other_way, way=way, size=size), f"copy.{way}.bidirectional"
        yield _case(way, {**params, "beside": other}, measure, cost_class, footprint_bytes=4 * size)
    for team in node_teams(facts):
        for way in _OTHER_WAY if team.whole else ("h2d",):
            cost_class = f"copy.{way}.concurrent" if team.whole else ""
            at_once = {**params, "at_once": len(team.ranks)}
            yield _case(way, at_once, hot(_host_copy, way, size), cost_class, team=team.ranks)


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


def _host_copy(bench: Bench, way: str, size: int, pinned: bool = True) -> Checked:
    return _copy_with(bench, way, bench.device.host_memory(size, pinned))


def _copy_with(bench: Bench, way: str, host: torch.Tensor) -> Checked:
    device = bench.empty(len(host), dtype=torch.uint8)
    return _check(bench, host, device) if way == "h2d" else _check(bench, device, host)


def _beside_other_way(bench: Bench, way: str, size: int) -> Measurement:
    ours, theirs = (_host_copy(bench, one, size) for one in (way, _OTHER_WAY[way]))
    measured = measure_overlap(bench, ours.act, theirs.act)
    return replace(measured, wrong=(ours.wrong() or 0) + (theirs.wrong() or 0))


def _on_numa(bench: Bench, way: str, size: int, node: int) -> Measurement:
    with numa_memory(bench.device, node, size) as host:
        return hot(_copy_with, way, host)(bench)


def _d2d(bench: Bench, size: int) -> Checked:
    source, target = (bench.empty(size, dtype=torch.uint8) for _ in range(2))
    return _check(bench, source, target)


def _p2p(bench: Bench, size: int) -> Checked:
    """Copy to the next GPU of this process; fails if the process sees only one GPU."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        raise RuntimeError("this process sees one GPU only")
    source = bench.empty(size, dtype=torch.uint8)
    target = torch.empty_like(source, device=torch.device("cuda", (source.get_device() + 1) % gpus))
    inputs, results = [Stretch(source, message(0))], [Stretch(target, message(0))]
    return check_stretches(bench, lambda: target.copy_(source, non_blocking=True), inputs, results)


def _both_ways(bench: Bench, size: int) -> Checked:
    up, down = (bench.device.host_memory(size) for _ in range(2))
    target, source = (bench.empty(size, dtype=torch.uint8) for _ in range(2))
    act = bench.device.concurrent_act([_copy(up, target), _copy(source, down)])
    inputs = [Stretch(up, message(0)), Stretch(source, message(1))]
    return check_stretches(bench, act, inputs, [Stretch(target, message(0)), Stretch(down, message(1))])


def _check(bench: Bench, source: torch.Tensor, target: torch.Tensor) -> Checked:
    inputs, results = [Stretch(source, message(0))], [Stretch(target, message(0))]
    return check_stretches(bench, _copy(source, target), inputs, results)


def _copy(source: torch.Tensor, target: torch.Tensor) -> Act:
    """Pinned memory is copied while the host goes on; pageable memory as by plain `copy_`, which waits."""
    pinned = source.is_pinned() or target.is_pinned()
    return lambda: target.copy_(source, non_blocking=pinned)


_NODES = Path("/sys/devices/system/node")


def cpus_of(node: int) -> set[int]:
    """The CPUs of a NUMA node: 0, 1, 2, 3 and 8 where Linux lists `0-3,8`.

    Raises:
        OSError: there is no such node.
    """
    cpus: set[int] = set()
    for part in filter(None, (_NODES / f"node{node}" / "cpulist").read_text().strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


@contextmanager
def numa_memory(device: Device, node: int, size_bytes: int) -> Iterator[torch.Tensor]:
    """Pinned bytes on a NUMA node, whose CPUs run this thread meanwhile: new pages lie where they are first written.

    Allocators may hand out pages that were written elsewhere, and torch's threads run where they like: hence fresh
    pages of the kernel, and one thread that writes them.

    Raises:
        OSError: there is no such node, or this process may use none of its CPUs.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus_of(node))
    try:
        memory = torch.frombuffer(mmap.mmap(-1, size_bytes), dtype=torch.uint8)
        ctypes.memset(memory.data_ptr(), 1, size_bytes)
        with device.pin(memory):
            yield memory
    finally:
        os.sched_setaffinity(0, before)
