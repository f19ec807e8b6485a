"""What calls cost: the host's time to issue work, the device's gaps between kernels, graphs, events, memory, waiting.

Names that end in `_issue`, `_call` or start with `alloc` are host seconds until the call returns; the others are device
seconds. `count` is how many calls (kernels, nodes, waits) a sample holds.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from ..case import Act, Case, Facts, Measure, Measurement
from ..timing import Bench, Prepare, bench_later, cold, hot, on_host

_KERNELS = 500  # fewer than a stream's queue holds (1024)
_CALLS = 100
_NODES = 200
_REPEATS = 50


def cases(facts: Facts) -> Iterator[Case]:
    """Launches and calls; on CUDA also graphs, events and fresh memory, with several ranks the call of a collective."""
    yield _case("launch", _KERNELS, on_host(_repeated(_tiny_kernel, _KERNELS)), kernels=_KERNELS)
    yield _case("kernel_to_kernel", _KERNELS, hot(_repeated(_tiny_kernel, _KERNELS)), kernels=_KERNELS)
    for name, make in _ISSUED.items():
        yield _case(f"{name}_call", _CALLS, on_host(_repeated(make, _CALLS)), calls=_CALLS)
    yield _case("synchronize", 1, on_host(lambda bench: bench.device.synchronize))
    for size in (1 << 12, 1 << 20, 1 << 26):
        yield _case("empty_alloc_cached", 1, on_host(_allocate(size)), sample=size == 1 << 20, bytes=size)
    if facts.cuda:
        yield from _cuda_cases()
    if facts.ranks > 1:
        two = tuple(rank for node in facts.nodes for rank in node)[:2]
        yield _case("collective_call", 1, _collective_call, team=two, op="all_reduce", bytes=4)


def _cuda_cases() -> Iterator[Case]:
    for nodes in (1, 20, _NODES, 1000):
        typical = nodes == _NODES
        yield _case("graph_replay_issue", 1, on_host(_graph(nodes)), sample=typical, nodes=nodes)
        yield _case("graph_node", nodes, hot(_graph(nodes)), sample=typical, nodes=nodes)
    yield _case("event_pair", 1, cold(lambda _bench: lambda: None))
    yield _case("stream_wait_event", _CALLS, hot(_ping(_CALLS)), waits=_CALLS)
    for size in (1 << 21, 1 << 26, 1 << 30):
        typical = size == 1 << 26
        yield _case("alloc_uncached", 1, _allocate_uncached(size), sample=typical, bytes=size, footprint=float(size))


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


@bench_later
def _repeated(bench: Bench, make: Callable[[Bench], Act], times: int) -> Act:
    one = make(bench)

    def burst() -> None:
        for _ in range(times):
            one()

    return burst


def _tiny_kernel(bench: Bench) -> Act:
    x = bench.rand(16)
    return lambda: x.add_(1.0)


def _linear(bench: Bench) -> Act:
    x, w = bench.rand(64, 64), bench.rand(64, 64)
    return lambda: functional.linear(x, w)


def _add(bench: Bench) -> Act:
    x, y = bench.rand(64, 64), bench.rand(64, 64)
    return lambda: x + y


def _view(bench: Bench) -> Act:
    x = bench.rand(64, 64)
    return lambda: x.view(-1)


def _slice(bench: Bench) -> Act:
    x = bench.rand(64, 64)
    return lambda: x[1:33]


def _copy(bench: Bench) -> Act:
    x, y = bench.rand(64), bench.rand(64)
    return lambda: y.copy_(x)


_ISSUED = {"linear": _linear, "add": _add, "view": _view, "slice": _slice, "copy": _copy}


def _allocate(size_bytes: int) -> Prepare:
    """Memory that the allocator has at hand from the call before, taken and given back."""
    return lambda bench: lambda: bench.empty(size_bytes, dtype=torch.uint8)


@bench_later
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


@bench_later
def _graph(bench: Bench, nodes: int) -> Act:
    """Tiny kernels that depend on each other, in one CUDA graph."""
    one = _tiny_kernel(bench)
    one()  # what is compiled or allocated on first use must not be in a capture
    bench.device.synchronize()
    graph = torch.cuda.CUDAGraph()
    before = torch.cuda.current_stream(bench.device.torch_device)
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog may ask for its events
            for _ in range(nodes):
                one()
    finally:
        torch.cuda.set_stream(before)  # a capture that fails leaves its own
    return lambda: graph.replay()


@bench_later
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
    samples = [_issue(bench, number) for _ in range(_REPEATS + 5)]
    return Measurement(tuple(samples[5:]))


def _issue(bench: Bench, number: torch.Tensor) -> float:
    start = time.perf_counter()
    work = dist.all_reduce(number, group=bench.group, async_op=True)
    seconds = time.perf_counter() - start
    work.wait()
    bench.device.synchronize()
    return seconds
