"""The plan of an update from trainers to engines: who holds what, in which buckets, and what a receiver keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..buckets import Buckets, fill_buckets
from .meshes import EVERY, Layout, Mesh, deal, join, owner_of


@dataclass(frozen=True)
class Payload:
    """What crosses the wire: per byte that trainers hold, and what is done to it.

    `share` is the bytes sent per byte of a bucket (delta: changed values and their indices), `gathered` the bytes that
    trainers gather per byte of a bucket (2 where BF16 weights are quantised to FP8 first). `quantize` says where that
    happens, `delta` that changes are encoded before and applied after the wire, `messages` whether each tensor is a
    message (and a handle) of its own, and `load` whether receivers load what they got.
    """

    share: float = 1.0
    gathered: float = 1.0
    quantize: str = "none"
    delta: bool = False
    messages: str = "bucket"
    load: bool = True


@dataclass(frozen=True)
class Stage:
    """The trainer ranks of a pipeline stage; the first one is its head."""

    ranks: tuple[int, ...]

    @property
    def head(self) -> int:
        """The rank that sends for the stage where only one does."""
        return self.ranks[0]


@dataclass(frozen=True, eq=False)
class Phase:
    """Tensors that are treated alike: those of experts, and all others; stages are the owners of the buckets.

    The ranks of a stage split into groups by `mesh`, each of which holds what it gathers. Where they work `apart`, each
    gathers tensors of its own, those of which `part` says its number (or EVERY), and a bucket is what `groups` of them
    gather at the same time, none more than `most_bytes` and `most_tensors`. Else each gathers the whole bucket.

    Of a bucket, a receiver keeps `kept_bytes` of its bytes and `kept_tensors` of its tensors; a trainer holds parts of
    `local_tensors` of those that its group gathers. `order` are the tensors in the order in which buckets count them.
    """

    expert: bool
    mesh: Mesh
    apart: bool
    buckets: Buckets
    order: NDArray[np.int64]
    part: NDArray[np.int64]
    groups: NDArray[np.int64]
    most_bytes: NDArray[np.int64]
    most_tensors: NDArray[np.int64]
    kept_bytes: float
    kept_tensors: float
    local_tensors: float

    def at_work(self, stage: Stage, bucket: int) -> list[tuple[int, ...]]:
        """The groups that gather a bucket or their parts of it."""
        first, groups = int(self.buckets.first_tensor[bucket]), self.mesh.split(stage.ranks)
        if self.part[first] == EVERY:
            return groups
        return [groups[part] for part in np.unique(self.part[first:][: self.buckets.tensors[bucket]])]


@dataclass(frozen=True, eq=False)
class TransferPlan:
    """One update of all `receivers`, in engines of `engine_ranks` consecutive ones.

    `classes` partitions all ranks into those that act alike; `slots` is how many buckets may be in flight.
    """

    stages: tuple[Stage, ...]
    receivers: tuple[int, ...]
    engine_ranks: int
    phases: tuple[Phase, ...]
    payload: Payload
    bucket_bytes: int
    classes: tuple[tuple[int, ...], ...]
    dtype: str
    slots: int = 2
    new_group: bool = False
    registers: bool = False

    @property
    def trainers(self) -> tuple[int, ...]:
        """All trainer ranks, stage by stage."""
        return tuple(rank for stage in self.stages for rank in stage.ranks)

    @property
    def engines(self) -> int:
        """Number of engines."""
        return -(-len(self.receivers) // self.engine_ranks)

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all buckets."""
        return sum(int(phase.buckets.bytes.sum()) for phase in self.phases)

    @property
    def n_buckets(self) -> int:
        """Number of buckets, also of those that are filled at the same time."""
        return sum(int(phase.groups.sum()) for phase in self.phases)

    @property
    def rounds(self) -> int:
        """The largest number of buckets of a stage."""
        return sum(phase.buckets.rounds for phase in self.phases)

    @cached_property
    def kept_bytes(self) -> float:
        """What one receiver keeps in all."""
        return sum(float(phase.buckets.bytes.sum()) * phase.kept_bytes for phase in self.phases)


