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
| `memory.cross_entropy`, `_backward` | 2, 4 | logits -> loss; logits -> gradient |
| `memory.cross_entropy_fused` | 4 | logits -> loss and gradient |

and of fp32, per parameter: `memory.adamw` 28 (p, g, m, v -> p, m, v), `memory.grad_norm` 4.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from ....kernels import cross_entropy, quantize, rmsnorm, swiglu
from ..case import Act, Case, Facts
from ..timing import Bench, Checked, Prepare, bench_later, cold
from .exact import differing, kernels_library

_FP8 = torch.float8_e4m3fn

_ROWS = (  # rows, width
    *((2048, 128), (256, 1024), (64, 8192), (1024, 1024), (256, 4096), (16384, 128), (2048, 2048), (8192, 1024)),
    *((2048, 4096), (2048, 8192), (65536, 512), (8192, 4096), (8192, 7168), (65536, 1024), (8192, 8192)),
    *((4096, 16384), (32768, 4096), (32768, 8192), (131072, 8192)),
)
_QUICK_ROWS = ((256, 1024), (1024, 1024), (2048, 2048), (8192, 1024), (8192, 4096), (32768, 4096))
_VOCABULARIES = (  # tokens, words
    *((128, 2048), (64, 32000), (256, 8192), (1024, 8192), (1024, 32000), (512, 128256), (4096, 32000)),
    *((4096, 128256), (8192, 32000), (8192, 151936), (16384, 128256)),
)
_QUICK_VOCABULARIES = ((256, 8192), (1024, 8192), (1024, 32000), (4096, 128256))
_PARAMETERS = (100_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 500_000_000)
_QUICK_PARAMETERS = (1_000_000, 10_000_000, 100_000_000)
_TENSORS = 8
_SEEN = 64  # rows whose results are looked at


def cases(facts: Facts) -> Iterator[Case]:
    """What torch has, and the fused kernels of `runcast.kernels`, in Triton where there is a GPU."""
    for kernel in _KERNELS:
        if facts.fp8 or not kernel.fp8:
            yield from (_case(kernel, rows, width, facts) for rows, width in _ROWS)
    for kernel in _LOSSES:
        yield from (_case(kernel, rows, width, facts) for rows, width in _VOCABULARIES)
    for parameters in _PARAMETERS:
        yield from _optimizer_cases(parameters)


@dataclass(frozen=True)
class _Kernel:
    """`moves` and `holds` are bytes per element of [rows, width]: moved by one act, and allocated at the most.

    `variant` tells cases of one class apart; `ours` are those of `runcast.kernels`.
    """

    name: str
    moves: float
    holds: float
    prepare: Callable[[int, int], Prepare]
    variant: str = ""
    ours: bool = False
    fp8: bool = False


def _case(kernel: _Kernel, rows: int, width: int, facts: Facts) -> Case:
    library = kernels_library(facts) if kernel.ours else "torch"
    variant = {"variant": kernel.variant} if kernel.variant else {}
    return Case(
        "membound",
        kernel.name,
        {"rows": rows, "width": width, "dtype": "bf16", **variant, "of": "runcast" if kernel.ours else "torch"},
        cold(kernel.prepare(rows, width)),
        cost_class=f"memory.{kernel.name}",
        features={"bytes": kernel.moves * rows * width, "width": float(width)},
        library=library,
        together=f"{width}",
        bytes=kernel.moves * rows * width,
        footprint_bytes=kernel.holds * rows * width,
        quick=(rows, width) in (*_QUICK_ROWS, *_QUICK_VOCABULARIES),
    )


# ---- torch


@bench_later
def _copy(bench: Bench, rows: int, width: int) -> Act:
    x, into = bench.rand(rows, width), bench.empty(rows, width)
    return lambda: into.copy_(x)


@bench_later
def _residual_add(bench: Bench, rows: int, width: int) -> Act:
    x, y, into = bench.rand(rows, width), bench.rand(rows, width), bench.empty(rows, width)
    return lambda: torch.add(x, y, out=into)


@bench_later
def _rms_norm(bench: Bench, rows: int, width: int) -> Act:
    x, weight = bench.rand(rows, width), bench.rand(width)
    return lambda: functional.rms_norm(x, (width,), weight)


