"""Gradients into messages and back, in plain torch as hooks of training frameworks have it; no Triton.

| method | what travels | after |
|---|---|---|
| fp16 | halves | torch.distributed, ddp_comm_hooks/default_hooks.py |
| int8, int4, sign | levels of 8, 4 or 1 bits, and one scale | ddp_comm_hooks/quantization_hooks.py; 1-bit SGD |
| top_k, threshold | values with their positions | DGC, arXiv 1712.01887 |
| random, block | values, at positions from a seed that all share | random-k of GRACE, which permutes all positions |
| low_rank | two factors of each matrix | PowerSGD, arXiv 1905.13727, algorithm 1 |

A gradient is a flat float32 tensor [N]; of low_rank it is seen as matrices [count, n, m]. Encoding returns a message,
decoding adds a message to a sum [N], or overwrites it where `METHODS` says so: what is summed on the way arrives once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

_LEAST = 1e-30  # a scale by which a gradient of zeros can be divided


class Scaled(NamedTuple):
    """Levels, several in a byte where they have fewer than 8 bits, and the scale that they are multiples of."""

    levels: Tensor
    scale: Tensor


class Sparse(NamedTuple):
    """Values and where they belong, int32. Positions from a seed do not travel: every worker has made them."""

    values: Tensor
    positions: Tensor


class Run(NamedTuple):
    """Values that follow each other, and the position of the first one."""

    values: Tensor
    first: int


class Factors(NamedTuple):
    """Orthonormal columns p [count, n, r] and coefficients q [count, m, r] of matrices p q'."""

    p: Tensor
    q: Tensor


# ---- all values, in fewer bits


def encode_fp16(gradient: Tensor) -> Tensor:
    """Halves [N]; beyond 65504 they are infinite."""
    return gradient.half()


def decode_fp16(halves: Tensor, total: Tensor) -> None:
    """Overwrite `total`."""
    total.copy_(halves)


def encode_int8(gradient: Tensor) -> Scaled:
    """Levels -127 to 127, int8 [N]: the largest magnitude becomes 127."""
    scale = gradient.abs().max().clamp(min=_LEAST) / 127
    return Scaled(torch.round(gradient / scale).to(torch.int8), scale)


def decode_int8(message: Scaled, total: Tensor) -> None:
    """Add levels times the scale."""
    total.addcmul_(message.levels.to(total.dtype), message.scale)


def encode_int4(gradient: Tensor) -> Scaled:
    """Levels -7 to 7 plus 8, two in a byte: uint8 [N / 2], the first one in the low bits; N is even."""
    scale = gradient.abs().max().clamp(min=_LEAST) / 7
    levels = (torch.round(gradient / scale) + 8).to(torch.uint8).view(-1, 2)
    return Scaled(levels[:, 0] | levels[:, 1] << 4, scale)


def decode_int4(message: Scaled, total: Tensor) -> None:
    """Add levels times the scale."""
    levels = torch.stack([message.levels & 15, message.levels >> 4], 1).flatten()
    total.addcmul_(levels.to(total.dtype) - 8, message.scale)


def encode_sign(gradient: Tensor) -> Scaled:
    """A bit for each value, 1 of what is not negative: uint8 [N / 8], the first one lowest; the scale is the mean
    magnitude. N is a multiple of 8.
    """
    bits = (gradient >= 0).view(-1, 8) * _weights(gradient)
    return Scaled(bits.sum(1, dtype=torch.uint8), gradient.abs().mean())


def decode_sign(message: Scaled, total: Tensor) -> None:
    """Add the scale with the sign of each value."""
    positive = (message.levels[:, None] & _weights(message.levels)).ne(0).flatten()
    total.addcmul_(positive.to(total.dtype) * 2 - 1, message.scale)


def _weights(like: Tensor) -> Tensor:
    """1, 2, 4 ... 128 on the device of `like`, made there: nothing waits for a copy."""
    return 1 << torch.arange(8, dtype=torch.uint8, device=like.device)


# ---- some values


