"""The plan of an update from trainers to engines: which ranks hold what, buckets, and what a receiver keeps.

A tensor is split over tensor-parallel ranks and sharded over further ones (FSDP); other ranks of the stage hold
replicas (HSDP). Experts are spread over expert-parallel ranks first: an expert's tensors are sharded over ranks `ep`
apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapreplace
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..buckets import Buckets, fill_buckets

Counts = NDArray[np.int64]
EVERY = -1
"""In place of the number of a mesh: every mesh of the stage."""


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

    In addition to tp a tensor is sharded over `shard` ranks, and in addition to ep an expert's over `expert_shard`.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    shard: int = 1
    expert_shard: int = 1

    @property
    def engine_ranks(self) -> int:
        """Ranks of one engine; its expert-parallel group may span several tensor-parallel ones."""
        return max(self.tp, self.ep)

    def mesh(self, expert: bool) -> Mesh:
        """The ranks that hold one tensor between them."""
        return Mesh(self.expert_shard, self.ep) if expert else Mesh(self.tp * self.shard)

    def copy(self, expert: bool) -> Mesh:
        """The consecutive ranks that hold all tensors of a stage between them."""
        return Mesh(self.ep * self.expert_shard) if expert else self.mesh(expert)


@dataclass(frozen=True)
class Transport:
    """How tensors cross the wire, and what is done to them.

    `share` is bytes sent per byte of a bucket (delta: changed values and indices), `gathered` bytes that trainers
    gather per byte of a bucket (2 if they quantise BF16 to FP8), and `gathered_tensors` tensors per tensor (a half, as
    matrices have scales on the wire). `quantize` says where that happens; with `delta` changes are encoded before the
    wire and applied after it. `messages`: one per "tensor" or "bucket". `load`: engines
    load what they receive, in precision `dtype`. `slots` buckets may be in flight. `new_group`: the update creates its
    process group; `registers`: engines first register their tensors with the NICs.
    """

    share: float = 1.0
    gathered: float = 1.0
    gathered_tensors: float = 1.0
    quantize: str = "none"
    delta: bool = False
    messages: str = "bucket"
    load: bool = True
    dtype: str = "bf16"
    slots: int = 2
    new_group: bool = False
    registers: bool = False


@dataclass(frozen=True)
class Stage:
    """The trainer ranks of a pipeline stage; the first is the head, which sends if only one does."""

    ranks: tuple[int, ...]

    @property
    def head(self) -> int:
        """The first rank."""
        return self.ranks[0]


@dataclass(frozen=True)
class Phase:
    """How the tensors of experts, or all others, are treated.

    The ranks of a stage split into groups by `mesh`. If groups work `apart`, each gathers tensors of its own; otherwise
    each gathers whole buckets. A receiver keeps the shares `kept_bytes` and `kept_tensors` of a bucket; a trainer holds
    parts of the share `local_tensors` of what its group gathers.
    """

    expert: bool
    mesh: Mesh
    apart: bool
    kept_bytes: float
    kept_tensors: float
    local_tensors: float


@dataclass(frozen=True, eq=False)
class Bucket:
    """Tensors of a phase that a stage sends together; `number` counts all buckets, `turn` those of the stage.

    `contents` are the numbers of its tensors in the checkpoint, and `parts` the mesh that gathers each, or EVERY. Each
    group that gathers it gathers at most `part` of its `bytes`, in `part_tensors`.
    """

    number: int
    turn: int
    round: int
    phase: Phase
    stage: Stage
    contents: Counts
    parts: Counts
    bytes: int
    part: int
    part_tensors: int

    @property
    def tensors(self) -> int:
        """Number of its tensors."""
        return len(self.contents)

    @property
    def kept(self) -> int:
        """Bytes that a receiver keeps."""
        return round(self.bytes * self.phase.kept_bytes)

    @property
    def kept_tensors(self) -> int:
        """Number of tensors of which a receiver keeps something."""
        return max(round(self.tensors * self.phase.kept_tensors), 1)

    @property
    def local_tensors(self) -> int:
        """Number of tensors of which a trainer holds parts; it gathers each by a call."""
        return max(round(self.part_tensors * self.phase.local_tensors), 1)

    @property
    def is_everywhere(self) -> bool:
        """Whether every group gathers all of it and sends it to some of the receivers."""
        return bool(self.parts[0] == EVERY)

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """The groups of trainers that gather it at the same time."""
        groups = self.phase.mesh.split(self.stage.ranks)
        return groups if self.is_everywhere else [groups[part] for part in np.unique(self.parts)]

    @property
    def gatherers(self) -> tuple[int, ...]:
        """The ranks of all groups, group after group."""
        return tuple(chain.from_iterable(self.groups))


@dataclass(frozen=True, eq=False)
class TransferPlan:
    """One update of all `receivers`, in engines of `engine_ranks` consecutive ones.

    Buckets are sent in this order: by phase, round and stage; none has more than `bucket_bytes`. `classes` are ranks
    that are simulated as one.
    """

    stages: tuple[Stage, ...]
    receivers: tuple[int, ...]
    engine_ranks: int
    phases: tuple[Phase, ...]
    buckets: tuple[Bucket, ...]
    transport: Transport
    bucket_bytes: int
    classes: tuple[tuple[int, ...], ...]

    @cached_property
    def trainers(self) -> tuple[int, ...]:
        """All trainer ranks, stage by stage."""
        return tuple(rank for stage in self.stages for rank in stage.ranks)

    @property
    def engines(self) -> int:
        """Number of engines."""
        return -(-len(self.receivers) // self.engine_ranks)

    @property
    def total_bytes(self) -> int:
        """Bytes of all buckets."""
        return sum(bucket.bytes for bucket in self.buckets)

    @property
    def n_buckets(self) -> int:
        """Number of buckets; those that meshes fill at the same time count one by one."""
        return sum(len(np.unique(bucket.parts)) for bucket in self.buckets)

    @property
    def rounds(self) -> int:
        """The largest number of buckets of a stage."""
        return self.buckets[-1].round + 1

    @property
    def kept_bytes(self) -> float:
        """The total bytes that one receiver keeps."""
        return sum(bucket.bytes * bucket.phase.kept_bytes for bucket in self.buckets)


def make_transfer(
    sizes_bytes: Counts,
    expert: NDArray[np.bool_],
    layer: Counts,
    *,
    trainers: Sequence[int],
    receivers: Sequence[int],
    train: Layout,
    inference: Layout,
    bucket_bytes: int,
    classes: Sequence[Sequence[int]],
    transport: Transport = Transport(),
    unit: Counts | None = None,
    apart: bool = False,
) -> TransferPlan:
    """Split tensors (bytes, whether of experts, and layer, in checkpoint order) over stages, then into buckets.

    Tensors of one `unit` stay together (default: a unit each); a unit larger than `bucket_bytes` has a bucket of its
    own. With `apart`, each mesh of a stage gathers tensors of its own, in buckets of that size; otherwise all ranks
    that hold a copy gather it together. No more buckets are in flight than there are.
    """
    ranks = len(trainers) // train.pp
    stages = tuple(Stage(tuple(trainers[i * ranks : (i + 1) * ranks])) for i in range(train.pp))
    stage = _stage_of(layer, train.pp)
    unit = np.arange(len(sizes_bytes)) if unit is None else unit
    phases, buckets, turns = list[Phase](), list[Bucket](), [0] * train.pp
    for of_experts in np.unique(expert).tolist():
        chosen = np.flatnonzero(expert == of_experts)
        phase = _phase_of(of_experts, train, inference, apart)
        meshes = ranks // phase.mesh.size if apart else 1
        # a number for each mesh of each stage, and for all of them together, in this order
        owner = stage[chosen] * (meshes + 1) + deal(sizes_bytes[chosen], stage[chosen], meshes) + 1
        sort = np.lexsort((unit[chosen], owner))
        order = chosen[sort]
        filled = _fill(sizes_bytes[order], owner[sort], unit[order], bucket_bytes)
        rounds = buckets[-1].round + 1 if buckets else 0
        for round_, number, parts in _side_by_side(filled, meshes):
            place = (len(buckets), turns[number], rounds + round_)
            buckets.append(_bucket_of(place, phase, stages[number], order, parts))
            turns[number] += 1
        phases.append(phase)
    return TransferPlan(
        stages=stages,
        receivers=tuple(receivers),
        engine_ranks=inference.engine_ranks,
        phases=tuple(phases),
        buckets=tuple(buckets),
        transport=replace(transport, slots=min(transport.slots, len(buckets))),
        bucket_bytes=max(bucket_bytes, *(bucket.part for bucket in buckets)),
        classes=tuple(tuple(ranks) for ranks in classes),
    )


def _phase_of(of_experts: bool, train: Layout, inference: Layout, apart: bool) -> Phase:
    """The phase in which tensors of experts move, or all others."""
    return Phase(
        expert=of_experts,
        mesh=train.mesh(of_experts) if apart else train.copy(of_experts),
        apart=apart,
        kept_bytes=1 / (inference.engine_ranks if of_experts else inference.tp),
        kept_tensors=1 / inference.ep if of_experts else 1.0,
        local_tensors=1 / train.ep if of_experts and not apart else 1.0,
    )


def _bucket_of(
    place: tuple[int, int, int], phase: Phase, stage: Stage, order: Counts, parts: Sequence["_Part"]
) -> Bucket:
    """A bucket of what meshes gather side by side; `place` is its number, its turn in its stage, and its round."""
    number, turn, round_ = place
    counts, sizes = [part.tensors for part in parts], [part.bytes for part in parts]
    return Bucket(
        number=number,
        turn=turn,
        round=round_,
        phase=phase,
        stage=stage,
        contents=np.concatenate([order[part.first : part.first + part.tensors] for part in parts]),
        parts=np.repeat([part.mesh for part in parts], counts),
        bytes=sum(sizes),
        part=max(sizes),
        part_tensors=max(counts),
    )


def _stage_of(layer: Counts, pp: int) -> Counts:
    """Layers are split evenly; tensors before them go to the first stage, tensors after them to the last."""
    inside = layer >= 0
    if not inside.any():
        return np.arange(len(layer)) * pp // len(layer)
    first = int(np.flatnonzero(inside)[0])
    stage = np.where(inside, layer * pp // (int(layer.max()) + 1), pp - 1)
    stage[:first] = 0
    return stage.astype(np.int64)


def deal(sizes_bytes: Counts, stage: Counts, meshes: int) -> Counts:
    """The mesh that gathers each tensor: in order, the one of its stage with the fewest bytes so far.

    EVERY mesh gathers a tensor with more bytes than an even share, so that all can send it.
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


