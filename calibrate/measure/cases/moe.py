"""Mixture of experts: the feed-forward of all experts of a rank, balanced and skewed, and tokens permuted and back.

A feed-forward is what `grouped_gemm` means (`profile/forms/grouped_gemm.py`): the grouped GEMM for gate and up,
SwiGLU, and the grouped GEMM down, of rows that lie in the order of their experts already. Its experts are those of
one rank, and its tokens those that come to it: `ep` and `tp` are 1. Single grouped GEMMs are no samples of it.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, pairwise, product

import torch

from ....kernels import permute
from ....kernels.swiglu import swiglu
from ..case import Case, Facts
from ..timing import Bench, Checked, Prepare, cold
from .exact import check_rows, count_differences, kernels_library

_EXPERTS = (  # of one rank: experts, hidden, inter, experts there per token (fewer where a rank has a share only)
    *((4, 256, 256, 1), (8, 256, 512, 2), (8, 512, 256, 2), (16, 512, 128, 4)),
    *((8, 4096, 14336, 2), (8, 6144, 16384, 2), (16, 5120, 8192, 1), (16, 4096, 1536, 1), (16, 7168, 2048, 1)),
    *((32, 7168, 2048, 1), (32, 2048, 768, 2), (48, 7168, 2048, 1), (60, 2048, 1408, 4), (64, 2048, 1408, 6)),
    *((64, 4096, 1536, 4), (128, 2048, 768, 8), (128, 4096, 1536, 8)),
)
_QUICK_EXPERTS = (*_EXPERTS[:5], *_EXPERTS[9:11], *_EXPERTS[14:16])
_TOKENS = (128, 256, 1024, 4096, 8192, 16384)
_QUICK_TOKENS = (256, 1024, 8192)
_SKEWS = (0.0, 1.2)  # balanced, and the steepest load of the published tables
_FEWEST_ROWS = {0.0: 16, 1.2: 64}  # of an expert on average: fewer cannot be skewed in groups of 16
_MOST_ROWS = 2**16
_TILE_ROWS = 16  # rows of an expert are a multiple: grouped GEMMs want aligned groups

_GEMMS = ((8, 512, 512), (8, 4096, 7168), (32, 7168, 2048), (64, 1536, 2048))  # experts, n, k of each
_GEMM_ROWS = (1024, 16384)

_ROUTED = (  # tokens, hidden, experts, experts per token
    *((256, 512, 8, 2), (1024, 512, 8, 2), (512, 1024, 32, 4), (2048, 2048, 64, 6), (4096, 1024, 8, 2)),
    *((4096, 4096, 8, 2), (4096, 7168, 256, 8), (16384, 4096, 8, 2), (16384, 7168, 256, 8), (32768, 2048, 128, 8)),
)
_QUICK_ROUTED = ((1024, 512, 8, 2), (2048, 2048, 64, 6), (4096, 7168, 256, 8))
_SEEN = 1024  # rows of permuted tokens that are compared with the reference


def cases(facts: Facts) -> Iterator[Case]:
    """Grouped GEMMs by torch's kernel and by a loop, and the kernels around them."""
    for name in _GROUPED_BY:
        if name != "grouped_mm" or hasattr(torch, "_grouped_mm"):  # torch 2.6 lacks it
            for experts, tokens, skew in product(_EXPERTS, _TOKENS, _SKEWS):
                if _FEWEST_ROWS[skew] * experts[0] <= tokens * experts[3] <= _MOST_ROWS:
                    yield _feed_forward_case(name, experts, tokens, skew, facts)
            for shape, rows, skew in product(_GEMMS, _GEMM_ROWS, _SKEWS):
                yield _gemm_case(name, *shape, rows, skew)
    for routed in _ROUTED:
        yield _routed_case("permute", routed, _permute, facts)
        yield _routed_case("unpermute", routed, _unpermute, facts)


