"""The plan of one weight update: who owns which bytes, in which buckets, and which ranks act alike.

A plan is a value; the files beside this one turn it into a Program, one pipeline each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .buckets import Buckets, BucketSize, fill_buckets, split_by_count
from .receivers import read_by


@dataclass(frozen=True)
class UpdatePlan:
    """One update of the first `listed` of `ranks` ranks, each of which owns a share of the weights.

    Every listed rank receives all weights. Owners copy their buckets to their device and broadcast them; in P2P mode
    (`reads`) receivers among the listed ranks read them from the owners' host memory instead. A class of ranks is
    listed as a whole or not at all.

    `kept_fraction` is the share of every bucket that one inference rank keeps (1 / tensor-parallel size), `dtype` the
    precision of the weights, `new_group` whether the update creates its process group.
    `classes` partitions the ranks into those that are simulated as one; each rank alone is the unfolded form.
    """

    ranks: int
    buckets: Buckets
    size: BucketSize
    kept_fraction: float
    classes: tuple[tuple[int, ...], ...]
    dtype: str
    new_group: bool
    listed: int
    reads: bool

    @property
    def bucket_bytes(self) -> int:
        """The most bytes of a bucket."""
        return self.size.bytes

    @property
    def n_buckets(self) -> int:
        """Number of buckets."""
        return len(self.buckets)

    @property
    def rounds(self) -> int:
        """The largest number of buckets of one root."""
        return self.buckets.rounds

    @property
    def receivers(self) -> tuple[int, ...]:
        """The ranks that are updated."""
        return tuple(range(self.listed))

    @property
    def total_bytes(self) -> int:
        """Bytes of all buckets: the model with every tensor aligned."""
        return int(self.buckets.bytes.sum())


def make_plan(
    sizes_bytes: np.ndarray,
    ranks: int,
    size: BucketSize,
    *,
    tensor_parallel: int = 1,
    classes: Sequence[Sequence[int]] | None = None,
    dtype: str = "bf16",
    new_group: bool = True,
) -> UpdatePlan:
    """Split tensors of `sizes_bytes` (aligned, checkpoint order) over `ranks` owners by count, then into buckets."""
    buckets = fill_buckets(sizes_bytes, split_by_count(len(sizes_bytes), ranks), size.bytes)
    folded = tuple(tuple(ranks_) for ranks_ in classes) if classes is not None else unfolded(ranks)
    return UpdatePlan(ranks, buckets, size, 1 / tensor_parallel, folded, dtype, new_group, ranks, False)


def with_readers(plan: UpdatePlan, nics: Sequence[str], listed: int, *, single: bool = False) -> UpdatePlan:
    """The same weights in P2P mode: the first `listed` ranks read from all owners; `nics[rank]` is a rank's own NIC.

    With `single`, one rank reads all (the source before commit a291782).
    """
    return replace(plan, buckets=read_by(plan.buckets, nics, listed, single), listed=listed, reads=True)


def unfolded(ranks: int) -> tuple[tuple[int, ...], ...]:
    """Every rank for itself."""
    return tuple((rank,) for rank in range(ranks))


def alike(keys: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Classes of the ranks whose keys are equal: same device, same node type, same speed."""
    classes: dict[object, list[int]] = {}
    for rank, key in enumerate(keys):
        classes.setdefault(key, []).append(rank)
    return tuple(tuple(ranks) for ranks in classes.values())
