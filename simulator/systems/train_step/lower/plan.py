"""The TrainPlan: everything that the Program of a training step depends on, as plain values with all names resolved.

`resolve` makes it from a scenario; the other files of this folder turn it into a Program.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np

from ....models import ModelSpec
from ....models.blocks import Layer, layer
from ....models.kernels import weight_gradient
from ....models.parts import Frozen
from ....models.shard import Shard, block
from ....models.states import (
    Count,
    adapter_count,
    head_norm_copies,
    layer_copies,
    layer_count,
    learned_count,
    packed_count,
)
from ....models.towers import output_elements, tower_shard
from ....program.parallel import ParallelDims
from ....schedules import Grid

_Of = TypeVar("_Of")


@dataclass(frozen=True)
class Stage:
    """The part of the model in one pipeline stage. MTP layers are numbered after the decoder layers."""

    layers: tuple[int, ...]
    embedding: bool = False
    head: bool = False
    mtp: tuple[int, ...] = ()

    @property
    def has_ends(self) -> bool:
        """Whether the stage has an embedding, a head or MTP layers."""
        return self.embedding or self.head or bool(self.mtp)


@dataclass(frozen=True)
class Again:
    """Recomputation: parts of every layer, or whole layers (the first `layers` of each stage).

    With `early_stop` a whole layer is recomputed only up to its last GEMM, whose output no gradient needs.
    """

    parts: frozenset[str] = frozenset()
    full: bool = False
    layers: int | None = None
    early_stop: bool = False

    def whole(self, position: int) -> bool:
        """Whether the layer at this position of its stage is recomputed as a whole."""
        return self.full and (self.layers is None or position < self.layers)

    @property
    def whole_mtp(self) -> bool:
        """Whether MTP layers are recomputed as a whole: where all layers are, and not only the first of each stage.

        Source: Megatron-LM, core/transformer/multi_token_prediction.py (`uniform` does, `block` does not).
        """
        return self.full and self.layers is None


@dataclass(frozen=True)
class Sharding:
    """ZeRO: what is sharded over data-parallel ranks, and how it is exchanged.

    `level` is 0 to 3. At level 3 weights are gathered `prefetch` layers ahead in forwards and `prefetch_backward` ahead
    in backwards, and dropped again if `reshard`. `each_microbatch`: gradients are reduced after each backward.
    `bucket` is the size of a gradient bucket in elements. `overlap_grads` and `overlap_weights`: buckets travel beside
    the last backward, and beside the first forward. `fused` (as Horovod): a bucket waits for a tick of a coordinator,
    and is never larger than `bucket`. `by_tensor`: each layer's gradients travel separately, one message per tensor.
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
        """The largest number of units whose weights are gathered ahead."""
        return max(self.prefetch, self.prefetch_backward)

    def messages(self, parameters: int, tensors: int) -> int:
        """The number of messages for gradients that are ready together: `parameters` elements in `tensors` tensors.

        An embedding or a head goes with the tensors of the layer next to it, or alone where that layer is frozen.
        """
        if self.by_tensor:
            return max(tensors, 1)
        if self.level >= 3:
            return 1
        whole, rest = divmod(parameters, self.bucket)
        return max(whole + (self.fused and rest > 0), 1)


@dataclass(frozen=True)
class Types:
    """Bytes per element: gathered weights, gradients in exchanges, kept gradients, moments, master copy.

    `layers` is for weights of layers, which may be kept and gathered in 8 bits, and `base` for frozen matrices of
    layers, which may be packed; embedding and head then are not.
    """

    weights: float = 2
    reduced: float = 4
    gradients: float = 4
    moments: float = 4
    master: float = 4
    layers: float = 2
    base: float = 2

    @property
    def update_bytes(self) -> float:
        """Bytes that Adam reads and writes per parameter.

        The gradient once; both moments and the updated weight twice; with a master copy, the new weight once.
        """
        weight = 2 * self.master + self.layers if self.master else 2 * self.layers
        return self.gradients + 2 * 2 * self.moments + weight


