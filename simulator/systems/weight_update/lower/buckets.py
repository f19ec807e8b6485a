"""Buckets: their size, the tensors in each, who sends them and in which order.

Source of the rules: MoonshotAI/checkpoint-engine, checkpoint_engine/ps.py at 59a3c4f.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALIGNMENT_BYTES = 256


@dataclass(frozen=True)
class BucketSize:
    """Bytes of a bucket and the number of such buffers on each device: 3 with an H2D buffer, 2 without."""

    bytes: int
    buffers: int


def bucket_size(
    free_bytes: float,
    max_tensor_bytes: int,
    *,
    limit_bytes: int = 8 * 2**30,
    mem_fraction: float = 0.9,
    h2d_buffer: bool = True,
) -> BucketSize:
    """The bucket that fits in `free_bytes` of the fullest device.

    `limit_bytes` is PS_MAX_BUCKET_SIZE_GB and `mem_fraction` PS_MEM_FRACTION. If three buffers of the largest tensor do
    not fit, there is no H2D buffer.

    Raises:
        ValueError: the largest tensor fits in no buffer.
    """
    free = int(free_bytes * mem_fraction)
    available, buffers = _aligned_share(free, 3), 3
    if max_tensor_bytes > available or not h2d_buffer:
        available, buffers = _aligned_share(free, 2), 2
    if max_tensor_bytes > available:
        room = max(available, 0)
        raise ValueError(f"the largest tensor has {max_tensor_bytes:,} bytes, a buffer can have {room:,} at most")
    return BucketSize(min(max(limit_bytes, max_tensor_bytes), available), buffers)


def _aligned_share(free_bytes: int, buffers: int) -> int:
    return free_bytes // (buffers * ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, eq=False)
class Buckets:
    """One entry per bucket, in the order in which they are sent (by round, then by owner).

    Bucket g holds `tensors[g]` tensors from `first_tensor[g]` on, in checkpoint order; `offset_bytes[g]` is where it
    starts in the host memory of `owner[g]`. `root[g]` brings it to its device and sends it on: the owner itself, or in
    P2P mode a receiver.
    """

    owner: NDArray[np.int64]
    root: NDArray[np.int64]
    round: NDArray[np.int64]
    first_tensor: NDArray[np.int64]
    tensors: NDArray[np.int64]
    bytes: NDArray[np.int64]
    offset_bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def rounds(self) -> int:
        """The largest number of buckets of one root."""
        return int(self.round.max(initial=-1)) + 1

    def owned_bytes(self, ranks: int) -> NDArray[np.int64]:
        """Host bytes that each rank owns."""
        return np.bincount(self.owner, self.bytes, minlength=ranks).astype(np.int64)


def split_by_count(n_tensors: int, ranks: int) -> NDArray[np.int64]:
    """The owner of each tensor: ceil(n / ranks) consecutive tensors per rank, whatever their bytes."""
    return np.arange(n_tensors) // -(-n_tensors // ranks)


def fill_buckets(
    sizes_bytes: NDArray[np.int64], owner: NDArray[np.int64], bucket_bytes: int, *, oversized: bool = False
) -> Buckets:
    """Fill buckets with each owner's tensors in order; no tensor is split.

    `sizes_bytes` are aligned sizes in checkpoint order and `owner` is ascending. With `oversized`, a tensor that is
    larger than a bucket has one of its own.

    Raises:
        ValueError: a tensor is larger than the bucket, and may not be.
    """
    if not oversized and sizes_bytes.max(initial=0) > bucket_bytes:
        raise ValueError(f"the largest tensor has {sizes_bytes.max()} bytes, but a bucket has {bucket_bytes}")
    end = np.concatenate(([0], np.cumsum(sizes_bytes)))
    rows: list[tuple[int, ...]] = []
    for rank in np.unique(owner).tolist():
        first, last = np.searchsorted(owner, [rank, rank + 1]).tolist()
        rows += _fill_owner(rank, first, last, end, bucket_bytes)
    return _by_rounds(np.array(rows, np.int64).reshape(-1, 7))


def set_roots(buckets: Buckets, roots: Sequence[tuple[int, int]]) -> Buckets:
    """The same buckets with other roots, given as (root, bucket) in the order in which a root takes its buckets."""
    taken: dict[int, int] = {}
    columns = np.array([getattr(buckets, name) for name in _COLUMNS], np.int64).T
    rows = columns[[bucket for _, bucket in roots]]
    for row, (root, _) in zip(rows, roots, strict=True):
        row[1:3] = root, taken.setdefault(root, 0)
        taken[root] += 1
    return _by_rounds(rows)


_COLUMNS = tuple(Buckets.__dataclass_fields__)


def _by_rounds(rows: NDArray[np.int64]) -> Buckets:
    """Buckets sorted by round, then by root."""
    return Buckets(*rows[np.lexsort((rows[:, 1], rows[:, 2]))].T)


def _fill_owner(rank: int, first: int, last: int, end: NDArray[np.int64], bucket_bytes: int) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    start, base = first, end[first]
    while start < last:
        stop = min(max(int(np.searchsorted(end, end[start] + bucket_bytes, side="right")) - 1, start + 1), last)
        rows.append((rank, rank, len(rows), start, stop - start, int(end[stop] - end[start]), int(end[start] - base)))
        start = stop
    return rows
