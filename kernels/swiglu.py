"""silu(gate) * up, forward and backward, where torch runs a kernel for each step (Shazeer, arXiv 2002.05202)."""

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton

BLOCK = 1024  # columns of a program: 16 bytes of bf16 a thread


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) * up, in fp32.

    x        [T, 2H] floating: the columns of gate, then those of up
    returns  [T, H] like x

    Reads 2 T H elements, writes T H.
    """
    check_dense(x=x)
    if not runs_triton(x):
        return swiglu_reference(x)
    from . import compiled

    hidden = _half(x)
    result = x.new_empty(len(x), hidden)
    grid = len(x), -(-hidden // BLOCK)
    launch(compiled.swiglu, grid, x, result, hidden, block=BLOCK, num_warps=4)
    return result


def swiglu_backward(x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of x from that of `swiglu(x)`, in fp32: d silu(g)/dg = s + g s (1 - s) with s = sigmoid(g).

    x         [T, 2H] floating: the columns of gate, then those of up
    gradient  [T, H] like x
    returns   [T, 2H] like x

    Reads 3 T H elements, writes 2 T H.
    """
    check_dense(x=x, gradient=gradient)
    if not runs_triton(x):
        return swiglu_backward_reference(x, gradient)
    from . import compiled

    hidden = _half(x)
    result = torch.empty_like(x)
    grid = len(x), -(-hidden // BLOCK)
    launch(compiled.swiglu_backward, grid, x, gradient, result, hidden, block=BLOCK, num_warps=4)
    return result


def swiglu_reference(x: Tensor) -> Tensor:
    """`swiglu` in torch, in fp32."""
    gate, up = x[:, : _half(x)].float(), x[:, _half(x) :].float()
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


def swiglu_backward_reference(x: Tensor, gradient: Tensor) -> Tensor:
    """`swiglu_backward` in torch, in fp32."""
    gate, up = x[:, : _half(x)].float(), x[:, _half(x) :].float()
    sigmoid = torch.sigmoid(gate)
    to_gate = gradient.float() * up * (sigmoid + gate * sigmoid * (1 - sigmoid))
    to_up = gradient.float() * gate * sigmoid
    return torch.cat([to_gate, to_up], dim=1).to(x.dtype)


def _half(x: Tensor) -> int:
    if x.dim() != 2 or x.shape[1] % 2:
        raise ValueError(f"x: shape {tuple(x.shape)} is not [T, 2H]")
    return x.shape[1] // 2
