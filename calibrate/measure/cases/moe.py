"""Mixture of experts: one grouped product of all experts, balanced and skewed, and tokens permuted and back."""

import random
from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from runcast.kernels import permute

from ..bench import Bench
from ..case import Act, Case
from ..facts import Facts
from ..timing import Checked, Prepare, cold
from .membound import differing, kernels_library

_EXPERTS = (  # experts, n, k of each
    *((4, 256, 256), (8, 512, 512), (16, 1024, 512), (8, 768, 2048)),
    *((8, 4096, 7168), (32, 4096, 7168), (32, 7168, 2048), (8, 14336, 4096), (64, 1536, 2048), (128, 1536, 4096)),
)
_GROUPED_ROWS = (256, 1024, 4096, 16384, 32768)
_QUICK_EXPERTS = ((4, 256, 256), (8, 512, 512), (32, 4096, 7168), (8, 14336, 4096))
_TILE_ROWS = 16  # rows of an expert are a multiple: grouped products want aligned groups

_ROUTED = (  # tokens, hidden, experts, experts per token
    *((256, 512, 8, 2), (1024, 512, 8, 2), (512, 1024, 32, 4), (2048, 2048, 64, 6), (4096, 1024, 8, 2)),
    *((4096, 4096, 8, 2), (4096, 7168, 256, 8), (16384, 4096, 8, 2), (16384, 7168, 256, 8), (32768, 2048, 128, 8)),
)
_QUICK_ROUTED = ((1024, 512, 8, 2), (2048, 2048, 64, 6), (4096, 7168, 256, 8))
_SEEN = 1024  # rows whose results are looked at


def cases(facts: Facts) -> Iterator[Case]:
    """Grouped products by torch's kernel and by a loop, and the kernels around them."""
    for shape in _EXPERTS:
        for rows in _GROUPED_ROWS:
            for skew in (0, 1):
                if hasattr(torch, "_grouped_mm"):  # torch 2.6 lacks it
                    yield _grouped_case("grouped_mm", shape, rows, skew)
                yield _grouped_case("loop_of_mm", shape, rows, skew)
    for routed in _ROUTED:
        yield _routed_case("permute", routed, _permute(*routed), facts)
        yield _routed_case("unpermute", routed, _unpermute(*routed), facts)


def _grouped_case(name: str, shape: tuple[int, int, int], rows: int, skew: int) -> Case:
    """One product per expert, as a feed-forward of one matrix on one rank."""
    experts, n, k = shape
    sizes = shares(rows, experts, skew)
    prepare = _grouped_mm(sizes, n, k) if name == "grouped_mm" else _loop_of_mm(sizes, n, k)
    busy = sum(size > 0 for size in sizes)
    moved = 2.0 * (rows * k + busy * n * k + rows * n)
    fixed = {"topk": 1.0, "tp": 1.0, "ep": 1.0, "matrices": 1.0, "skew": float(skew)}
    return Case(
        "moe",
        name,
        {"experts": experts, "rows": rows, "n": n, "k": k, "skew": skew, "largest": max(sizes), "dtype": "bf16"},
        cold(prepare),
        cost_class="grouped_gemm.bf16",
        features={**fixed, "tokens": float(rows), "hidden": float(k), "inter": float(n), "experts": float(experts)},
        library=f"torch {name}",
        together=f"{n}x{k}",
        flop=2.0 * rows * n * k,
        bytes=moved,
        calls=busy if name == "loop_of_mm" else 1,
        footprint_bytes=2.0 * (rows * k + rows * n) + 6.0 * experts * n * k,  # random numbers are fp32 first
        quick=shape in _QUICK_EXPERTS and rows in (1024, 16384),
    )


