"""Weights out of one flattened bucket into many tensors: a copy each, one call for all, one launch for all.

Device time, which depends on all bytes and so is no sample of a class; and how long the host is busy issuing, which is
what bounds many small tensors. On a CPU issuing is copying, so there only the smallest tensors are samples of it.
"""

from collections.abc import Callable, Iterator

import torch

from ....kernels.reload import Scatter
from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Checked, cold, time_host
from .exact import Stretch, check_stretches, kernels_library, message

_DTYPES = {"bf16": torch.bfloat16, "uint8": torch.uint8}
_EXPERT = 7168 * 2048  # elements of one matrix of an expert of DeepSeek-V3
_SMALLEST = 1 << 14
_SIZES = (
    (200, _SMALLEST, "bf16"),
    (200, 1 << 20, "bf16"),
    (2000, _SMALLEST, "bf16"),
    (2000, 1 << 18, "bf16"),
    (500, _EXPERT * 2, "bf16"),
    (100, _EXPERT, "uint8"),
)
"""Tensors, bytes of each, and what they are made of."""

_QUICK = ((200, _SMALLEST), (200, 1 << 20))


Way = Callable[[torch.Tensor, list[torch.Tensor], list[torch.Tensor]], Act]
"""Makes the act for a flattened bucket, its slices, and the tensors that these go to."""


def cases(facts: Facts) -> Iterator[Case]:
    """Every way, on the device and on the host."""
    for tensors, size, dtype in _SIZES:
        for way in _WAYS:
            if way not in _HOST_ONLY:
                yield _case(facts, way, tensors, size, dtype, on_device=True)
            yield _case(facts, way, tensors, size, dtype, on_device=False)


def _case(facts: Facts, way: str, tensors: int, size: int, dtype: str, on_device: bool) -> Case:
    """`size` is that of each tensor."""
    scatters = way.startswith("scatter")
    sample = not on_device and (facts.cuda or size == _SMALLEST)
    return Case(
        "reload",
        way if on_device else f"{way}_issue",
        {"tensors": tensors, "bytes": size, "dtype": dtype},
        (cold if on_device else time_host)(_reload, _WAYS[way], tensors, size, _DTYPES[dtype]),
        cost_class=f"host.reload_{way}_issue" if sample else "",
        features={"count": 1.0 if way == "scatter" else float(tensors)} if sample else {},  # its table is made
        library=kernels_library(facts) if scatters else "torch",
        bytes=2 * tensors * size,
        calls=1 if scatters else tensors,
        footprint_bytes=2 * tensors * size,
        cache="cold" if on_device else "hot",
        quick=(tensors, size) in _QUICK,
    )


def _reload(bench: Bench, way: Way, tensors: int, size: int, dtype: torch.dtype) -> Checked:
    elements = size // dtype.itemsize
    bucket = bench.empty(tensors * elements, dtype=dtype)
    targets = [bench.empty(elements, dtype=dtype) for _ in range(tensors)]
    results = [Stretch(target, message(0), at * elements) for at, target in enumerate(targets)]
    act = way(bucket, list(bucket.split(elements)), targets)
    return check_stretches(bench, act, [Stretch(bucket, message(0))], results)


def _copy_per_tensor(_bucket: torch.Tensor, slices: list[torch.Tensor], targets: list[torch.Tensor]) -> Act:
    """Copy tensor by tensor, as inference engines' loaders do, from existing slices."""

    def act() -> None:
        for target, source in zip(targets, slices, strict=True):
            target.copy_(source)

    return act


def _slice_and_copy(bucket: torch.Tensor, _slices: list[torch.Tensor], targets: list[torch.Tensor]) -> Act:
    """Copy tensor by tensor, making each slice first."""
    elements = len(targets[0])

    def act() -> None:
        for at, target in enumerate(targets):
            target.copy_(bucket[at * elements : (at + 1) * elements])

    return act


_WAYS: dict[str, Way] = {
    "copy_per_tensor": _copy_per_tensor,
    "slice_and_copy": _slice_and_copy,
    "foreach_copy": lambda _bucket, slices, targets: lambda: torch._foreach_copy_(targets, slices),
    "scatter": lambda bucket, _slices, targets: Scatter(bucket, targets).scatter,
    "scatter_with_table": lambda bucket, _slices, targets: lambda: Scatter(bucket, targets).scatter(),  # new targets
}

_HOST_ONLY = ("slice_and_copy", "scatter_with_table")
"""Ways that keep the device as busy as another one does."""
