"""Kernels: what one GPU computes, one by one, with floating-point operations, and the gradients of each.

Which kernels a layer has, and what of their output is kept for the backward, lives in `blocks`; how long they take in
`costs`.
"""

from dataclasses import dataclass
from typing import NamedTuple

GEMMS = ("gemm", "dgrad", "wgrad")
ATTENTIONS = ("attention", "attention_backward")
EXPERTS = ("experts", "experts_dgrad", "experts_wgrad")
"""Kinds bound by arithmetic, here and above; every other kind of kernel is bound by memory."""

_BACKWARD_TRAFFIC = {  # kind: (kind of its backward, bytes of that per byte of the forward)
    "rms_norm": ("rms_norm_backward", 1.5),  # x, dy -> dx
    "swiglu": ("swiglu_backward", 10 / 6),  # gate, up, dy -> both gradients
    "gelu": ("gelu_backward", 1.5),
    "residual_add": ("residual_add", 1.0),  # gradients of two branches meet
    "rope": ("rope", 1.0),
    "permute": ("permute", 1.0),
    "combine": ("permute", 1.0),
    "route": ("route", 1.0),
    "gate": ("gate", 1.5),
    "scan": ("scan", 2.0),
    "embed": ("embed_backward", 2.5),  # read-modify-write of fp32 rows
    "cross_entropy": ("cross_entropy_backward", 2.0),
    "loss_passes": ("loss_passes_backward", 14 / 38),  # one by one: softmax x gradient, cast back
    "softmax": ("softmax_backward", 1.2),  # dropout, y and dy -> dx, scale and mask
}


ALIGNED_BYTES = 32  # rows of a matrix that start at multiples of it are loaded as fast as any
SUM_BYTES = 8  # bytes of an element that a weight gradient adds to in 32 bits: read and written


class Kept(NamedTuple):
    """What the forward keeps for the backward: bytes, and the part of the layer that could make it again."""

    part: str
    bytes: int


@dataclass(frozen=True)
class Kernel:
    """One kernel on one rank.

    `kind` says what `shape` means: (m, n, k) of a product with m rows and k summed; (batch, seq, heads, kv_heads,
    qk_dim, v_dim, causal, window, parts) of attention, of which this rank does one of `parts`, window 0 for none;
    (rows, hidden, inter, topk, experts, etp, ep, matrices) of the experts of one rank, all their products; and
    (width,) of a memory-bound kernel, which moves `bytes`. `dtype` is what it computes in, `part` what of a layer it
    belongs to.
    """

    kind: str
    name: str
    part: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int = 0
    keeps: tuple[Kept, ...] = ()
    trained: bool = True


Kernels = tuple[Kernel, ...]


def flop(kernel: Kernel) -> float:
    """Floating-point operations; attention counts what its mask leaves, memory-bound kernels count nothing."""
    if kernel.kind in GEMMS:
        m, n, k = kernel.shape
        return 2.0 * m * n * k
    if kernel.kind in ATTENTIONS:
        batch, seq, heads, _, qk_dim, v_dim, causal, window, parts = kernel.shape
        forward = 2.0 * batch * heads * (qk_dim + v_dim) * visible(seq, bool(causal), window) / parts
        return forward if kernel.kind == "attention" else 2 * forward
    if kernel.kind in EXPERTS:
        rows, hidden, inter, _, _, etp, _, matrices = kernel.shape
        return 2.0 * rows * hidden * inter * matrices / etp
    return 0.0


def visible(seq: int, causal: bool, window: int) -> float:
    """Pairs of tokens that attend, of `seq` squared: half where causal, a band where a window slides."""
    if not causal:
        return float(seq * seq)
    near = min(window, seq) if window else seq
    return near * (seq - near / 2)


def input_gradient(kernel: Kernel) -> Kernel:
    """The kernel that gives the gradient of what a forward kernel read."""
    gradient = {"keeps": (), "name": f"{kernel.name}_dgrad"}
    if kernel.kind == "gemm":
        m, n, k = kernel.shape
        operands = 2 if kernel.part == "core_attn" else 1  # no weight there: both operands have gradients
        return _like(kernel, kind="dgrad", shape=(operands * m, k, n), **gradient)
    if kernel.kind == "attention":
        return _like(kernel, kind="attention_backward", **gradient)
    if kernel.kind == "experts":
        return _like(kernel, kind="experts_dgrad", **gradient)
    kind, factor = _BACKWARD_TRAFFIC[kernel.kind]
    return _like(kernel, kind=kind, bytes=round(kernel.bytes * factor), **gradient)


def weight_gradient(kernel: Kernel) -> Kernel | None:
    """The kernel that gives the gradient of a forward kernel's weights; None without weights that are trained."""
    if not kernel.trained:
        return None
    if kernel.kind == "gemm":
        m, n, k = kernel.shape
        return _like(kernel, kind="wgrad", shape=(n, k, m), keeps=(), name=f"{kernel.name}_wgrad")
    if kernel.kind == "experts":
        return _like(kernel, kind="experts_wgrad", keeps=(), name=f"{kernel.name}_wgrad")
    return None


def element_bytes(dtype: str) -> float:
    """Bytes of one element of a type that is computed in."""
    return {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp8-block": 1, "mxfp8": 1, "nvfp4": 0.5}[dtype]


def aligned_bytes(width: int, dtype: str) -> float:
    """The largest power of two of bytes of which rows of `width` elements are a whole number."""
    bits = width * round(8 * element_bytes(dtype))
    return (bits & -bits) / 8


def _like(kernel: Kernel, **changes: object) -> Kernel:
    fields = {name: getattr(kernel, name) for name in kernel.__dataclass_fields__}
    return Kernel(**(fields | changes))
