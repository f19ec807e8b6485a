"""Device meshes of trainers: which ranks of a stage hold a tensor between them, and which mesh gathers which tensor.

A tensor is split over tensor-parallel ranks and sharded over further ones (FSDP); what remains of a stage holds
replicas (HSDP). Experts lie on expert-parallel ranks first: each expert's tensors are sharded over ranks `ep` apart.
Pure arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..buckets import Buckets

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Mesh:
    """`size` ranks, `stride` apart, that hold a tensor between them."""

    size: int
    stride: int = 1

    def split(self, ranks: Sequence[int]) -> list[tuple[int, ...]]:
        """All meshes of a stage, each as its ranks."""
        block = self.size * self.stride
        starts = range(0, len(ranks), block)
        return [tuple(ranks[i + k : i + block : self.stride]) for i in starts for k in range(self.stride)]


@dataclass(frozen=True)
class Layout:
    """How a model is spread over ranks: tensor, pipeline and expert parallel sizes.

    Beside tp a tensor is sharded over `shard` ranks; beside ep an expert's tensor is sharded over `expert_shard`.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    shard: int = 1
    expert_shard: int = 1

    @property
    def engine_ranks(self) -> int:
        """Ranks of one engine: its expert-parallel group may span several tensor-parallel ones."""
        return max(self.tp, self.ep)

    def mesh(self, expert: bool) -> Mesh:
        """The ranks that hold one tensor between them."""
        return Mesh(self.expert_shard, self.ep) if expert else Mesh(self.tp * self.shard)

    def copy(self, expert: bool) -> Mesh:
        """The consecutive ranks that hold all tensors of a stage between them: a mesh, or one for each rank of ep."""
        return Mesh(self.ep * self.expert_shard) if expert else self.mesh(expert)


EVERY = -1
"""In place of the number of a mesh: every mesh of the stage."""


def deal(sizes_bytes: Counts, stage: Counts, meshes: int) -> Counts:
    """The mesh that gathers each tensor: in order, the one of the tensor's stage that has the fewest bytes so far.

    A tensor that has more bytes than is even is gathered by every mesh, so that all can send it.
    """
    dealt = np.zeros(len(sizes_bytes), np.int64)
    for owner in np.unique(stage) if meshes > 1 else ():
        own = np.flatnonzero(stage == owner)
        even = sizes_bytes[own].sum() / meshes
        dealt[own[sizes_bytes[own] > even]] = EVERY
        loads = [(0, mesh) for mesh in range(meshes)]
        for tensor in own[sizes_bytes[own] <= even].tolist():
            load, mesh = loads[0]
            dealt[tensor] = mesh
            heapreplace(loads, (load + int(sizes_bytes[tensor]), mesh))
    return dealt


class Joined(NamedTuple):
    """Buckets of several meshes of a stage that are filled and sent at the same time, as one bucket.

    `order` are the tensors as these buckets count them, `part` the mesh of each, or EVERY. To each bucket `groups`
    meshes contribute; the one with most has `most_bytes` and `most_tensors`.
    """

    buckets: Buckets
    order: Counts
    part: Counts
    groups: Counts
    most_bytes: Counts
    most_tensors: Counts


def owner_of(stage: Counts, part: Counts, meshes: int) -> Counts:
    """A number for each mesh of each stage, and for all of them together, in this order."""
    return stage * (meshes + 1) + part + 1


def join(buckets: Buckets, order: Counts, meshes: int) -> Joined:
    """The buckets of each stage and round together, behind those of every mesh, which have rounds of their own."""
    stage, part = np.divmod(buckets.owner, meshes + 1)
    part = part - 1
    turn = buckets.round + np.where(part == EVERY, 0, (buckets.round + 1).max(initial=0, where=part == EVERY))
    sort = np.lexsort((part, stage, turn))
    stage, part, turn, tensors, size = (each[sort] for each in (stage, part, turn, buckets.tensors, buckets.bytes))
    first = np.flatnonzero((np.diff(turn, prepend=-1) != 0) | (np.diff(stage, prepend=-1) != 0))
    counts = np.add.reduceat(tensors, first)
    joined = replace(
        buckets,
        owner=stage[first],
        root=stage[first],
        round=turn[first],
        first_tensor=np.cumsum(counts) - counts,
        tensors=counts,
        bytes=np.add.reduceat(size, first),
        offset_bytes=buckets.offset_bytes[sort][first],
    )
    begins = buckets.first_tensor[sort]
    return Joined(
        joined,
        order[np.concatenate([np.arange(a, a + n) for a, n in zip(begins, tensors, strict=True)])],
        np.repeat(part, tensors),
        np.diff(first, append=len(stage)),
        np.maximum.reduceat(size, first),
        np.maximum.reduceat(tensors, first),
    )
