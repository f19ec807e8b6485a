"""GEMMs, and the feed-forward of experts. C[m, n] = A[m, k] B[k, n]: 2 m n k FLOP, warm, one call after another.

A library picks the tile, and the split of k, that finish first. Tiles run in waves over the SMs: the last wave may be
nearly empty, small tiles reach less of the peak, each tile has a prologue, a split writes and adds partial results.
Long products run into the power limit. What the tensor cores and what the memory needs join by a p-norm.

Several sets of coefficients fit almost equally well (q against s), so single ones are not hardware facts.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Floats
from ...base.errors import UserError
from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Form, form, p_norm

BYTES = {"bf16": 2.0, "fp16": 2.0, "tf32": 4.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}

_TILES = np.array(
    [(256, 128), (128, 256), (128, 128), (64, 256), (256, 64), (64, 128), (128, 64), (64, 64), (32, 128), (128, 32)],
    np.float64,
)
_LARGEST_TILE = 256 * 128
_SPLITS = (1, 2, 4, 8)

_COEFFICIENTS = (
    Coefficient("t0_s", 5e-7, 3e-5, 4e-6, "call", trust=0.02),
    Coefficient("e", 0.3, 1.0, 0.8, "share of the peak that the largest tile reaches", trust=0.2),
    Coefficient("e_m", 0.3, 1.1, 0.8, "share of the memory bandwidth", trust=0.12),
    Coefficient("p", 1, 8, 3, "how sharply the larger of both wins", trust=0.02),
    Coefficient("s", 0.05, 1, 0.6, "1: only whole waves, 0: a last wave costs what it holds", trust=0.02),
    Coefficient("q", 0.01, 0.8, 0.2, "power of its area by which a smaller tile reaches less", trust=0.01),
    Coefficient("k0", 5, 1000, 100, "prologue of a tile, as so many of k", trust=0.01),
    Coefficient("sk", 0.03, 10, 0.5, "traffic of partial results, over 8 bytes each", trust=0.005),
    Coefficient("thr", 0.005, 0.5, 0.15, "slower by this share where the power limit holds", trust=0.01),
    Coefficient("f0_s", 5e-5, 5e-3, 5e-4, "time at peak at which half of that is reached", trust=0.005),
)
_QUANTISE = Coefficient(
    "e_q", 0.1, 1000, 0.35, "share of the memory bandwidth while inputs are cast; 1000: no cast", trust=0.03
)
_QUANTISED_CALL = Coefficient("t0_s", 5e-7, 3e-5, 1.2e-5, "call, and those of the cast", trust=0.02)


def peak(limits: Limits, dtype: str) -> float:
    """Dense FLOP/s of a dtype; where a device has only one of the two 16-bit ones, that stands for both.

    Raises:
        UserError: the device has no units for this dtype.
    """
    twins = {"bf16": "fp16", "fp16": "bf16"}
    for name in (dtype, twins.get(dtype, dtype)):
        if name in limits.flop_per_s:
            return limits.flop_per_s[name]
    raise UserError(f"dtype = {dtype!r}: the device has no fast path for it; it has {', '.join(limits.flop_per_s)}")


def flop(x: Columns) -> Floats:
    """Floating-point operations of a product."""
    total: Floats = 2 * x["m"] * x["n"] * x["k"]
    return total


def is_layer_shape(x: Columns) -> NDArray[np.bool_]:
    """The products that layers of language models spend their time in."""
    return (x["m"] >= 128) & (x["n"] >= 512) & (x["k"] >= 512)


def gemm_form(dtype: str) -> Form:
    """T = t0 + p-norm(compute, memory); in 8 and 4 bits plus the cast of A, which reads 16 bits: 3 m k bytes.

    Where nothing is cast, or within another kernel, e_q runs to its bound and the term vanishes.
    """
    wide, cast = BYTES[dtype], BYTES[dtype] < 2
    coefficients = (_QUANTISED_CALL, *_COEFFICIENTS[1:], _QUANTISE) if cast else _COEFFICIENTS

    @form("tiled gemm with cast" if cast else "tiled gemm", *coefficients)
    def seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
        fastest = peak(limits, dtype)
        moved = wide * (x["m"] * x["k"] + x["n"] * x["k"]) + max(wide, 2) * x["m"] * x["n"]
        memory = moved / (limits.memory_bytes_per_s * c["e_m"])
        call = c["t0_s"] + p_norm(_compute(x, limits, fastest, c), memory, c["p"])
        return call + (3 * x["m"] * x["k"] / (limits.memory_bytes_per_s * c["e_q"]) if cast else 0.0)

    return seconds


def _compute(x: Columns, limits: Limits, fastest: float, c: Coefficients) -> Floats:
    """Seconds of the tensor cores with the best tile and split, throttled."""
    best: Floats = np.min(list(_by_split(x, limits, fastest, c)), axis=0)
    at_peak = flop(x) / fastest
    return best * (1 + c["thr"] * at_peak / (at_peak + c["f0_s"]))


def _by_split(x: Columns, limits: Limits, fastest: float, c: Coefficients) -> Iterator[Floats]:
    """Seconds of the tensor cores for each split of k, each with its best tile."""
    rows, columns = _TILES[:, :1], _TILES[:, 1:]
    per_k = limits.sms * 2 * rows * columns / (fastest * c["e"]) * (rows * columns / _LARGEST_TILE) ** -c["q"]
    waves = np.ceil(x["m"] / rows) * np.ceil(x["n"] / columns) / limits.sms
    partial = c["sk"] * 8 * x["m"] * x["n"] / limits.memory_bytes_per_s
    for split in _SPLITS:
        split_waves = waves * split
        counted = split_waves + c["s"] * (np.ceil(split_waves) - split_waves)
        seconds: Floats = (per_k * (x["k"] / split + c["k0"]) * counted).min(axis=0)
        yield seconds + split * partial if split > 1 else seconds


def expert_rows(x: Columns) -> Floats:
    """Rows that a rank computes when the load is even."""
    total: Floats = x["tokens"] * x["topk"] / x["ep"]
    return total


def experts_flop(x: Columns) -> Floats:
    """Floating-point operations of a rank when the load is even: 2 per row and weight of an expert's matrices."""
    total: Floats = 2 * expert_rows(x) * _expert_weights(x)
    return total