@dataclass(frozen=True)
class TrainPlan:
    """The plan of one training step.

    A token has one copy per expert: `rank_share` is the share of copies that the dispatcher sends. If it sends one copy
    per node, `remote_share` is the share of all copies that leave the node; otherwise None. `tp_exposed` is the share
    of an overlapped tensor-parallel exchange that runs before or after its GEMMs. `offloaded` is the share of the
    layers' activations that lies on the host, and `offload_slots` the number of layers staged on the device in each
    direction. `shard_embedding` splits the rows of the token embedding over dp x cp. `replicas` are the positions along
    dp of the replicas that this plan describes (None: all); their ranks act alike. `period` is the number of ranks
    after which machines and links repeat (0: never).
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
        """The hash, computed once because many values are cached by plan."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @property
    def lora(self) -> bool:
        """Whether only adapters are trained."""
        return self.shard.lora_rank > 0

    @property
    def trains_embedding(self) -> bool:
        """Whether the embedding has gradients."""
        return not self.lora and not self.spec.frozen.embedding

    @property
    def trains_head(self) -> bool:
        """Whether the output matrix and the last norm have gradients."""
        return not self.lora and not self.spec.frozen.head

    def layer(self, number: int) -> Layer:
        """The kernels of a layer; equal layers share one object."""
        return self._layers[number]

    def view(self, number: int) -> tuple[ModelSpec, Shard]:
        """The model as a layer has it, and a rank's share of the tokens that the layer computes."""
        return self._views[number]

    @cached_property
    def _views(self) -> Mapping[int, tuple[ModelSpec, Shard]]:
        def view(number: int) -> tuple[ModelSpec, Shard]:
            design = self.spec.of(self.spec.kind(number))
            return design, tower_shard(design, self.shard)

        return self._alike(view)

    @cached_property
    def output_bytes(self) -> tuple[int, ...]:
        """Bytes that a tensor-parallel rank sends behind each stage: what its last layer gives, and what towers gave.

        Each tensor-parallel rank sends its part, even of tensors that all of them hold (arXiv 2104.04473, section 4.1).
        """
        return tuple(sum(size for size, _ in sent) * self.shard.wide for sent in self._outputs)

    @cached_property
    def gradient_bytes(self) -> tuple[int, ...]:
        """Bytes that a tensor-parallel rank sends back over the end of each stage: 0 if nothing before is trained."""
        return tuple(sum(size for size, trained in sent if trained) * self.shard.wide for sent in self._outputs)

    @cached_property
    def _outputs(self) -> list[list[tuple[int, bool]]]:
        lasts = accumulate((stage.layers[-1] if stage.layers else -1 for stage in self.stages), max)
        return [self._output(max(last, 0)) for last in lasts]

    def _output(self, number: int) -> list[tuple[int, bool]]:
        """A rank's part of the states behind a layer, and of what towers gave that later ones read.

        Of each the number of elements, and whether something that is trained gave them.
        """
        (design, shard), kind, towers = self.view(number), self.spec.kind(number), self.spec.towers
        ended = towers[: kind.tower - 1 + kind.closes] if kind.tower else towers if self.spec.cross else ()
        sent = [
            (output_elements(tower, self.shard), tower.inputs is not None and tower.inputs.is_trained(self.lora))
            for tower in ended
        ]
        if not kind.closes:
            at_work = -(-shard.tokens // shard.tp) * design.hidden_size * design.streams
            sent.append((at_work, kind.passes and not _is_frozen(design)))
        if kind.tower:  # the embedding is on the first stage
            sent.append((-(-self.shard.tokens // self.shard.tp) * self.spec.hidden_size, self.trains_embedding))
        return sent

    def tensors(self, number: int, *, experts: bool) -> int:
        """The number of trainable weight tensors of a layer, or of its experts. Steps of a SUMMA GEMM count once."""
        if number < 0:
            return 1
        learned = {k.name for k in self.layer(number).all if weight_gradient(k) and (k.kind == "experts") == experts}
        norms = self.spec.norms_per_layer * self.spec.norm_weights
        return len(learned) + (0 if experts or self.lora or not self.spec.kind(number).learns else norms)

    @cached_property
    def split(self) -> tuple[ModelSpec, int]:
        """(model, number of ranks over which each matrix is split). In 2-D tensor parallelism: (a rank's block, 1)."""
        side = self.shard.side
        return (self.spec, self.dims.tp) if side == 1 else (block(self.spec, side), 1)

    def parameters_of(self, number: int) -> Count:
        """The parameters of a layer on one rank."""
        return self._held[number]

    def learned_of(self, number: int) -> Count:
        """The parameters of a layer on one rank that have gradients, or those of its adapters."""
        return self._learned[number] if self.freezes else self._held[number]

    def packed_of(self, number: int) -> Count:
        """The parameters of a layer on one rank that lie packed; none without a layer (-1)."""
        return self._packed[number] if self.shard.base and number >= 0 else Count(0)

    def copies_of(self, number: int) -> int:
        """The parameters of a layer that every rank of tp has, each with gradients of its own tokens or heads."""
        return self._copies[number]

    @cached_property
    def freezes(self) -> bool:
        """Whether any parameters have no gradients, so that what is trained is less than what is there."""
        return self.lora or self.spec.frozen != Frozen() or any(map(_is_frozen, self.spec.towers))

    @cached_property
    def _learned(self) -> Mapping[int, Count]:
        (spec, tp), dims, shard = self.split, self.dims, self.shard
        axes = {"ep": dims.ep, "etp": dims.etp}
        if not self.lora:
            return self._alike(lambda number: learned_count(spec, number, tp=tp, **axes))
        rank, adapted = shard.lora_rank, shard.adapted
        return self._alike(lambda number: adapter_count(self.spec, number, rank, adapted, tp=dims.tp, **axes))

    @cached_property
    def _packed(self) -> Mapping[int, Count]:
        return self._alike(lambda number: packed_count(self.layer(number), self.shard.base))

    @cached_property
    def _copies(self) -> Mapping[int, int]:
        if not self.shard.sequence_parallel:
            return self._alike(lambda number: head_norm_copies(self.spec, number))
        return self._alike(lambda number: layer_copies(self.spec, number, tp=self.dims.tp))

    @cached_property
    def _layers(self) -> Mapping[int, Layer]:
        return self._alike(lambda number: layer(self.spec, number, self.shard))

    @cached_property
    def _held(self) -> Mapping[int, Count]:
        (spec, tp), dims = self.split, self.dims
        return self._alike(lambda number: layer_count(spec, number, tp=tp, ep=dims.ep, etp=dims.etp))

    def _alike(self, make: Callable[[int], _Of]) -> dict[int, _Of]:
        """`make(layer)` for every layer, computed once for equal layers."""
        first = self.spec.first_alike
        kinds = {number: make(number) for number in dict.fromkeys(first)}
        return {number: kinds[alike] for number, alike in enumerate(first)}

    @cached_property
    def layer_key(self) -> tuple[object, ...]:
        """A key of everything that the ops of layers depend on."""
        return (
            self.spec, self.shard, self.again, self.overlap_tp, self.tp_exposed, self.rank_share, self.remote_share,
            *(self.groups[axis] for axis in ("tp", "cp", "ep", "etp")),
        )  # fmt: skip

    def kind_of(self, number: int) -> tuple[object, ...]:
        """A key that is equal for equal layers of the model; each MTP layer has its own."""
        spec = self.spec
        return spec.kind(number), spec.window(number), max(number - spec.n_layers, -1)

    def make_by_stage(self, make: Callable[[int], _Of]) -> list[_Of]:
        """`make(stage)` for every stage, computed once for stages of equal layers and ends."""
        made = {number: make(number) for number in dict.fromkeys(self._first_alike)}
        return [made[number] for number in self._first_alike]

    @cached_property
    def _first_alike(self) -> tuple[int, ...]:
        """For each stage the first one of equal layers and ends."""
        of_layer, first = self.spec.first_alike, dict[object, int]()
        keys = [
            (tuple([of_layer[layer] for layer in stage.layers]), stage.embedding, stage.head, len(stage.mtp))
            for stage in self.stages
        ]
        return tuple(first.setdefault(key, number) for number, key in enumerate(keys))

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """The groups of a pipeline rank's first rank, counted from it; they are equal for all pipeline ranks."""
        first = self.first_rank(0)
        axes = ("tp", "cp", "ep", "etp", "dp_cp", "dp_shard", "dp_replicate", "edp")
        return {axis: tuple(rank - first for rank in self.dims.group(axis, first)) for axis in axes}

    def first_rank(self, pipeline_rank: int) -> int:
        """The rank that represents a pipeline rank: its first one."""
        return self.dims.rank(pp=pipeline_rank, dp=self.replicas[0] if self.replicas else 0)

    def ranks_of(self, pipeline_rank: int) -> tuple[int, ...]:
        """All ranks of a pipeline rank in the replicas of this plan."""
        column = self.dims.table("pp")[:, pipeline_rank]
        if self.replicas is not None:
            column = column[np.isin(self.dims.place("dp", column), self.replicas)]
        return tuple(column.tolist())

    @cached_property
    def is_mirrored(self) -> bool:
        """Whether two ranks hold each stage, one for each direction, as in DualPipe."""
        return any(self.grid.rank_of(0, mb) != self.grid.rank_of(0, 0) for mb in range(self.grid.microbatches))


def _is_frozen(design: ModelSpec) -> bool:
    """Whether the layers of a tower have no gradients."""
    return design.inputs is not None and design.inputs.frozen
