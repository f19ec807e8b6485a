"""What calls cost: the host's time to issue work, the device's gaps between kernels, graphs, events, memory, waiting.

Names that end in `_issue`, `_call` or start with `alloc` are host seconds until the call returns; the others are device
seconds. `count` is how many calls (kernels, nodes, waits) a sample holds.
"""

import gc
import mmap
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from ..case import Case, Facts
from ..device import Act, repeat
from ..timing import Bench, Measure, Measurement, cold, hot, time_host

_KERNELS = 500  # fewer than a stream's queue holds (1024)
_CALLS = 100
_NODES = 200
_REPEATS = 50
_FRESH = 1 << 26  # bytes of fresh memory that are a sample


def cases(facts: Facts) -> Iterator[Case]:
    """Launches and calls; on CUDA also graphs, events and fresh memory, with several ranks the call of a collective."""
    yield _case("launch", _KERNELS, time_host(_repeat, "add_in_place", _KERNELS), kernels=_KERNELS)
    yield _case("kernel_to_kernel", _KERNELS, hot(_repeat, "add_in_place", _KERNELS), kernels=_KERNELS)
    for name in ("linear", "add", "view", "slice", "copy"):
        yield _case(f"{name}_call", _CALLS, time_host(_repeat, name, _CALLS), calls=_CALLS)
    yield _case("collect_garbage", 1, time_host(lambda _bench: gc.collect))
    yield _case("synchronize", 1, time_host(lambda bench: bench.device.synchronize))
    for size in (1 << 12, 1 << 20, 1 << 26):
        yield _case("empty_alloc_cached", 1, time_host(_allocate, size), sample=size == 1 << 20, bytes=size)
    if facts.cuda:
        for nodes in (1, 20, _NODES, 1000):
            typical = nodes == _NODES
            yield _case("graph_replay_issue", 1, time_host(_graph, nodes), sample=typical, nodes=nodes)
            yield _case("graph_node", nodes, hot(_graph, nodes), sample=typical, nodes=nodes)
        yield _case("event_pair", 1, cold(lambda _bench: lambda: None))
        yield _case("stream_wait_event", _CALLS, hot(_ping, _CALLS), waits=_CALLS)
    for size in (1 << 21, _FRESH, 1 << 30) if facts.cuda else (_FRESH,):
        allocate = _allocate_uncached if facts.cuda else _allocate_pages
        measure = partial(allocate, size_bytes=size)
        yield _case("alloc_uncached", 1, measure, sample=size == _FRESH, bytes=size, footprint=float(size))
    if facts.ranks > 1:
        two = tuple(rank for node in facts.nodes for rank in node)[:2]
        yield _case("collective_call", 1, _collective_call, team=two, op="all_reduce", bytes=4)


def _case(
    name: str,
    count: int,
    measure: Measure,
    team: tuple[int, ...] = (0,),
    sample: bool = True,
    footprint: float = 0.0,
    **params: Any,
) -> Case:
    """`sample` is False for what should not be fitted together with the others of its class."""
    return Case(
        "overheads",
        name,
        params,
        measure,
        team,
        cost_class=f"host.{name}" if sample else "",
        features={"count": float(count)} if sample else {},
        calls=count,
        cache="hot",
        footprint_bytes=footprint,
        quick=True,
    )


def _repeat(bench: Bench, name: str, times: int) -> Act:
    return repeat(_call(bench, name), times)


def _call(bench: Bench, name: str) -> Act:
    """One call on operands so small that issuing it is what takes time."""
    few, x, y = bench.rand(16), bench.rand(64, 64), bench.rand(64, 64)
    row, into = bench.rand(64), bench.rand(64)
    calls: dict[str, Act] = {
        "add_in_place": lambda: few.add_(1.0),
        "linear": lambda: functional.linear(x, y),
        "add": lambda: x + y,
        "view": lambda: x.view(-1),
        "slice": lambda: x[1:33],
        "copy": lambda: into.copy_(row),
    }
    return calls[name]


def _allocate(bench: Bench, size_bytes: int) -> Act:
    """Memory that the allocator has at hand from the call before, taken and given back."""
    return lambda: bench.empty(size_bytes, dtype=torch.uint8)


def _allocate_uncached(bench: Bench, size_bytes: int) -> Measurement:
    """Memory that the allocator must ask the driver for; `empty_cache_s` is what giving it back took before."""
    samples, emptied = [], []
    bench.empty(size_bytes, dtype=torch.uint8)
    for _ in range(_REPEATS // 5):
        before = time.perf_counter()
        torch.cuda.empty_cache()
        start = time.perf_counter()
        bench.empty(size_bytes, dtype=torch.uint8)
        samples.append(time.perf_counter() - start)
        emptied.append(start - before)
    return Measurement(tuple(samples), more={"empty_cache_s": emptied})


def _allocate_pages(_bench: Bench, size_bytes: int) -> Measurement:
    """Host memory in place of a device's: allocated and written once, since pages are mapped when they are used."""
    samples = []
    for _ in range(_REPEATS // 5):
        start = time.perf_counter()
        torch.frombuffer(mmap.mmap(-1, size_bytes), dtype=torch.uint8).zero_()  # the C library would keep it
        samples.append(time.perf_counter() - start)
    return Measurement(tuple(samples))


def _graph(bench: Bench, nodes: int) -> Act:
    """Tiny kernels that depend on each other, in one CUDA graph."""
    kernels = _repeat(bench, "add_in_place", nodes)
    kernels()  # what is compiled or allocated on first use must not be in a capture
    bench.device.synchronize()
    graph = torch.cuda.CUDAGraph()
    before = torch.cuda.current_stream(bench.device.torch_device)
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog may ask for its events
            kernels()
    finally:
        torch.cuda.set_stream(before)  # a capture that fails leaves its own
    return lambda: graph.replay()


def _ping(bench: Bench, waits: int) -> Act:
    """Two streams that wait for each other in turn."""
    side = torch.cuda.Stream(bench.device.torch_device)

    def act() -> None:
        main = torch.cuda.current_stream(bench.device.torch_device)
        for _ in range(waits // 2):
            side.wait_stream(main)
            main.wait_stream(side)

    return act


def _collective_call(bench: Bench) -> Measurement:
    """Host seconds until an asynchronous all-reduce of one number is issued. All ranks issue as many."""
    number = bench.rand(1, dtype=torch.float32)
    samples = []
    for _ in range(_REPEATS + 5):
        start = time.perf_counter()
        work = dist.all_reduce(number, group=bench.group, async_op=True)
        samples.append(time.perf_counter() - start)
        work.wait()
        bench.device.synchronize()
    return Measurement(tuple(samples[5:]))
