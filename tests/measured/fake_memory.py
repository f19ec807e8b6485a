"""The bytes that a step of `steps` allocates in plain PyTorch, counted on fake tensors: without data, without a GPU.

Fake tensors have shapes and storages, and autograd does with them what it does with others: what lives when is exact,
and sizes are rounded as CUDA's allocator does. On an H100 the steps of data/measured/ took 0.06 to 0.1 GiB more, most
of it the workspace of cuBLAS.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from . import steps
from .models import Model, Shape

_BLOCK_BYTES = 512
"""All sizes are multiples of it (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""


RANK = 16  # of adapters


def peak_bytes(
    case: steps.Case, shape: Shape, norms_by_ops: bool = False, adapted: Sequence[str] = (), frozen: Sequence[str] = ()
) -> int:
    """The most bytes that tensors take in a step of an eager case, the second one: the optimizer has its moments.

    `norms_by_ops`: RMSNorm is made of torch's operations, in fp32, as Hugging Face's models have it. Where some linear
    modules of a layer are `adapted`, all but their adapters is frozen; else `frozen` modules of the model are.
    """
    model = patch.object(steps, "Model", lambda shape: _adapt(_freeze(Model(shape), frozen), adapted))
    with FakeTensorMode(), _cuda_like(_by_ops if norms_by_ops else _by_kernel), model:
        model, step = steps.prepare(case, shape, "cpu")
        live = _Live()
        for weight in model.parameters():
            live.add(weight)
        with live:
            step()
            live.most = 0
            step()
    return live.most


class _Adapted(nn.Module):
    """A linear module with an adapter of two factors, as in LoRA (arXiv 2106.09685)."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.a, self.b = (
            nn.Linear(base.in_features, RANK, bias=False), nn.Linear(RANK, base.out_features, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x))


def _freeze(model: Model, names: Sequence[str]) -> Model:
    for name in names:
        model.get_submodule(name).requires_grad_(False)
    return model


def _adapt(model: Model, names: Sequence[str]) -> Model:
    if names:
        model.requires_grad_(False)
    for layer in model.layers:
        for name in names:
            setattr(layer, name, _Adapted(getattr(layer, name)))
    return model


class _Live(TorchDispatchMode):
    """The bytes of all storages that operations have made and nobody has dropped; `most` of them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: dict[int, Any] = {}

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), -(-storage.nbytes() // _BLOCK_BYTES) * _BLOCK_BYTES
        if key not in self._known:
            self._known[key] = weakref.ref(storage, lambda _: self._drop(key, size))
            self.now += size
            self.most = max(self.most, self.now)

    def _drop(self, key: int, size: int) -> None:
        self.now -= size
        del self._known[key]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        tree_map_only(Tensor, self.add, made)
        return made


class _Norm(torch.autograd.Function):
    """RMSNorm as CUDA's kernel: keeps the input and one number per row in fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def _by_kernel(self: nn.RMSNorm, x: Tensor) -> Any:
    return _Norm.apply(x, self.weight)


def _by_ops(self: nn.RMSNorm, x: Tensor) -> Tensor:
    wide = x.float()
    return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


@contextmanager
def _cuda_like(norm: Any) -> Iterator[None]:
    """This norm, flash attention, and weights that are made in bf16: fake ones cannot be cast in place."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with (
            patch.object(nn.RMSNorm, "forward", norm),
            patch.object(steps, "sdpa_kernel", lambda _: nullcontext()),
            patch.object(Model, "to", lambda self, *_: self),
        ):
            yield
    finally:
        torch.set_default_dtype(torch.float32)