def encode_top_k(gradient: Tensor, density: float) -> Sparse:
    """The `density * N` values of the largest magnitude, in any order."""
    positions = torch.topk(gradient.abs(), _count(gradient, density), sorted=False).indices
    return Sparse(gradient[positions], positions.int())


def encode_threshold(gradient: Tensor, limit: float) -> Sparse:
    """The values whose magnitude is above a limit. How many they are the host must know, so it waits."""
    positions = (gradient.abs() > limit).nonzero().flatten()
    return Sparse(gradient[positions], positions.int())


def encode_random(gradient: Tensor, density: float, seed: int) -> Sparse:
    """`density * N` values at random, without repeats; workers with one seed choose the same positions."""
    generator = torch.Generator(gradient.device).manual_seed(seed)
    order = torch.randperm(len(gradient), generator=generator, device=gradient.device)
    positions = order[: _count(gradient, density)]
    return Sparse(gradient[positions], positions.int())


def decode_sparse(message: Sparse, total: Tensor) -> None:
    """Add values where they belong."""
    total.index_add_(0, message.positions, message.values)


def encode_block(gradient: Tensor, density: float, seed: int) -> Run:
    """`density * N` values that follow each other; the seed says where."""
    count = _count(gradient, density)
    first = seed * count % (len(gradient) - count + 1)
    return Run(gradient[first : first + count].clone(), first)


def decode_block(message: Run, total: Tensor) -> None:
    """Add values where they belong."""
    total[message.first : message.first + len(message.values)].add_(message.values)


def _count(gradient: Tensor, density: float) -> int:
    return max(round(density * len(gradient)), 1)


# ---- factors of matrices


def encode_low_rank(matrices: Tensor, q: Tensor) -> Factors:
    """One power iteration from q [count, m, r], the coefficients of the step before.

    Between the two products all workers sum p, which takes no time here.
    """
    p = torch.linalg.qr(matrices @ q).Q
    return Factors(p, matrices.mT @ p)


def decode_low_rank(message: Factors, matrices: Tensor) -> None:
    """Overwrite `matrices` [count, n, m] with p q'."""
    torch.matmul(message.p, message.q.mT, out=matrices)


# ---- what decoding must give


def _rounded(gradient: Tensor, message: Scaled) -> Tensor:
    return torch.round(gradient / message.scale) * message.scale


def _signs(gradient: Tensor, message: Scaled) -> Tensor:
    return torch.where(gradient >= 0, message.scale, -message.scale)


def _sent_only(gradient: Tensor, message: Sparse) -> Tensor:
    kept = torch.zeros_like(gradient, dtype=torch.bool)
    kept[message.positions.long()] = True
    return torch.where(kept, gradient, 0.0)


def _run_only(gradient: Tensor, message: Run) -> Tensor:
    kept = torch.arange(len(gradient), device=gradient.device) - message.first
    return torch.where((kept >= 0) & (kept < len(message.values)), gradient, 0.0)


@dataclass(frozen=True)
class Method:
    """`restored(gradient, message)` is what decoding a message alone must give; `adds`: decoding adds to a sum."""

    encode: Callable[..., Any]
    decode: Callable[[Any, Tensor], None]
    restored: Callable[[Tensor, Any], Tensor]
    adds: bool = True


METHODS = {
    "fp16": Method(encode_fp16, decode_fp16, lambda gradient, _halves: gradient.half().float(), adds=False),
    "int8": Method(encode_int8, decode_int8, _rounded),
    "int4": Method(encode_int4, decode_int4, _rounded),
    "sign": Method(encode_sign, decode_sign, _signs),
    "top_k": Method(encode_top_k, decode_sparse, _sent_only),
    "threshold": Method(encode_threshold, decode_sparse, _sent_only),
    "random": Method(encode_random, decode_sparse, _sent_only),
    "block": Method(encode_block, decode_block, _run_only),
    "low_rank": Method(encode_low_rank, decode_low_rank, lambda matrices, of: of.p @ (of.p.mT @ matrices), adds=False),
}
