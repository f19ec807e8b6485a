"""Weights out of one flattened bucket into many tensors: a copy each, one call for all, one launch for all.

Device time, which depends on all bytes and so is no sample of a class; and how long the host is busy issuing, which is
what bounds many small tensors. On a CPU issuing is copying, so there only the smallest tensors are samples of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from ....kernels.reload import Scatter
from ..case import Act, Case, Facts, Measure
from ..timing import Bench, Checked, bench_later, cold, on_host
from .exact import Stretch, checked, kernels_library, message

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
    """Tensors of equal size, and where they lie in the flattened bucket."""

    flat: torch.Tensor
    slices: list[torch.Tensor]
    targets: list[torch.Tensor]

    @classmethod
    def of(cls, bench: Bench, tensors: int, elements: int, dtype: torch.dtype) -> "Bucket":
        """Unwritten."""
        flat, *targets = (bench.empty(size, dtype=dtype) for size in (tensors * elements, *[elements] * tensors))
        return cls(flat, list(flat.split(elements)), targets)


def cases(facts: Facts) -> Iterator[Case]:
    """Every way, on the device and on the host."""
    for tensors, size, dtype in _SIZES:
        for name, way in _WAYS.items():
            start = _start(way, tensors, size, dtype)
            case = partial(_case, facts, name, tensors, size, dtype)
            if name not in _HOST_ONLY:
                yield case(name, cold(start), cache="cold")
            sample = facts.cuda or size == _SMALLEST
            yield case(f"{name}_issue", on_host(start), cost_class=f"host.reload_{name}_issue" if sample else "")


def _case(
    facts: Facts,
    way: str,
    tensors: int,
    size: int,
    dtype: str,
    name: str,
    measure: Measure,
    cost_class: str = "",
    cache: str = "hot",
) -> Case:
    """`size` is that of each tensor."""
    launches = 1 if way.startswith("scatter") else tensors
    return Case(
        "reload",
        name,
        {"tensors": tensors, "bytes": size, "dtype": dtype},
        measure,
        cost_class=cost_class,
        features={"count": 1.0 if way == "scatter" else float(tensors)} if cost_class else {},  # its table is made
        library=kernels_library(facts) if way.startswith("scatter") else "torch",
        bytes=2 * tensors * size,
        calls=launches,
        footprint_bytes=2 * tensors * size,
        cache=cache,
        quick=(tensors, size) in _QUICK,
    )


@bench_later
def _start(bench: Bench, way: Callable[[Bucket], Act], tensors: int, size: int, dtype: str) -> Checked:
    elements = size // _DTYPES[dtype].itemsize
    bucket = Bucket.of(bench, tensors, elements, _DTYPES[dtype])
    due = [Stretch(target, message(0), at * elements) for at, target in enumerate(bucket.targets)]
    return checked(bench, way(bucket), [Stretch(bucket.flat, message(0))], due)


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


def _foreach_copy(bucket: Bucket) -> Act:
    return lambda: torch._foreach_copy_(bucket.targets, bucket.slices)


def _scatter(bucket: Bucket) -> Act:
    return Scatter(bucket.flat, bucket.targets).scatter


def _scatter_with_table(bucket: Bucket) -> Act:
    """For targets that are new every time."""
    return lambda: Scatter(bucket.flat, bucket.targets).scatter()


_WAYS = {
    "copy_per_tensor": _copy_per_tensor,
    "slice_and_copy": _slice_and_copy,
    "foreach_copy": _foreach_copy,
    "scatter": _scatter,
    "scatter_with_table": _scatter_with_table,
}

_HOST_ONLY = ("slice_and_copy", "scatter_with_table")
"""Ways that keep the device as busy as another one does."""