def shares(rows: int, experts: int, skew: float) -> list[int]:
    """Rows of each expert, multiples of 16, that fall off as 1 / rank^skew over experts in random order; 0 is even.

    Rounding leaves some rows over; they go to the most loaded expert.
    """
    weights = [1.0 / rank**skew for rank in range(1, experts + 1)]
    random.Random(f"{rows}/{experts}").shuffle(weights)
    sizes = [int(rows * weight / sum(weights) / _TILE_ROWS) * _TILE_ROWS for weight in weights]
    sizes[weights.index(max(weights))] += rows - sum(sizes)
    return sizes


def _grouped_mm(sizes: list[int], n: int, k: int) -> Prepare:
    def prepare(bench: Bench) -> Checked:
        x, w = bench.rand(sum(sizes), k), bench.rand(len(sizes), n, k).transpose(1, 2)
        ends = list(accumulate(sizes))
        offsets = torch.tensor(ends, dtype=torch.int32, device=bench.device.torch_device)
        act = lambda: torch._grouped_mm(x, w, offs=offsets)  # noqa: E731
        busiest = sizes.index(max(sizes))
        first = ends[busiest] - sizes[busiest]
        rows = slice(first, first + min(_TILE_ROWS, sizes[busiest]))
        return Checked(act, lambda: differing(act()[rows] / k**0.5, x[rows] @ w[busiest] / k**0.5))

    return prepare


def _loop_of_mm(sizes: list[int], n: int, k: int) -> Prepare:
    def prepare(bench: Bench) -> Act:
        x, w, y = bench.rand(sum(sizes), k), bench.rand(len(sizes), n, k).transpose(1, 2), bench.empty(sum(sizes), n)
        bounds = list(pairwise([0, *accumulate(sizes)]))
        products = [(x[a:b], w[i], y[a:b]) for i, (a, b) in enumerate(bounds) if b > a]
        return lambda: [torch.mm(rows, weight, out=into) for rows, weight, into in products]

    return prepare


def _routed_case(name: str, routed: tuple[int, int, int, int], prepare: Prepare, facts: Facts) -> Case:
    """Tokens are read or written once, rows of experts too, in bf16; indices count, weights of the sum hardly."""
    tokens, hidden, experts, each = routed
    moved = 2.0 * hidden * tokens * (1 + each) + 4.0 * tokens * each
    return Case(
        "moe",
        name,
        {"tokens": tokens, "hidden": hidden, "experts": experts, "topk": each, "dtype": "bf16"},
        cold(prepare),
        cost_class=f"memory.{name}",
        features={"bytes": moved, "width": float(hidden)},
        library=kernels_library(facts),
        together=f"{hidden}",
        bytes=moved,
        footprint_bytes=3 * moved + (0.0 if facts.cuda else 10.0 * hidden * tokens * each),  # the reference is in fp32
        quick=routed in _QUICK_ROUTED,
    )


def _choices(bench: Bench, tokens: int, experts: int, each: int) -> torch.Tensor:
    """Distinct random experts for every token."""
    return torch.rand(tokens, experts, device=bench.device.torch_device).topk(each, dim=1).indices


def _permute(tokens: int, hidden: int, experts: int, each: int) -> Prepare:
    def prepare(bench: Bench) -> Checked:
        states = bench.rand(tokens, hidden)
        order, _ = permute.route(_choices(bench, tokens, experts, each))
        act = lambda: permute.permute(states, order)  # noqa: E731
        expected = permute.permute_reference(states, order[:_SEEN])
        return Checked(act, lambda: int((act()[:_SEEN] != expected).sum().item()))

    return prepare


def _unpermute(tokens: int, hidden: int, experts: int, each: int) -> Prepare:
    def prepare(bench: Bench) -> Checked:
        _, places = permute.route(_choices(bench, tokens, experts, each))
        rows, weights = bench.rand(tokens * each, hidden), bench.rand(tokens, each, dtype=torch.float32)
        act = lambda: permute.unpermute(rows, places, weights)  # noqa: E731
        expected = permute.unpermute_reference(rows, places[:_SEEN], weights[:_SEEN])
        return Checked(act, lambda: differing(act()[:_SEEN], expected))

    return prepare