def _feed_forward_case(name: str, experts: tuple[int, int, int, int], tokens: int, skew: float, facts: Facts) -> Case:
    """Bytes count each GEMM's operands and result once, and what SwiGLU reads and writes."""
    count, hidden, inter, topk = experts
    rows = tokens * topk
    sizes = shares(rows, count, skew)
    shape = {"tokens": tokens, "experts": count, "topk": topk, "hidden": hidden, "inter": inter}
    weights = 3.0 * count * hidden * inter
    fixed = {"tp": 1.0, "ep": 1.0, "matrices": 3.0, "skew": skew}
    return Case(
        "moe",
        "feed_forward",
        {**shape, "skew": skew, "largest": max(sizes), "by": name, "dtype": "bf16"},
        cold(_feed_forward, sizes, hidden, inter, _GROUPED_BY[name]),
        cost_class="grouped_gemm.bf16",
        features={**{feature: float(value) for feature, value in shape.items()}, **fixed},
        library=f"torch {name}, {kernels_library(facts)}",
        together="x".join(map(str, (hidden, inter, topk, count))),
        flop=6.0 * rows * hidden * inter,
        bytes=2.0 * (rows * (2 * hidden + 6 * inter) + weights),
        calls=2 * count + 1 if name == "loop_of_mm" else 3,
        footprint_bytes=2.0 * rows * (3 * hidden + 5 * inter) + 6.0 * weights,  # random numbers are fp32 first
        quick=experts in _QUICK_EXPERTS and tokens in _QUICK_TOKENS,
    )


def _gemm_case(name: str, experts: int, n: int, k: int, rows: int, skew: float) -> Case:
    """One GEMM per expert: a part of a feed-forward, and so no sample of it."""
    sizes = shares(rows, experts, skew)
    return Case(
        "moe",
        name,
        {"experts": experts, "rows": rows, "n": n, "k": k, "skew": skew, "largest": max(sizes), "dtype": "bf16"},
        cold(_grouped_gemm, sizes, n, k, _GROUPED_BY[name]),
        library=f"torch {name}",
        together=f"{n}x{k}",
        flop=2.0 * rows * n * k,
        bytes=2.0 * (rows * k + experts * n * k + rows * n),
        calls=experts if name == "loop_of_mm" else 1,
        footprint_bytes=2.0 * (rows * k + rows * n) + 6.0 * experts * n * k,  # random numbers are fp32 first
        quick=(experts, n, k) == _GEMMS[0],
    )


def _routed_case(name: str, routed: tuple[int, int, int, int], prepare: Prepare, facts: Facts) -> Case:
    """Tokens are read or written once, rows of experts too, in bf16; indices count, weights of the sum hardly."""
    tokens, hidden, experts, each = routed
    moved = 2.0 * hidden * tokens * (1 + each) + 4.0 * tokens * each
    return Case(
        "moe",
        name,
        {"tokens": tokens, "hidden": hidden, "experts": experts, "topk": each, "dtype": "bf16"},
        cold(prepare, *routed),
        cost_class=f"memory.{name}",
        features={"bytes": moved, "width": float(hidden)},
        library=kernels_library(facts),
        together=f"{hidden}",
        bytes=moved,
        footprint_bytes=3 * moved + (0.0 if facts.cuda else 10.0 * hidden * tokens * each),  # the reference is in fp32
        quick=routed in _QUICK_ROUTED,
    )


def shares(rows: int, experts: int, skew: float) -> list[int]:
    """Rows of each expert, that fall off as 1 / rank^skew over experts in random order; 0 is even.

    They are multiples of 16, and 16 at least. What rounding leaves over goes to the most loaded expert; what the least
    rows of others need beyond that, the most loaded ones give up.
    """
    weights = [1.0 / rank**skew for rank in range(1, experts + 1)]
    random.Random(f"{rows}/{experts}").shuffle(weights)
    sizes = [max(int(rows * weight / sum(weights) / _TILE_ROWS), 1) * _TILE_ROWS for weight in weights]
    while sum(sizes) - rows >= _TILE_ROWS:
        sizes[sizes.index(max(sizes))] -= _TILE_ROWS
    sizes[weights.index(max(weights))] += rows - sum(sizes)
    return sizes


