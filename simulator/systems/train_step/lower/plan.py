"""The TrainPlan: everything that decides what happens in a training step, with all names resolved. Plain values.

How a scenario becomes one lives in `scenario`, how it becomes a Program in the other files of this folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np

from ....models import ModelSpec
from ....models.blocks import Layer, layer
from ....models.kernels import weight_gradient
from ....models.shard import Shard, block
from ....models.states import Count, layer_count
from ....program.parallel import ParallelDims
from ....schedules import Grid

_Of = TypeVar("_Of")


@dataclass(frozen=True)
class Stage:
    """What of the model one pipeline stage holds; MTP layers are numbered behind the stack."""

    layers: tuple[int, ...]
    embedding: bool = False
    head: bool = False
    mtp: tuple[int, ...] = ()

    @property
    def has_ends(self) -> bool:
        """Whether anything but layers is there: embedding, head or MTP layers."""
        return self.embedding or self.head or bool(self.mtp)


@dataclass(frozen=True)
class Again:
    """What the backward computes again: parts of every layer, or whole layers, the first `layers` of a stage.

    With `early_stop` a whole layer ends with what its last product reads: no gradient needs what that product gives.
    """

    parts: frozenset[str] = frozenset()
    full: bool = False
    layers: int | None = None
    early_stop: bool = False

    def whole(self, position: int) -> bool:
        """Whether the layer at this position of its stage is recomputed whole."""
        return self.full and (self.layers is None or position < self.layers)


@dataclass(frozen=True)
class Sharding:
    """ZeRO: what is sharded over data-parallel ranks, and how it travels.

    `level` is 0 to 3. From 3 on weights are gathered `prefetch` layers ahead in forwards, `prefetch_backward` in
    backwards, and dropped again if `reshard`; `each_microbatch` says whether gradients are reduced after each backward.
    `bucket` is elements of a gradient bucket, `overlap_grads` and `overlap_weights` whether buckets travel beside the
    last backward and the first forward. With `fused`, which is Horovod's way, a bucket waits for a tick of a
    coordinator, and is never larger than `bucket`. `by_tensor`: each layer's gradients go by themselves, a message of
    each tensor.
    """

    level: int = 1
    prefetch: int = 1
    prefetch_backward: int = 1
    reshard: bool = True
    each_microbatch: bool = True
    bucket: int = 40_000_000
    overlap_grads: bool = True
    overlap_weights: bool = True
    fused: bool = False
    by_tensor: bool = False

    @property
    def most_ahead(self) -> int:
        """Units whose weights are gathered ahead, at most."""
        return max(self.prefetch, self.prefetch_backward)

    def messages(self, parameters: int, tensors: int) -> int:
        """Into how many messages gradients that are ready together are cut, of so many tensors."""
        if self.by_tensor:
            return tensors
        if self.level >= 3:
            return 1
        whole, rest = divmod(parameters, self.bucket)
        return max(whole + (self.fused and rest > 0), 1)


@dataclass(frozen=True)
class Types:
    """Bytes of an element: weights as they are gathered, gradients as they travel, as kept, moments, master copy.

    `layers` are weights of layers, which may be held and gathered in 8 bits where those of embedding and head are not.
    """

    weights: float = 2
    reduced: float = 4
    gradients: float = 4
    moments: float = 4
    master: float = 4
    layers: float = 2

    @property
    def update_bytes(self) -> float:
        """What Adam reads and writes of a parameter: its gradient; both moments and the weight that is updated, twice;
        and the weight that is made of a master copy, once.
        """
        weight = 2 * self.master + self.layers if self.master else 2 * self.layers
        return self.gradients + 2 * 2 * self.moments + weight


@dataclass(frozen=True)
class TrainPlan:
    """One training step.

    `rank_share` is the share of a token's copies, one per expert, that the dispatcher sends; `remote_share` is the
    share of all copies that leave the node, where a token is sent there once; None where those sent do so. `tp_exposed`
    is the share of an overlapped tensor-parallel exchange that runs before or behind its products nevertheless.
    `offloaded` is the share of what layers keep that lies on the host, `offload_slots` how many layers of it are staged
    on the device in each direction. `shard_embedding` splits the rows of the token embedding over ranks that would else
    have copies (dp x cp). `replicas` are the places along dp whose ranks act alike and do what this plan says; None:
    all of them. `period` is after how many ranks machines and links repeat themselves; 0: never.
    """

    spec: ModelSpec
    dims: ParallelDims
    grid: Grid
    stages: tuple[Stage, ...]
    shard: Shard
    sharding: Sharding = Sharding()
    types: Types = Types()
    again: Again = Again()
    overlap_tp: bool = False
    tp_exposed: float = 1.0
    overlap_pp: bool = True
    hold_wgrad: bool = False
    rank_share: float = 1.0
    remote_share: float | None = None
    offloaded: float = 0.0
    offload_slots: int = 2
    offload_optimizer: bool = False
    shard_embedding: bool = False
    replicas: tuple[int, ...] | None = None
    period: int = 0

    def __hash__(self) -> int:
        """Computed once, as many values are kept by plan."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @property
    def lora(self) -> bool:
        """Whether only adapters are trained."""
        return self.shard.lora_rank > 0

    def layer(self, number: int) -> Layer:
        """The kernels of a layer; equal layers are one value."""
        return self._layers[number]

    def tensors(self, number: int, *, experts: bool) -> int:
        """Weights of a layer that learn, or of its experts: products by name, the steps of one on a grid together."""
        if number < 0:
            return 1
        learned = {k.name for k in self.layer(number).all if weight_gradient(k) and (k.kind == "experts") == experts}
        return len(learned) + (0 if experts or self.lora else self.spec.norms_per_layer)

    @cached_property
    def split(self) -> tuple[ModelSpec, int]:
        """A model, and over how many ranks each of its matrices is split; a rank of a grid has a block, whole."""
        side = self.shard.side
        return (self.spec, self.dims.tp) if side == 1 else (block(self.spec, side), 1)

    def parameters_of(self, number: int) -> Count:
        """The parameters of a layer on one rank."""
        return self._held[number]

    @cached_property
    def _layers(self) -> Mapping[int, Layer]:
        return self._alike(lambda number: layer(self.spec, number, self.shard))

    @cached_property
    def _held(self) -> Mapping[int, Count]:
        (spec, tp), dims = self.split, self.dims
        return self._alike(lambda number: layer_count(spec, number, tp=tp, ep=dims.ep, etp=dims.etp))

    def _alike(self, make: Callable[[int], _Of]) -> dict[int, _Of]:
        """Something of every layer, made once for those that are alike."""
        first = self.spec.first_alike
        kinds = {number: make(number) for number in dict.fromkeys(first)}
        return {number: kinds[alike] for number, alike in enumerate(first)}

    @cached_property
    def layer_key(self) -> tuple[object, ...]:
        """What the ops of layers depend on."""
        return (
            self.spec, self.shard, self.again, self.overlap_tp, self.tp_exposed, self.rank_share, self.remote_share,
            *(self.groups[axis] for axis in ("tp", "cp", "ep", "etp")),
        )  # fmt: skip

    def kind_of(self, number: int) -> tuple[object, ...]:
        """What sets a layer apart from others of the model; each MTP layer is one of its kind."""
        spec = self.spec
        return spec.kind(number), spec.window(number), max(number - spec.num_hidden_layers, -1)

    def make_by_stage(self, make: Callable[[int], _Of]) -> list[_Of]:
        """Something of every stage, made once for stages of equal layers and ends."""
        made: dict[object, _Of] = {}
        found = []
        for number, stage in enumerate(self.stages):
            layers = tuple([id(self.layer(layer)) for layer in stage.layers])
            key = layers, stage.embedding, stage.head, len(stage.mtp)
            if key not in made:
                made[key] = make(number)
            found.append(made[key])
        return found

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """The groups of the first rank of any pipeline rank, counted from it: in all they are the same."""
        first = self.first_rank(0)
        axes = ("tp", "cp", "ep", "etp", "dp_cp", "dp_shard", "dp_replicate", "edp")
        return {axis: tuple(rank - first for rank in self.dims.group(axis, first)) for axis in axes}

    def first_rank(self, pipeline_rank: int) -> int:
        """The rank that stands for all of its pipeline rank."""
        return self.dims.rank(pp=pipeline_rank, dp=self.replicas[0] if self.replicas else 0)

    def ranks_of(self, pipeline_rank: int) -> tuple[int, ...]:
        """All ranks of a pipeline rank, of these replicas."""
        column = self.dims.table("pp")[:, pipeline_rank]
        if self.replicas is not None:
            column = column[np.isin(self.dims.place("dp", column), self.replicas)]
        return tuple(column.tolist())

    @cached_property
    def is_mirrored(self) -> bool:
        """Whether stages lie on two ranks, one for each direction, as in DualPipe."""
        return any(self.grid.rank_of(0, mb) != self.grid.rank_of(0, 0) for mb in range(self.grid.microbatches))
