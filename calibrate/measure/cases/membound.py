"""Kernels bound by memory: copies, norms, activations, losses, optimizer steps, casts; 1 MB to some GB.

Bytes are algorithmic, each tensor read once and written once whatever a kernel really does. Of bf16, per element of a
[rows, width] tensor:

| class | bytes | |
|---|---|---|
| `memory.copy` | 4 | |
| `memory.residual_add` | 6 | |
| `memory.rms_norm`, `_backward` | 4, 6 | backward: x, dy -> dx |
| `memory.add_rms_norm` | 8 | x, residual -> both, normed |
| `memory.swiglu`, `_backward` | 6, 10 | gate, up -> y; gate, up, dy -> both gradients |
| `memory.cast` | 6 | bf16 to fp32 or back |
| `memory.fp32_accumulate` | 10 | fp32 += bf16 |
| `memory.cast_fp8`, `quantize_by`, `quantize_tiles` | 3 | bf16 -> fp8; tiles: a scale per 128 elements too |
| `memory.cross_entropy` | 6 | in one kernel: logits -> loss; logits -> gradient |
| `memory.loss_passes`, `_backward` | 38, 14 | the same in one pass after another, each tensor as often as it is read |

and of fp32, per parameter: `memory.adamw` 28 (p, g, m, v -> p, m, v), `memory.grad_norm` 4.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch.nn import functional

from ....kernels import cross_entropy, quantize, rmsnorm, swiglu
from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Checked, Prepare, backward_of, cold
from .exact import check_rows, kernels_library

_BF16, _FP32, _FP8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn

_ROWS = (  # rows, width
    *((2048, 128), (256, 1024), (64, 8192), (1024, 1024), (256, 4096), (16384, 128), (2048, 2048), (8192, 1024)),
    *((2048, 4096), (2048, 8192), (65536, 512), (8192, 4096), (8192, 7168), (65536, 1024), (8192, 8192)),
    *((4096, 16384), (32768, 4096), (32768, 8192), (131072, 8192)),
)
_VOCABULARIES = (  # tokens, words
    *((128, 2048), (64, 32000), (256, 8192), (1024, 8192), (1024, 32000), (512, 128256), (4096, 32000)),
    *((4096, 128256), (8192, 32000), (8192, 151936), (16384, 128256)),
)
_QUICK = (
    *((1_000_000,), (10_000_000,), (100_000_000,)),
    *((256, 1024), (1024, 1024), (2048, 2048), (8192, 1024), (8192, 4096), (32768, 4096)),
    *((256, 8192), (1024, 8192), (1024, 32000), (4096, 128256)),
)
_PARAMETERS = (100_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 500_000_000)
_TENSORS = 8


@dataclass(frozen=True)
class _Kernel:
    """`moves` and `holds` are bytes per element: moved by one act, and allocated at the most.

    `prepare` is given rows and width, or of optimizers the number of parameters. `variant` tells cases of one class
    apart; `ours` are kernels of `runcast.kernels`; `of` is the class, if it has another name.
    """

    name: str
    moves: float
    holds: float
    prepare: Prepare
    variant: str = ""
    ours: bool = False
    fp8: bool = False
    of: str = ""


def cases(facts: Facts) -> Iterator[Case]:
    """What torch has, and the fused kernels of `runcast.kernels`, in Triton where there is a GPU."""
    for kernel in _KERNELS:
        if facts.fp8 or not kernel.fp8:
            yield from (_case(kernel, shape, facts) for shape in _ROWS)
    for kernel in _LOSSES:
        yield from (_case(kernel, shape, facts) for shape in _VOCABULARIES)
    for parameters in _PARAMETERS:
        yield from (_case(kernel, (parameters,), facts) for kernel in _OPTIMIZERS)


def _case(kernel: _Kernel, shape: tuple[int, ...], facts: Facts) -> Case:
    variant = {"variant": kernel.variant} if kernel.variant else {}
    if len(shape) == 1:  # without rows there is no width: a model counts such a kernel as wide
        params = {"parameters": shape[0], "tensors": _TENSORS, "dtype": "fp32", **variant}
        library, width = f"torch {kernel.variant}", {}
    else:
        of = "runcast" if kernel.ours else "torch"
        params = {"rows": shape[0], "width": shape[1], "dtype": "bf16", **variant, "of": of}
        library, width = kernels_library(facts) if kernel.ours else "torch", {"width": float(shape[1])}
    return Case(
        "membound",
        kernel.name,
        params,
        cold(kernel.prepare, *shape),
        cost_class=f"memory.{kernel.of or kernel.name}",
        features={"bytes": kernel.moves * prod(shape), **width},
        library=library,
        together="".join(map(str, shape[1:])),
        bytes=kernel.moves * prod(shape),
        footprint_bytes=kernel.holds * prod(shape),
        quick=shape in _QUICK,
    )


# ---- torch


def _copy(bench: Bench, rows: int, width: int, source: torch.dtype = _BF16, target: torch.dtype = _BF16) -> Act:
    """Also casts where the types differ."""
    x, into = bench.rand(rows, width, dtype=source), bench.empty(rows, width, dtype=target)
    return lambda: into.copy_(x)


def residual_add(bench: Bench, rows: int, width: int) -> Act:
    """The sum of two bf16 tensors [rows, width]."""
    x, y, into = bench.rand(rows, width), bench.rand(rows, width), bench.empty(rows, width)
    return lambda: torch.add(x, y, out=into)


def _rms_norm(bench: Bench, rows: int, width: int, backward: bool) -> Act:
    x, weight = bench.rand(rows, width), bench.rand(width)
    forward = lambda: functional.rms_norm(x, (width,), weight)  # noqa: E731
    return backward_of(forward, [x, weight]) if backward else forward


def _swiglu(bench: Bench, rows: int, width: int, backward: bool) -> Act:
    x = bench.rand(rows, 2 * width)

    def forward() -> torch.Tensor:
        gate, up = x.chunk(2, dim=1)
        return functional.silu(gate) * up

    return backward_of(forward, [x]) if backward else forward


def _fp32_accumulate(bench: Bench, rows: int, width: int) -> Act:
    total, x = bench.rand(rows, width, dtype=_FP32), bench.rand(rows, width)
    return lambda: total.add_(x)


def _labels(bench: Bench, tokens: int, words: int) -> torch.Tensor:
    return torch.randint(0, words, (tokens,), device=bench.device.torch_device)


def _cross_entropy(bench: Bench, tokens: int, words: int, backward: bool) -> Act:
    logits, labels = bench.rand(tokens, words), _labels(bench, tokens, words)
    forward = lambda: functional.cross_entropy(logits.float(), labels)  # noqa: E731
    return backward_of(forward, [logits]) if backward else forward


def _adamw(bench: Bench, parameters: int, fused: bool) -> Act:
    weights = [torch.nn.Parameter(part) for part in _parts(bench, parameters)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return torch.optim.AdamW(weights, lr=1e-4, fused=fused, foreach=not fused).step


def _grad_norm(bench: Bench, parameters: int) -> Act:
    gradients = _parts(bench, parameters)
    return lambda: torch.nn.utils.get_total_norm(gradients)


def _parts(bench: Bench, parameters: int) -> list[torch.Tensor]:
    return [bench.rand(parameters // _TENSORS, dtype=_FP32) for _ in range(_TENSORS)]


# ---- runcast.kernels; the first rows of results are compared with the reference


def _our_swiglu(bench: Bench, rows: int, width: int) -> Checked:
    return check_rows(swiglu.swiglu, swiglu.swiglu_reference, [bench.rand(rows, 2 * width)])


def _our_swiglu_backward(bench: Bench, rows: int, width: int) -> Checked:
    tensors = [bench.rand(rows, 2 * width), bench.rand(rows, width)]
    return check_rows(swiglu.swiglu_backward, swiglu.swiglu_backward_reference, tensors)


def _add_rms_norm(bench: Bench, rows: int, width: int) -> Checked:
    tensors = [bench.rand(rows, width), bench.rand(rows, width)]
    return check_rows(rmsnorm.add_rmsnorm, rmsnorm.add_rmsnorm_reference, tensors, bench.rand(width))


def _cross_entropy_fused(bench: Bench, tokens: int, words: int) -> Checked:
    """The losses are compared; gradients are of the mean over all rows, which the reference does not see."""
    into = bench.empty(tokens, words)
    losses = lambda logits, labels: cross_entropy.cross_entropy(logits, labels, into)[0]  # noqa: E731
    reference = lambda logits, labels: cross_entropy.cross_entropy_reference(logits, labels)[0]  # noqa: E731
    return check_rows(losses, reference, [bench.rand(tokens, words), _labels(bench, tokens, words)])


def _quantize_tiles(bench: Bench, rows: int, width: int) -> Checked:
    return check_rows(quantize.quantize_tiles, quantize.quantize_tiles_reference, [bench.rand(rows, width)])


def _quantize_by(bench: Bench, rows: int, width: int) -> Checked:
    scale = torch.full((), 0.01, device=bench.device.torch_device)
    return check_rows(quantize.quantize_by, quantize.quantize_by_reference, [bench.rand(rows, width)], scale)


_KERNELS = (
    _Kernel("copy", 4, 8, _copy),
    _Kernel("residual_add", 6, 10, residual_add),
    _Kernel("rms_norm", 4, 12, partial(_rms_norm, backward=False)),
    _Kernel("rms_norm_backward", 6, 20, partial(_rms_norm, backward=True)),
    _Kernel("swiglu", 6, 12, partial(_swiglu, backward=False)),
    _Kernel("swiglu_backward", 10, 24, partial(_swiglu, backward=True)),
    _Kernel("cast", 6, 12, partial(_copy, target=_FP32), "bf16 to fp32"),
    _Kernel("cast", 6, 12, partial(_copy, source=_FP32), "fp32 to bf16"),
    _Kernel("cast_fp8", 3, 8, partial(_copy, target=_FP8), fp8=True),
    _Kernel("fp32_accumulate", 10, 12, _fp32_accumulate),
    _Kernel("swiglu", 6, 12, _our_swiglu, ours=True),
    _Kernel("swiglu_backward", 10, 18, _our_swiglu_backward, ours=True),
    _Kernel("add_rms_norm", 8, 16, _add_rms_norm, ours=True),
    _Kernel("quantize_tiles", 3 + 4 / quantize.TILE, 8, _quantize_tiles, ours=True, fp8=True),
    _Kernel("quantize_by", 3, 8, _quantize_by, ours=True, fp8=True),
)
_LOSSES = (
    _Kernel("cross_entropy", 38, 14, partial(_cross_entropy, backward=False), of="loss_passes"),
    _Kernel("cross_entropy_backward", 14, 20, partial(_cross_entropy, backward=True), of="loss_passes_backward"),
    _Kernel("cross_entropy_fused", 6, 10, _cross_entropy_fused, ours=True, of="cross_entropy"),
)
_OPTIMIZERS = (
    _Kernel("adamw", 28.0, 16.0, partial(_adamw, fused=True), "fused"),  # holds p, g, m, v
    _Kernel("adamw", 28.0, 28.0, partial(_adamw, fused=False), "foreach"),  # and copies
    _Kernel("grad_norm", 4.0, 8.0, _grad_norm, "foreach"),
)
