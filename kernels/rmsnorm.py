"""Residual added and normed in one pass, as between two blocks of a transformer (RMSNorm: arXiv 1910.07467)."""

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton

WIDEST = 32768  # columns: a row is held in the registers of one program


def add_rmsnorm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """The new residual x + residual, and weight * new / sqrt(mean(new^2) + epsilon).

    x, residual  [T, H] floating, H at most 32768
    weight       [H] floating
    returns      new residual and normed rows, both [T, H] like x

    The norm is taken in fp32 of the new residual as it is stored, so that it equals that of two separate kernels.
    Reads 2 T H + H elements (H of them once per program, out of L2), writes 2 T H.
    """
    check_dense(x=x, residual=residual, weight=weight)
    if x.shape[1] > WIDEST:
        raise ValueError(f"x: {x.shape[1]} columns, at most {WIDEST}")
    if not runs_triton(x):
        return add_rmsnorm_reference(x, residual, weight, epsilon)
    from . import compiled

    summed, normed = torch.empty_like(x), torch.empty_like(x)
    hidden = x.shape[1]
    block = 1 << max(hidden - 1, 0).bit_length()
    warps = min(max(block // 512, 1), 16)  # 16 elements a thread, 64 at the widest
    tensors = x, residual, weight, summed, normed
    launch(compiled.add_rmsnorm, (len(x),), *tensors, hidden, epsilon, block=block, num_warps=warps)
    return summed, normed


def add_rmsnorm_reference(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """`add_rmsnorm` in torch, in fp32."""
    summed = (x.float() + residual.float()).to(x.dtype)
    wide = summed.float()
    normed = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + epsilon) * weight.float()
    return summed, normed.to(x.dtype)
