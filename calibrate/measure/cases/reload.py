"""Weights out of one flattened bucket into many tensors: a copy each, one call for all, one launch for all.

Device time, which depends on all bytes and so is no sample of a class; and how long the host is busy issuing, which is
what bounds many small tensors. On a CPU issuing is copying, so there only the smallest tensors are samples of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ....kernels.reload import Scatter
from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Checked, cold, on_host
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


@dataclass(frozen=True)
class Bucket:
    """Unwritten tensors of equal size, and where they lie in the flattened bucket."""

    flat: torch.Tensor
    slices: list[torch.Tensor]
    targets: list[torch.Tensor]

    @classmethod
    def allocate(cls, bench: Bench, tensors: int, elements: int, dtype: torch.dtype) -> "Bucket":
        """So many tensors of so many elements each."""
        flat, *targets = (bench.empty(size, dtype=dtype) for size in (tensors * elements, *[elements] * tensors))
        return cls(flat, list(flat.split(elements)), targets)


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
        (cold if on_device else on_host)(_reload, _WAYS[way], tensors, size, _DTYPES[dtype]),
        cost_class=f"host.reload_{way}_issue" if sample else "",
        features={"count": 1.0 if way == "scatter" else float(tensors)} if sample else {},  # its table is made
        library=kernels_library(facts) if scatters else "torch",
        bytes=2 * tensors * size,
        calls=1 if scatters else tensors,
        footprint_bytes=2 * tensors * size,
        cache="cold" if on_device else "hot",
        quick=(tensors, size) in _QUICK,
    )


def _reload(bench: Bench, way: Callable[[Bucket], Act], tensors: int, size: int, dtype: torch.dtype) -> Checked:
    elements = size // dtype.itemsize
    bucket = Bucket.allocate(bench, tensors, elements, dtype)
    results = [Stretch(target, message(0), at * elements) for at, target in enumerate(bucket.targets)]
    return check_stretches(bench, way(bucket), [Stretch(bucket.flat, message(0))], results)


def _copy_per_tensor(bucket: Bucket) -> Act:
    """As the loaders of inference engines do, with slices at hand."""

    def act() -> None:
        for target, source in zip(bucket.targets, bucket.slices, strict=True):
            target.copy_(source)

    return act


def _slice_and_copy(bucket: Bucket) -> Act:
    """The same with slices yet to be made."""
    elements = len(bucket.targets[0])

    def act() -> None:
        for at, target in enumerate(bucket.targets):
            target.copy_(bucket.flat[at * elements : (at + 1) * elements])

    return act


_WAYS: dict[str, Callable[[Bucket], Act]] = {
    "copy_per_tensor": _copy_per_tensor,
    "slice_and_copy": _slice_and_copy,
    "foreach_copy": lambda bucket: lambda: torch._foreach_copy_(bucket.targets, bucket.slices),
    "scatter": lambda bucket: Scatter(bucket.flat, bucket.targets).scatter,
    "scatter_with_table": lambda bucket: lambda: Scatter(bucket.flat, bucket.targets).scatter(),  # targets anew
}

_HOST_ONLY = ("slice_and_copy", "scatter_with_table")
"""Ways that keep the device as busy as another one does."""