def _fill(sizes: Counts, owner: Counts, unit: Counts, bucket_bytes: int) -> Buckets:
    """Buckets of whole units, whose `tensors` count tensors."""
    first = np.flatnonzero(np.concatenate(([True], (unit[1:] != unit[:-1]) | (owner[1:] != owner[:-1]))))
    start = np.append(first, len(sizes))
    buckets = fill_buckets(np.add.reduceat(sizes, first), owner[first], bucket_bytes, oversized=True)
    begins, ends = start[buckets.first_tensor], start[buckets.first_tensor + buckets.tensors]
    return replace(buckets, first_tensor=begins, tensors=ends - begins)


class _Part(NamedTuple):
    """The tensors of a bucket that one mesh gathers, or EVERY."""

    mesh: int
    first: int
    tensors: int
    bytes: int


def _side_by_side(filled: Buckets, meshes: int) -> Iterator[tuple[int, int, list[_Part]]]:
    """(round, stage, parts): the buckets that the meshes of a stage fill and send at the same time.

    Buckets of EVERY mesh come first, in rounds of their own.
    """
    stage, mesh = np.divmod(filled.owner, meshes + 1)
    everywhere = mesh - 1 == EVERY
    turn = filled.round + np.where(everywhere, 0, (filled.round + 1).max(initial=0, where=everywhere))
    columns = turn, stage, mesh - 1, filled.first_tensor, filled.tensors, filled.bytes
    rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
    for (round_, number), group in groupby(rows, key=itemgetter(0, 1)):
        yield round_, number, [_Part(*part) for _, _, *part in group]
