"""Awkward shapes, each beside the next one that kernels are made for: GEMMs whose rows do not start at whole 32 bytes,
as vocabularies and widths have them that nobody padded, and fused attention with heads of odd sizes.

Both are timed in one visit, one behind the other; `more` has the seconds of the padded one, `padded_s`. None is a
sample of a class, as forms know no alignment: what pairs say becomes `gemm.align16_factor` and its like, and
`attention.head_multiple`.
"""

import statistics
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Measure, Measurement, cold
from .attention import BACKENDS, FLOP_OVER_FORWARD, Shape, attention, pin_backend
from .gemm import LAYOUTS, linear

_WEIGHTS = {  # outputs, inputs: one more than whole 32 bytes of 16 bits, two, four and eight
    "cuda": (
        *((50257, 2048), (50258, 2048), (50260, 2048), (50264, 2048)),
        *((4097, 4096), (4098, 4096), (4100, 4096), (4104, 4096)),
        *((4096, 4097), (4096, 4098), (4096, 4100), (4096, 4104)),
        *((3600, 900), (1368, 2048), (2048, 1368), (6283, 4096)),
    ),
    "cpu": ((1025, 512), (1026, 512), (1028, 512), (1032, 512), (512, 1025), (512, 1032)),
}
_QUICK_WEIGHTS = ((50257, 2048), (4100, 4096), (4096, 4097), (4096, 4104), (1028, 512), (512, 1025), (512, 1032))
_TOKENS = {"cuda": (512, 4096), "cpu": (128,)}
_ALIGNED = 16  # elements of 16 bits in 32 bytes

_BATCHED = {"cuda": (64, 2048), "cpu": (4, 256)}  # matrices, tokens of a sequence
_BATCHED_HEADS = (65, 66, 68, 72, 73, 90, 100, 104, 180)

_HEADS = {72: 96, 80: 96, 104: 128, 112: 128, 120: 128, 180: 192, 184: 192, 208: 256}  # FlashAttention's next one
_QUICK_HEADS = (80, 112, 180)


def cases(facts: Facts) -> Iterator[Case]:
    """Linear layers in all directions, GEMMs of single heads as attention without a fused kernel has them, and fused
    attention, each with its padded twin.
    """
    most = max(_TOKENS[facts.kind])
    for n, k in _WEIGHTS[facts.kind]:
        for m in _TOKENS[facts.kind]:
            quick = (n, k) in _QUICK_WEIGHTS and m == most
            yield from (_linear_case(direction, m, n, k, quick) for direction in LAYOUTS)
    for size in _BATCHED_HEADS:
        yield from (_batched_case(name, *_BATCHED[facts.kind], size) for name in ("scores", "context"))
    for backend in BACKENDS[facts.kind]:
        for size in filter(partial(_runs, backend), _HEADS):
            yield from (_attention_case(direction, facts, size, backend) for direction in FLOP_OVER_FORWARD)


def _runs(backend: str, head_dim: int) -> bool:
    """Whether a backend has kernels for heads of this size: torch pads them for flash, and for cuDNN it does not."""
    return backend != "cudnn" or head_dim % 8 == 0


def _pad(size: int) -> int:
    """The next width of whole 32 bytes."""
    return -(-size // _ALIGNED) * _ALIGNED


def _linear_case(direction: str, m: int, n: int, k: int, quick: bool) -> Case:
    params = {"m": m, "n": n, "k": k, "dtype": "bf16", "layout": LAYOUTS[direction]}
    moved = 2.0 * (m * k + n * k + m * n)
    return Case(
        "shapes",
        direction,
        {**params, "padded_n": _pad(n), "padded_k": _pad(k)},
        _pair(cold(linear, direction, m, n, k), cold(linear, direction, m, _pad(n), _pad(k))),
        flop=2.0 * m * n * k,
        bytes=moved,
        footprint_bytes=moved + 4.0 * max(m * k, n * k, m * n),  # random numbers are fp32 first
        quick=quick,
    )


def _batched_case(name: str, matrices: int, seq: int, size: int) -> Case:
    """A case of GEMMs per head: `scores` [seq, size] x [size, seq] or `context` [seq, seq] x [seq, size]."""
    moved = 2.0 * matrices * seq * (seq + 2 * size)
    return Case(
        "shapes",
        name,
        {"matrices": matrices, "seq": seq, "head_dim": size, "dtype": "bf16", "padded_head_dim": _pad(size)},
        _pair(*(cold(_batched_gemm, name, matrices, seq, width) for width in (size, _pad(size)))),
        flop=2.0 * matrices * seq * seq * size,
        bytes=moved,
        footprint_bytes=moved + 4.0 * matrices * seq * max(seq, size),
    )


def _batched_gemm(bench: Bench, name: str, matrices: int, seq: int, size: int) -> Act:
    values = bench.rand(matrices, seq, size)
    if name == "scores":
        return lambda: values @ values.transpose(1, 2)
    weights = bench.rand(matrices, seq, seq)
    return lambda: weights @ values


def _attention_case(direction: str, facts: Facts, size: int, backend: str) -> Case:
    shape = Shape(1, 32, 8, 4096, size) if facts.cuda else Shape(1, 4, 2, 256, size)
    twins = (cold(attention, direction, one) for one in (shape, replace(shape, head_dim=_HEADS[size])))
    return Case(
        "shapes",
        f"attention_{direction}",
        {**asdict(shape), "dtype": "bf16", "backend": backend, "padded_head_dim": _HEADS[size]},
        pin_backend(backend, _pair(*twins)),
        library=f"torch {backend}",
        flop=FLOP_OVER_FORWARD[direction] * shape.flop,
        bytes=shape.traffic_bytes(direction),
        footprint_bytes=4 * shape.traffic_bytes(direction),
        quick=size in _QUICK_HEADS and backend != "cudnn",
    )


def _pair(awkward: Measure, padded: Measure) -> Measure:
    """The awkward one, and how long the padded one takes."""

    def measure(bench: Bench) -> Measurement:
        measured, twin = awkward(bench), padded(bench)
        return replace(measured, more={**measured.more, "padded_s": statistics.median(twin.samples_s)})

    return measure
