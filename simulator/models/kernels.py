"""Kernels of one GPU: their floating-point operations and their gradients.

See `blocks` for the kernels of a layer, `costs` for how long they take.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..base.op_kinds import ATTENTION, EXPERTS, PRODUCT, op_kind

ALIGNED_BYTES = 32  # rows of a matrix that start at multiples of it are loaded as fast as any
WEIGHTLESS = ("core_attn", "scan")
"""Parts of a layer whose GEMMs have no weights: both operands have gradients."""
PACKED = {"nf4": 0.5 + 4 / 64, "nf4-double": 0.5 + (1 + 4 / 256) / 64}
"""Bytes of a weight that lies in 4 bits, with its part of a scale for 64 weights, by type.

Such scales are in 32 bits, or in 8 with one in 32 bits for 256 of them (QLoRA, arXiv 2305.14314, section 3).
"""
SUM_BYTES = 8  # bytes of an element that a weight gradient adds to in 32 bits: read and written


class Kept(NamedTuple):
    """Bytes that the forward keeps for the backward, and the part of the layer that could recompute them."""

    part: str
    bytes: int


@dataclass(frozen=True)
class Kernel:
    """One kernel on one rank.

    `kind` says what `shape` means: (m, n, k) of a GEMM that sums over k; (batch, seq, heads, kv_heads, qk_dim, v_dim,
    causal, window, parts) of attention, of which this rank does one of `parts` (window 0: none); (rows, hidden, inter,
    topk, experts, etp, ep, matrices) of all GEMMs of one rank's experts; and (width,) of a memory-bound kernel, which
    moves `bytes`. `part` is the part of the layer that it belongs to. `again`: the backward runs it once more before
    its gradient, as its output is not kept. `passes`: gradients pass through it, so the backward has a kernel for it.
    """

    kind: str
    name: str
    part: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int = 0
    keeps: tuple[Kept, ...] = ()
    trained: bool = True
    again: bool = False
    passes: bool = True


Kernels = tuple[Kernel, ...]


def flop(kernel: Kernel) -> float:
    """Floating-point operations; attention counts unmasked pairs only, memory-bound kernels count 0."""
    form = op_kind(kernel.kind).form
    if form == PRODUCT:
        m, n, k = kernel.shape
        return 2.0 * m * n * k
    if form == ATTENTION:
        batch, seq, heads, _, qk_dim, v_dim, causal, window, parts = kernel.shape
        forward = 2.0 * batch * heads * (qk_dim + v_dim) * visible(seq, bool(causal), window) / parts
        return forward if op_kind(kernel.kind).input_gradient else 2 * forward
    if form == EXPERTS:
        rows, hidden, inter, _, _, etp, _, matrices = kernel.shape
        return 2.0 * rows * hidden * inter * matrices / etp
    return 0.0


def weights_of(kind: str, shape: tuple[int, ...]) -> int:
    """The number of weights that a GEMM multiplies, or those of all experts of a rank; 0 for other kernels."""
    form = op_kind(kind).form
    if form == PRODUCT:
        return shape[1] * shape[2]
    if form == EXPERTS:
        _, hidden, inter, _, experts, etp, ep, matrices = shape
        return hidden * inter * matrices * experts // (ep * etp)
    return 0


def visible(seq: float, causal: bool, window: int) -> float:
    """Pairs of tokens that attend to each other: half of `seq` squared if causal, a band with a window.

    Without causality each token attends to `window` tokens, or to all.
    """
    if not causal:
        return float(seq * (window or seq))
    near = min(window, seq) if window else seq
    return near * (seq - near / 2)


def input_gradient(kernel: Kernel) -> Kernel:
    """The kernel that gives the gradient of what a forward kernel read.

    Raises:
        KeyError: kernels of this kind have none.
    """
    of = op_kind(kernel.kind)
    if not of.input_gradient:
        raise KeyError(f"{kernel.kind} has no gradient; name one by `back` in simulator/base/op_kinds.py")
    name = f"{kernel.name}_dgrad"
    gradient: dict[str, Any] = {"kind": of.input_gradient, "keeps": (), "name": name, "again": False}
    if of.form == PRODUCT:
        m, n, k = kernel.shape
        operands = 2 if kernel.part in WEIGHTLESS else 1
        return replace(kernel, shape=(operands * m, k, n), **gradient)
    return replace(kernel, bytes=round(kernel.bytes * of.input_traffic), **gradient)


def weight_gradient(kernel: Kernel) -> Kernel | None:
    """The kernel that gives the gradient of a forward kernel's weights; None without weights that are trained."""
    of = op_kind(kernel.kind)
    if not kernel.trained or not of.weight_gradient:
        return None
    name = f"{kernel.name}_wgrad"
    gradient: dict[str, Any] = {"kind": of.weight_gradient, "keeps": (), "name": name, "again": False}
    if of.form == PRODUCT:
        m, n, k = kernel.shape
        gradient["shape"] = n, k, m
    return replace(kernel, **gradient)


def element_bytes(dtype: str) -> float:
    """Bytes of one element in this precision."""
    return {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp8-block": 1, "mxfp8": 1, "nvfp4": 0.5}[dtype]


def aligned_bytes(width: int, dtype: str) -> float:
    """The largest power of two that divides the bytes of a row of `width` elements."""
    bits = width * round(8 * element_bytes(dtype))
    return (bits & -bits) / 8