@bench_later
def _rms_norm_backward(bench: Bench, rows: int, width: int) -> Act:
    x, weight = bench.rand(rows, width).requires_grad_(), bench.rand(width).requires_grad_()
    result, dy = functional.rms_norm(x, (width,), weight), bench.rand(rows, width)
    return lambda: torch.autograd.grad(result, (x, weight), dy, retain_graph=True)


def _gated(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=1)
    return functional.silu(gate) * up


@bench_later
def _swiglu(bench: Bench, rows: int, width: int) -> Act:
    x = bench.rand(rows, 2 * width)
    return lambda: _gated(x)


@bench_later
def _swiglu_backward(bench: Bench, rows: int, width: int) -> Act:
    x = bench.rand(rows, 2 * width).requires_grad_()
    result, dy = _gated(x), bench.rand(rows, width)
    return lambda: torch.autograd.grad(result, x, dy, retain_graph=True)


def _cast(source: torch.dtype, target: torch.dtype) -> Callable[[int, int], Prepare]:
    @bench_later
    def of(bench: Bench, rows: int, width: int) -> Act:
        x, into = bench.rand(rows, width, dtype=source), bench.empty(rows, width, dtype=target)
        return lambda: into.copy_(x)

    return of


@bench_later
def _fp32_accumulate(bench: Bench, rows: int, width: int) -> Act:
    total, x = bench.rand(rows, width, dtype=torch.float32), bench.rand(rows, width)
    return lambda: total.add_(x)


def _labels(bench: Bench, tokens: int, words: int) -> torch.Tensor:
    return torch.randint(0, words, (tokens,), device=bench.device.torch_device)


@bench_later
def _cross_entropy(bench: Bench, tokens: int, words: int) -> Act:
    logits, labels = bench.rand(tokens, words), _labels(bench, tokens, words)
    return lambda: functional.cross_entropy(logits.float(), labels)


@bench_later
def _cross_entropy_backward(bench: Bench, tokens: int, words: int) -> Act:
    logits = bench.rand(tokens, words).requires_grad_()
    loss = functional.cross_entropy(logits.float(), _labels(bench, tokens, words))
    return lambda: torch.autograd.grad(loss, logits, retain_graph=True)


# ---- runcast.kernels; the first rows of results are compared with the reference


@bench_later
def _our_swiglu(bench: Bench, rows: int, width: int) -> Checked:
    x = bench.rand(rows, 2 * width)
    act = lambda: swiglu.swiglu(x)  # noqa: E731
    return Checked(act, lambda: differing(act()[:_SEEN], swiglu.swiglu_reference(x[:_SEEN])))


@bench_later
def _our_swiglu_backward(bench: Bench, rows: int, width: int) -> Checked:
    x, dy = bench.rand(rows, 2 * width), bench.rand(rows, width)
    act = lambda: swiglu.swiglu_backward(x, dy)  # noqa: E731
    return Checked(act, lambda: differing(act()[:_SEEN], swiglu.swiglu_backward_reference(x[:_SEEN], dy[:_SEEN])))


@bench_later
def _add_rms_norm(bench: Bench, rows: int, width: int) -> Checked:
    x, residual, weight = bench.rand(rows, width), bench.rand(rows, width), bench.rand(width)
    act = lambda: rmsnorm.add_rmsnorm(x, residual, weight)  # noqa: E731

    def wrong() -> int:
        expected = rmsnorm.add_rmsnorm_reference(x[:_SEEN], residual[:_SEEN], weight, 1e-6)
        return sum(differing(got[:_SEEN], well) for got, well in zip(act(), expected, strict=True))

    return Checked(act, wrong)


@bench_later
def _cross_entropy_fused(bench: Bench, tokens: int, words: int) -> Checked:
    logits, labels, into = bench.rand(tokens, words), _labels(bench, tokens, words), bench.empty(tokens, words)
    act = lambda: cross_entropy.cross_entropy(logits, labels, into)  # noqa: E731

    def wrong() -> int:
        losses, _ = cross_entropy.cross_entropy_reference(logits[:_SEEN], labels[:_SEEN])
        return differing(act()[0][:_SEEN], losses)

    return Checked(act, wrong)


