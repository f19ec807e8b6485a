"""GEMMs: forward, data gradient and weight gradient of linear layers, in bf16, fp16, fp8 and tf32.

A case is a weight [n, k] and `m` tokens, its params; its features are the rows, columns and summed dimension of the
GEMM itself: forward y[m,n] = x w^T (NT), dgrad dx[m,k] = dy w (NN), wgrad dw[n,k] = dy^T x (TN).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Measure, cold, measure_in

# (n, k) of weights in real models, with their tensor-parallel shards
_WEIGHTS = (
    *((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (57344, 8192), (8192, 28672)),
    *((7168, 8192), (2560, 8192), (16384, 16384), (13312, 16384), (2048, 7168), (4096, 7168), (7168, 2048)),
    *((1536, 7168), (24576, 1536), (32768, 512), (16000, 8192), (128256, 4096), (3072, 12288), (12288, 12288)),
)
_SMALL_WEIGHTS = ((128, 128), (256, 256), (256, 1024), (1024, 256), (1024, 1024), (2048, 512), (512, 2048))
_TOKENS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_MOST = 2**42.5  # m n k: 12 TFLOP

_QUICK_EVERY = {"cuda": 3, "cpu": 7}
"""How many of the grid's shapes are quick: one in so many, no divisor of the numbers of tokens, so that all of those
come up. Of the published bf16 table of H100, 90 such shapes predict all 5,286 with an error of 4.4 / 13 % (median and
p90), 40 with 5.9 / 17 %; three tokens of seven weights did with 8.6 / 21 %, and all shapes here do with 4.6 / 13 %.
"""
_FP8_TOKENS = (64, 512, 2048, 8192)
_GRADIENT_WEIGHTS = ((256, 256), (1024, 1024), (4096, 4096), (28672, 4096), (4096, 14336), (7168, 2048))  # in fp8, fp16

_FP8 = torch.float8_e4m3fn
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32, "fp8": _FP8}
LAYOUTS = {"forward": "NT", "dgrad": "NN", "wgrad": "TN"}

_Shape = tuple[int, int, int]  # tokens, outputs and inputs of a weight; or rows, columns and summed dimension


def cases(facts: Facts) -> Iterator[Case]:
    """Weights of real models and small ones, 16 to 16384 tokens, and a few around full waves of the SMs."""
    for index, weight in enumerate(_grid((*_SMALL_WEIGHTS, *_WEIGHTS), _TOKENS)):
        quick = index % _QUICK_EVERY[facts.kind] == 0
        yield from (_linear_case(direction, weight, "bf16", quick=quick) for direction in LAYOUTS)
    # 4096 columns in tiles of 128 x 256: 32 rows per SM make four tiles on each. One row less, none, one more
    for m in (waves * 32 * facts.sms + more for waves in (1, 2) for more in (-1, 0, 1)):
        yield _linear_case("forward", (m, 4096, 4096), "bf16", wave=True)
    for weight in _grid(_GRADIENT_WEIGHTS, (256, 2048, 8192)):
        yield from (_linear_case(direction, weight, "fp16") for direction in LAYOUTS)
        yield _linear_case("forward", weight, "tf32" if facts.cuda else "fp32")  # a CPU has no tf32
    if not facts.fp8:
        return
    # scaled per tensor or per row, summed fast or in full fp32; of gradients the fast ones of some weights only
    for index, weight in enumerate(_grid((*_SMALL_WEIGHTS, *_WEIGHTS), _FP8_TOKENS)):
        quick = index % _QUICK_EVERY[facts.kind] == 0
        for scale, fast in (("tensor", True), ("tensor", False), ("row", True)):
            yield _fp8_case("forward", weight, scale, fast, quick and fast)
    for weight in _grid(_GRADIENT_WEIGHTS, _FP8_TOKENS):
        yield from (_fp8_case(direction, weight, "tensor", True, False) for direction in ("dgrad", "wgrad"))


def _grid(weights: tuple[tuple[int, int], ...], tokens: tuple[int, ...]) -> Iterator[_Shape]:
    return ((m, n, k) for n, k in weights for m in tokens if m * n * k <= _MOST)


def _linear_case(direction: str, weight: _Shape, dtype: str, quick: bool = False, **params: object) -> Case:
    measure = cold(linear, direction, *weight, _TYPES[dtype])
    measure = measure_in(_tf32, measure) if dtype == "tf32" else measure
    return _case(direction, weight, dtype, {"layout": LAYOUTS[direction], **params}, measure, "torch", quick)


def _fp8_case(direction: str, weight: _Shape, scale: str, fast: bool, quick: bool) -> Case:
    """All are NT: fp8 GEMMs want both operands contiguous in the summed dimension, which transposes them before."""
    measure = measure_in(_no_onednn, cold(_scaled_mm, *_gemm_shape(direction, *weight), scale, fast))
    library = f"torch scaled_mm{'_rowwise' if scale == 'row' else ''} {'fast' if fast else 'full'}"
    return _case(
        direction, weight, "fp8", {"layout": "NT", "scale": scale, "fast_accum": fast}, measure, library, quick
    )


def _gemm_shape(direction: str, m: int, n: int, k: int) -> _Shape:
    return {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[direction]


def _case(
    direction: str, weight: _Shape, dtype: str, params: dict[str, object], measure: Measure, library: str, quick: bool
) -> Case:
    rows, columns, summed = _gemm_shape(direction, *weight)
    wide = _TYPES[dtype].itemsize
    moved = float(wide * summed * (rows + columns) + max(wide, 2) * rows * columns)
    return Case(
        "gemm",
        direction,
        {**dict(zip("mnk", weight, strict=True)), "dtype": dtype, **params},
        measure,
        cost_class=f"gemm.{dtype}" + ("" if direction == "forward" else f".{direction}"),
        features={"m": float(rows), "n": float(columns), "k": float(summed)},
        library=library,
        together=f"{weight[1]}x{weight[2]}",
        flop=2.0 * rows * columns * summed,
        bytes=moved,
        footprint_bytes=moved + 4 * summed * max(rows, columns),  # random numbers are fp32 first
        quick=quick,
    )


def linear(bench: Bench, direction: str, m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Act:
    """A linear layer of `m` tokens and a weight [n, k], forward, or one of its two gradients."""
    if direction == "forward":
        x, w = bench.rand(m, k, dtype=dtype), bench.rand(n, k, dtype=dtype)
        return lambda: functional.linear(x, w)
    if direction == "dgrad":
        dy, w = bench.rand(m, n, dtype=dtype), bench.rand(n, k, dtype=dtype)
        return lambda: dy @ w
    dy, x = bench.rand(m, n, dtype=dtype), bench.rand(m, k, dtype=dtype)
    return lambda: dy.t() @ x


def _scaled_mm(bench: Bench, rows: int, columns: int, summed: int, scale: str, fast: bool) -> Act:
    a, b = bench.rand(rows, summed, dtype=_FP8), bench.rand(columns, summed, dtype=_FP8).t()
    shapes: tuple[tuple[int, ...], ...] = ((rows, 1), (1, columns)) if scale == "row" else ((), ())
    of_a, of_b = (torch.ones(shape, device=bench.device.torch_device) for shape in shapes)
    return lambda: torch._scaled_mm(a, b, of_a, of_b, out_dtype=torch.bfloat16, use_fast_accum=fast)


@contextmanager
def _tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _no_onednn() -> Iterator[None]:
    """CPUs alone know it. With AMX but no FP16 in it (Sapphire Rapids), torch 2.13 gives oneDNN FP8 GEMMs for which
    that has a reference only, 200 times as slow as what torch does itself.
    """
    before, *_ = torch.backends.mkldnn.set_flags(_enabled=False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before)
