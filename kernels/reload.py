"""One flattened bucket scattered into many tensors by one launch, where `load_weights` issues a copy per tensor."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton

CHUNK = 32 * 1024  # bytes of one program: small enough to balance, large enough to hide the latency of its table row


class Scatter:
    """A bucket, its targets, and the table that a launch reads. Built once, run as often as the bucket is refilled.

    bucket   one dimension of any dtype: its bytes count
    targets  contiguous tensors of any shape and dtype on the bucket's device, which may not overlap
    offsets  byte in the bucket where each target starts; one after another without gaps if not given

    The table has a row per chunk, so that one huge tensor occupies as many programs as many small ones. A chunk moves
    16 bytes at a time where its two addresses and its size are multiples of 16, else 4, 2 or 1: a target at an odd
    address is slow throughout, one of odd size in its last chunk only.

    Raises ValueError for tensors that are not contiguous, on two devices, or reach beyond the bucket.
    """

    def __init__(self, bucket: Tensor, targets: Sequence[Tensor], offsets: Sequence[int] | None = None):
        check_dense(bucket=bucket, **{f"targets[{i}]": target for i, target in enumerate(targets)})
        self.source = bytes_of(bucket)
        self.targets = [bytes_of(target) for target in targets]
        self.sizes = [target.numel() for target in self.targets]
        self.offsets = list(accumulate(self.sizes, initial=0))[:-1] if offsets is None else list(offsets)
        self._check()
        self.table = self._table() if runs_triton(bucket) else None

    def scatter(self) -> None:
        """Copy every target's bytes out of the bucket. Reads `nbytes` and writes as many; the table is 24 B a chunk."""
        if self.table is None:
            scatter_reference(self.source, self.targets, self.offsets)
            return
        from . import compiled

        launch(compiled.scatter, (len(self.table),), self.source, self.table, chunk=CHUNK, num_warps=8)

    @property
    def nbytes(self) -> int:
        """Bytes of all targets: what one `scatter()` reads, and what it writes."""
        return sum(self.sizes)

    def _check(self) -> None:
        if len(self.offsets) != len(self.targets):
            raise ValueError(f"offsets: {len(self.offsets)} for {len(self.targets)} targets")
        size_bytes = self.source.numel()
        for i, (start, size) in enumerate(zip(self.offsets, self.sizes, strict=True)):
            if start < 0 or start + size > size_bytes:
                raise ValueError(f"targets[{i}]: bytes {start} to {start + size} of a bucket of {size_bytes}")

    def _table(self) -> Tensor:
        """[chunks, 3] int64 on the device: offset in the bucket, address to write, bytes."""
        addresses = torch.tensor([target.data_ptr() for target in self.targets], dtype=torch.int64)
        offsets, sizes = torch.tensor([self.offsets, self.sizes], dtype=torch.int64)
        chunks = (sizes + CHUNK - 1) // CHUNK
        owner = torch.repeat_interleave(chunks)  # the target of each chunk
        start = (torch.arange(len(owner)) - (chunks.cumsum(0) - chunks)[owner]) * CHUNK
        rows = offsets[owner] + start, addresses[owner] + start, (sizes[owner] - start).clamp(max=CHUNK)
        return torch.stack(rows, dim=1).to(self.source.device)


def scatter_reference(source: Tensor, targets: Sequence[Tensor], offsets: Sequence[int]) -> None:
    """The same in torch, a copy per target; all tensors are flat bytes."""
    for target, offset in zip(targets, offsets, strict=True):
        target.copy_(source[offset : offset + target.numel()])


def bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor as a flat uint8 tensor."""
    return tensor.view(-1).view(torch.uint8)
