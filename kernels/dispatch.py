"""Which library runs a kernel: Triton on CUDA and in Triton's interpreter, torch everywhere else."""

import os
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor


@cache
def has_triton() -> bool:
    """Whether Triton is installed. It is not imported for that, which takes seconds from a busy file system."""
    try:
        return find_spec("triton") is not None
    except ImportError:
        return False


def runs_triton(tensor: Tensor) -> bool:
    """Whether the kernels of this package run in Triton on this tensor, rather than in their torch reference.

    In host memory they do where TRITON_INTERPRET=1 is set: slow, for tests. As Triton demands, it must be set when
    Triton is first imported too.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and tensor.device.type == "cpu"
    return (tensor.is_cuda or interpreted) and has_triton()


def library_of(tensor: Tensor) -> Literal["triton", "torch"]:
    """What a measurement names: the library that runs the kernels of this package on this tensor."""
    return "triton" if runs_triton(tensor) else "torch"


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """One launch on the device of the first argument, a tensor; none where the grid is empty."""
    if 0 in grid:
        return
    tensor = arguments[0]
    with torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext():
        kernel[grid](*arguments, **options)


def check_dense(**tensors: Tensor) -> None:
    """Raise ValueError naming a tensor that is not contiguous, or not on the device of the first."""
    device = next(iter(tensors.values())).device
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: strides {tensor.stride()} of shape {tuple(tensor.shape)} are not contiguous")
        if tensor.device != device:
            raise ValueError(f"{name}: on {tensor.device}, the others on {device}")