def grouped_gemm_form(dtype: str) -> Form:
    """Feed-forward of a mixture of experts on one rank, the most loaded one if skewed.

    T = t0 + (F/(peak e r/(r + r0)) + A/(BW e_a)) ep^q (1 + s skew) + W/(BW e_w); ep^q only where skewed. r is rows per
    expert that has any, A the activations moved and W the weights of these experts. Weak on model shapes that it has
    not seen (docs/profiles.md): measure the shapes in use.
    """
    wide = 1 if dtype == "fp8" else 2

    @form(
        "grouped gemm",
        Coefficient("t0_s", 1e-6, 1e-3, 4e-5, "call"),
        Coefficient("e", 0.05, 1.5, 0.8, "share of the peak with endless rows per expert"),
        Coefficient("r0", 0.5, 1000, 20, "rows per expert at which half of that is reached"),
        Coefficient("e_a", 0.02, 2.0, 0.3, "share of the memory bandwidth for activations"),
        Coefficient("e_w", 0.05, 2.0, 0.9, "share of the memory bandwidth for weights"),
        Coefficient("q", 0.01, 1.0, 0.3, "power of the ranks by which the most loaded one has more", of="ep"),
        Coefficient("s", 0.001, 3.0, 0.05, "the same, more per unit of skew", of="skew"),
    )
    def seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
        filled = np.minimum(x["experts"] / x["ep"], expert_rows(x))
        per_expert = expert_rows(x) / filled
        work = experts_flop(x) / (peak(limits, dtype) * c["e"] * per_expert / (per_expert + c["r0"]))
        moved = 2 * expert_rows(x) * (2 * x["hidden"] + 3 * x["inter"] / x["tp"])
        weights = wide * filled * _expert_weights(x)
        crowded = np.where(x["skew"] > 0, x["ep"] ** c["q"] * (1 + c["s"] * x["skew"]), 1.0)
        memory = limits.memory_bytes_per_s
        return c["t0_s"] + (work + moved / (memory * c["e_a"])) * crowded + weights / (memory * c["e_w"])

    return seconds


def _expert_weights(x: Columns) -> Floats:
    total: Floats = x["matrices"] * x["hidden"] * x["inter"] / x["tp"]
    return total