def make_transfer(
    sizes_bytes: NDArray[np.int64],
    expert: NDArray[np.bool_],
    layer: NDArray[np.int64],
    *,
    trainers: Sequence[int],
    receivers: Sequence[int],
    train: Layout,
    inference: Layout,
    bucket_bytes: int,
    classes: Sequence[Sequence[int]],
    payload: Payload,
    dtype: str,
    slots: int = 2,
    new_group: bool = False,
    registers: bool = False,
    unit: NDArray[np.int64] | None = None,
    apart: bool = False,
) -> TransferPlan:
    """Tensors of `sizes_bytes` (checkpoint order; their experts and layers beside) over stages, then into buckets.

    Tensors of one `unit` are gathered together and travel together; without it each is its own. A unit that is larger
    than `bucket_bytes` has a bucket of its own. With `apart`, each mesh of a stage gathers tensors of its own, in
    buckets of that size; without, all ranks that hold a copy gather it together.
    """
    stage = _stage_of(layer, train.pp)
    units = np.arange(len(sizes_bytes)) if unit is None else unit
    masks = ((~expert, False), (expert, True))
    stages = _stages(trainers, train)
    ranks = len(stages[0].ranks)
    phases = [_phase(sizes_bytes, stage, units, mask, of_experts, train, ranks, apart, inference, bucket_bytes)
              for mask, of_experts in masks if mask.any()]  # fmt: skip
    largest = max(int(phase.most_bytes.max()) for phase in phases)
    return TransferPlan(
        stages=stages,
        receivers=tuple(receivers),
        engine_ranks=inference.engine_ranks,
        phases=tuple(phases),
        payload=payload,
        bucket_bytes=max(bucket_bytes, largest),
        classes=tuple(tuple(ranks) for ranks in classes),
        dtype=dtype,
        slots=slots,
        new_group=new_group,
        registers=registers,
    )


def _stages(trainers: Sequence[int], train: Layout) -> tuple[Stage, ...]:
    ranks = len(trainers) // train.pp
    return tuple(Stage(tuple(trainers[i * ranks : (i + 1) * ranks])) for i in range(train.pp))


def _stage_of(layer: NDArray[np.int64], pp: int) -> NDArray[np.int64]:
    """Layers split evenly; what stands before them goes to the first stage, what comes after to the last."""
    inside = layer >= 0
    if not inside.any():
        return np.arange(len(layer)) * pp // len(layer)
    first = int(np.flatnonzero(inside)[0])
    stage = np.where(inside, layer * pp // (int(layer.max()) + 1), pp - 1)
    stage[:first] = 0
    return stage.astype(np.int64)


def _phase(
    sizes: NDArray[np.int64],
    stage: NDArray[np.int64],
    unit: NDArray[np.int64],
    mask: NDArray[np.bool_],
    of_experts: bool,
    train: Layout,
    stage_ranks: int,
    apart: bool,
    inference: Layout,
    bucket_bytes: int,
) -> Phase:
    chosen = np.flatnonzero(mask)
    mesh = train.mesh(of_experts) if apart else train.copy(of_experts)
    meshes = stage_ranks // mesh.size if apart else 1
    owner = owner_of(stage[chosen], deal(sizes[chosen], stage[chosen], meshes), meshes)
    sort = np.lexsort((unit[chosen], owner))
    order = chosen[sort]
    joined = join(_filled(sizes[order], owner[sort], unit[order], bucket_bytes), order, meshes)
    return Phase(
        expert=of_experts,
        mesh=mesh,
        apart=apart,
        **joined._asdict(),
        kept_bytes=1 / (inference.engine_ranks if of_experts else inference.tp),
        kept_tensors=1 / inference.ep if of_experts else 1.0,
        local_tensors=1 / train.ep if of_experts and not apart else 1.0,
    )


def _filled(sizes: NDArray[np.int64], owner: NDArray[np.int64], unit: NDArray[np.int64], bucket_bytes: int) -> Buckets:
    """Buckets of whole units, which then count tensors."""
    first = np.flatnonzero(np.concatenate(([True], (unit[1:] != unit[:-1]) | (owner[1:] != owner[:-1]))))
    start = np.append(first, len(sizes))
    buckets = fill_buckets(np.add.reduceat(sizes, first), owner[first], bucket_bytes, oversized=True)
    begins, ends = start[buckets.first_tensor], start[buckets.first_tensor + buckets.tensors]
    return replace(buckets, first_tensor=begins, tensors=ends - begins)
