"""What travels: pseudo-random bytes for every tensor, made again where they are compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...simulator.scenario import Resolved
from ...simulator.updates import Buckets

Bytes = NDArray[np.uint8]


class Meta(NamedTuple):
    """What a parameter server says about a tensor: `offset` and `size` are bytes, of its bucket and without padding."""

    tensor: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    size: int


@dataclass(frozen=True)
class Content:
    """The tensors of a scenario: owners, buckets, bytes, and the share that a rank keeps."""

    resolved: Resolved

    @property
    def buckets(self) -> Buckets:
        """Owner, tensors and host offset of each bucket."""
        return self.resolved.served_plan.buckets

    def of(self, tensor: int) -> Bytes:
        """The bytes of a tensor."""
        size = int(self.resolved.weights.nbytes[tensor])
        seed = (self.resolved.scenario.seed, tensor)
        return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)

    def metas(self, bucket: int) -> list[Meta]:
        """The tensors of a bucket and where they lie in it."""
        weights, first = self.resolved.weights, int(self.buckets.first_tensor[bucket])
        tensors = range(first, first + int(self.buckets.tensors[bucket]))
        ends = np.cumsum(weights.aligned()[tensors.start : tensors.stop])
        offsets = [0, *ends[:-1].tolist()]
        return [
            Meta(i, weights.names[i], weights.shapes[i], weights.dtypes[i], offset, int(weights.nbytes[i]))
            for i, offset in zip(tensors, offsets, strict=True)
        ]

    def owned(self, rank: int) -> Iterator[int]:
        """The buckets whose tensors a rank owns."""
        yield from np.flatnonzero(self.buckets.owner == rank).tolist()

    def fill(self, rank: int, host: Bytes) -> None:
        """Write all tensors that a rank owns to their places in its host memory."""
        for bucket in self.owned(rank):
            base = int(self.buckets.offset_bytes[bucket])
            for meta in self.metas(bucket):
                host[base + meta.offset :][: meta.size] = self.of(meta.tensor)

    def received(self, rank: int) -> range:
        """The tensors that a rank receives: all of them, or none if it is not listed."""
        return range(len(self.resolved.weights) if rank < self.resolved.served_plan.listed else 0)

    def kept(self, rank: int, size: int) -> slice:
        """The bytes of a tensor of `size` bytes that an inference rank keeps."""
        parallel = self.resolved.scenario.update.inference.tp
        share = rank % parallel
        return slice(size * share // parallel, size * (share + 1) // parallel)

    def kept_bytes(self, rank: int) -> int:
        """Bytes of all tensors that a rank keeps."""
        sizes, parallel = self.resolved.weights.nbytes[self.received(rank)], self.resolved.scenario.update.inference.tp
        share = rank % parallel
        return int((sizes * (share + 1) // parallel - sizes * share // parallel).sum())

    def expected(self, rank: int, tensor: int) -> Bytes:
        """What a rank must hold of a tensor in the end."""
        whole = self.of(tensor)
        return whole[self.kept(rank, len(whole))]
