"""Weights out of one flattened bucket into many tensors: a copy each, one call for all, one launch for all.

Device time, and how long the host is busy issuing, which is what bounds many small tensors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ....kernels.dispatch import has_triton
from ....kernels.reload import Scatter
from ..bench import Bench
from ..case import Act, Case, Measure
from ..facts import Facts
from ..timing import Checked, cold, on_host
from .exact import Stretch, checked, message

_ELEMENT = 2  # bytes of bf16
_EXPERT = 7168 * 2048  # elements of one matrix of an expert of DeepSeek-V3
_SIZES = (
    (200, 1 << 14),
    (200, 1 << 20),
    (2000, 1 << 14),
    (2000, 1 << 18),
    (500, _EXPERT * 2),
    (100, _EXPERT),  # in 8 bits
)
"""Tensors, and bytes of each."""

_QUICK = (200, 1 << 20)


@dataclass(frozen=True)
class Bucket:
    """Tensors of equal size, and where they lie in the flattened bucket."""

    flat: torch.Tensor
    slices: list[torch.Tensor]
    targets: list[torch.Tensor]

    @classmethod
    def of(cls, bench: Bench, tensors: int, elements: int) -> "Bucket":
        """Unwritten."""
        flat = bench.empty(tensors * elements)
        return cls(flat, list(flat.split(elements)), [bench.empty(elements) for _ in range(tensors)])


def cases(facts: Facts) -> Iterator[Case]:
    """Every way, on the device and on the host."""
    for tensors, size in _SIZES:
        for name, way in _WAYS.items():
            start = _start(way, tensors, size)
            if name not in _HOST_ONLY:
                yield _case(facts, name, tensors, size, cold(start), "cold")
            yield _case(facts, f"{name}_issue", tensors, size, on_host(start), "hot")


def _case(facts: Facts, name: str, tensors: int, size: int, measure: Measure, cache: str) -> Case:
    one_launch = name.startswith("scatter")
    return Case(
        "reload",
        name,
        {"tensors": tensors, "bytes_each": size, "dtype": "bf16"},
        measure,
        cost_class=f"host.reload_{name}",
        features={"count": float(tensors)},
        library="triton" if one_launch and facts.cuda and has_triton() else "torch",
        bytes=2 * tensors * size,
        calls=1 if one_launch else tensors,
        footprint_bytes=2 * tensors * size,
        cache=cache,
        quick=(tensors, size) == _QUICK,
    )


def _start(way: Callable[[Bucket], Act], tensors: int, size: int) -> Callable[[Bench], Checked]:
    def start(bench: Bench) -> Checked:
        elements = size // _ELEMENT
        bucket = Bucket.of(bench, tensors, elements)
        due = [Stretch(target, message(0), at * elements) for at, target in enumerate(bucket.targets)]
        return checked(bench, way(bucket), [Stretch(bucket.flat, message(0))], due)

    return start


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