@bench_later
def _quantize_tiles(bench: Bench, rows: int, width: int) -> Checked:
    x = bench.rand(rows, width)
    act = lambda: quantize.quantize_tiles(x)  # noqa: E731

    def wrong() -> int:
        values, scales = quantize.quantize_tiles_reference(x[:_SEEN])
        got = act()
        return differing(got[0][:_SEEN], values, 0.13) + differing(got[1][:_SEEN], scales)  # e4m3: 3 bits and one

    return Checked(act, wrong)


@bench_later
def _quantize_by(bench: Bench, rows: int, width: int) -> Checked:
    x, scale = bench.rand(rows, width), torch.full((), 0.01, device=bench.device.torch_device)
    act = lambda: quantize.quantize_by(x, scale)  # noqa: E731
    return Checked(act, lambda: differing(act()[:_SEEN], quantize.quantize_by_reference(x[:_SEEN], scale), 0.13))


_KERNELS = (
    _Kernel("copy", 4, 8, _copy),
    _Kernel("residual_add", 6, 10, _residual_add),
    _Kernel("rms_norm", 4, 12, _rms_norm),
    _Kernel("rms_norm_backward", 6, 20, _rms_norm_backward),
    _Kernel("swiglu", 6, 12, _swiglu),
    _Kernel("swiglu_backward", 10, 24, _swiglu_backward),
    _Kernel("cast", 6, 12, _cast(torch.bfloat16, torch.float32), "bf16 to fp32"),
    _Kernel("cast", 6, 12, _cast(torch.float32, torch.bfloat16), "fp32 to bf16"),
    _Kernel("cast_fp8", 3, 8, _cast(torch.bfloat16, _FP8), fp8=True),
    _Kernel("fp32_accumulate", 10, 12, _fp32_accumulate),
    _Kernel("swiglu", 6, 12, _our_swiglu, ours=True),
    _Kernel("swiglu_backward", 10, 18, _our_swiglu_backward, ours=True),
    _Kernel("add_rms_norm", 8, 16, _add_rms_norm, ours=True),
    _Kernel("quantize_tiles", 3 + 4 / quantize.TILE, 8, _quantize_tiles, ours=True, fp8=True),
    _Kernel("quantize_by", 3, 8, _quantize_by, ours=True, fp8=True),
)
_LOSSES = (
    _Kernel("cross_entropy", 2, 14, _cross_entropy),
    _Kernel("cross_entropy_backward", 4, 20, _cross_entropy_backward),
    _Kernel("cross_entropy_fused", 4, 10, _cross_entropy_fused, ours=True),
)


# ---- optimizer


def _optimizer_cases(parameters: int) -> Iterator[Case]:
    for variant in ("fused", "foreach"):
        holds = 16.0 if variant == "fused" else 28.0  # p, g, m, v; foreach makes copies
        yield _flat_case("adamw", 28.0, holds, parameters, variant, _adamw(parameters, variant == "fused"))
    yield _flat_case("grad_norm", 4.0, 8.0, parameters, "foreach", _grad_norm(parameters))


def _flat_case(name: str, moves: float, holds: float, parameters: int, variant: str, prepare: Prepare) -> Case:
    """Without rows there is no width: a model counts such a kernel as wide."""
    return Case(
        "membound",
        name,
        {"parameters": parameters, "tensors": _TENSORS, "dtype": "fp32", "variant": variant},
        cold(prepare),
        cost_class=f"memory.{name}",
        features={"bytes": moves * parameters},
        library=f"torch {variant}",
        bytes=moves * parameters,
        footprint_bytes=holds * parameters,
        quick=parameters in _QUICK_PARAMETERS,
    )


@bench_later
def _adamw(bench: Bench, parameters: int, fused: bool) -> Act:
    weights = [torch.nn.Parameter(part) for part in _parts(bench, parameters)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=fused, foreach=not fused)
    return lambda: optimizer.step()


@bench_later
def _grad_norm(bench: Bench, parameters: int) -> Act:
    gradients = _parts(bench, parameters)
    return lambda: torch.nn.utils.get_total_norm(gradients)


def _parts(bench: Bench, parameters: int) -> list[torch.Tensor]:
    return [bench.rand(parameters // _TENSORS, dtype=torch.float32) for _ in range(_TENSORS)]
