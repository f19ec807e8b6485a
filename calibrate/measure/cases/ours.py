"""What the cases of `runcast.kernels` share: what runs them, and when a result counts as wrong."""

import torch

from ....kernels import dispatch
from ..facts import Facts


def kernels_library(facts: Facts) -> str:
    """What runs the kernels of `runcast.kernels` on such a device."""
    return "triton" if facts.cuda and dispatch.has_triton() else "torch reference"


def differing(got: torch.Tensor, expected: torch.Tensor, relative: float = 0.02) -> int:
    """Elements that differ by more than this share of the expected one, or of 1 where that is smaller."""
    far = (got.float() - expected.float()).abs() > relative * expected.float().abs().clamp(min=1.0)
    return int(far.sum().item())