_Grouped = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The product of rows [R, k], in the order of their experts, and weights [experts, k, n]."""


def _grouped_mm(sizes: list[int], device: torch.device) -> _Grouped:
    ends = torch.tensor(list(accumulate(sizes)), dtype=torch.int32, device=device)
    return lambda x, w: torch._grouped_mm(x, w, offs=ends)


def _loop_of_mm(sizes: list[int], _device: torch.device) -> _Grouped:
    bounds = list(pairwise([0, *accumulate(sizes)]))

    def multiply(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result = x.new_empty(len(x), w.shape[2])
        for (start, end), weight in zip(bounds, w, strict=True):
            torch.mm(x[start:end], weight, out=result[start:end])
        return result

    return multiply


_GROUPED_BY = {"grouped_mm": _grouped_mm, "loop_of_mm": _loop_of_mm}


def _feed_forward(bench: Bench, sizes: list[int], hidden: int, inter: int, by: Callable[..., _Grouped]) -> Checked:
    grouped = by(sizes, bench.device.torch_device)
    x = bench.rand(sum(sizes), hidden)
    into, back = _weights(bench, len(sizes), 2 * inter, hidden), _weights(bench, len(sizes), hidden, inter)
    act = lambda: grouped(swiglu(grouped(x, into)), back)  # noqa: E731
    busiest, rows = _first_rows(sizes)
    return Checked(act, lambda: count_differences(act()[rows], swiglu(x[rows] @ into[busiest]) @ back[busiest], 0.05))


def _grouped_gemm(bench: Bench, sizes: list[int], n: int, k: int, by: Callable[..., _Grouped]) -> Checked:
    grouped = by(sizes, bench.device.torch_device)
    x, w = bench.rand(sum(sizes), k), _weights(bench, len(sizes), n, k)
    busiest, rows = _first_rows(sizes)
    return Checked(lambda: grouped(x, w), lambda: count_differences(grouped(x, w)[rows], x[rows] @ w[busiest]))


def _weights(bench: Bench, experts: int, n: int, k: int) -> torch.Tensor:
    """[experts, k, n], such that products are about as large as what they are made of."""
    return bench.rand(experts, n, k).mul_(k**-0.5).transpose(1, 2)


def _first_rows(sizes: list[int]) -> tuple[int, slice]:
    """The most loaded expert, and its first rows."""
    busiest = sizes.index(max(sizes))
    first = sum(sizes[:busiest])
    return busiest, slice(first, first + _TILE_ROWS)


def _choices(bench: Bench, tokens: int, experts: int, each: int) -> torch.Tensor:
    """Distinct random experts for every token."""
    return torch.rand(tokens, experts, device=bench.device.torch_device).topk(each, dim=1).indices


def _permute(bench: Bench, tokens: int, hidden: int, experts: int, each: int) -> Checked:
    states = bench.rand(tokens, hidden)
    order, _ = permute.route(_choices(bench, tokens, experts, each))
    act = lambda: permute.permute(states, order)  # noqa: E731
    expected = permute.permute_reference(states, order[:_SEEN])
    return Checked(act, lambda: int((act()[:_SEEN] != expected).sum().item()))


def _unpermute(bench: Bench, tokens: int, hidden: int, experts: int, each: int) -> Checked:
    _, places = permute.route(_choices(bench, tokens, experts, each))
    rows, weights = bench.rand(tokens * each, hidden), bench.rand(tokens, each, dtype=torch.float32)
    kernel, reference = (partial(one, rows) for one in (permute.unpermute, permute.unpermute_reference))
    return check_rows(kernel, reference, [places, weights], seen=_SEEN)
