"""The parameters that the ranks of a stage hold, layer by layer, and the groups that reduce or shard them.

Dense parameters are replicated (or sharded) over data- and context-parallel ranks, parameters of experts over the ranks
that hold the same experts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple

from ....models.states import (
    Count,
    embedding_count,
    head_copies,
    head_count,
    sum_counts,
)
from .plan import Stage, TrainPlan

LANES = ("dp", "edp")
"""Lanes of a rank that carry gradients and new weights: for dense parameters, and for experts."""
AMONG_REPLICAS = "_replicate"
"""Behind a lane's name: the lane on which replicas of a shard add up gradients. FSDP 2 has a stream for that, so that
the next unit is reduced in the shard group meanwhile; Megatron-LM's buckets have one stream for both."""


def gradient_lanes(plan: TrainPlan) -> tuple[str, ...]:
    """The lanes of a rank that carry gradients."""
    apart = plan.sharding.level >= 3 and plan.dims.size("dp_replicate") > 1
    return (*LANES, *(lane + AMONG_REPLICAS for lane in LANES)) if apart else LANES


class Share(NamedTuple):
    """A number of parameters of a rank, and the ranks over which they are reduced.

    Ranks count from the first rank of the pipeline rank. `lane` carries the traffic.
    """

    parameters: int
    group: tuple[int, ...]
    replicas: tuple[int, ...]
    lane: str


def exchanges(share: Share, level: int, each: float) -> Iterator[tuple[str, str, tuple[int, ...], float]]:
    """The exchanges that sum gradients of `each` bytes: (kind, lane, group, bytes).

    Sharded gradients are reduce-scattered; replicas then all-reduce.
    """
    if len(share.group) > 1:
        yield ("reduce_scatter" if level else "all_reduce"), share.lane, share.group, share.parameters * each
    if len(share.replicas) > 1:
        lane = share.lane + AMONG_REPLICAS * (level >= 3)
        yield "all_reduce", lane, share.replicas, share.parameters * each / len(share.group)


class Unit(NamedTuple):
    """Parameters that are reduced and gathered together: all of them, and those that have gradients.

    `layer` is that of which they are; embedding and head belong to the layer next to them. A stage without layers has
    one unit, of layer -1.
    """

    layer: int
    held: Count
    learned: Count

    def join(self, held: Count, learns: bool) -> "Unit":
        """The unit with more parameters."""
        learned = sum_counts([self.learned, held]) if learns else self.learned
        return Unit(self.layer, sum_counts([self.held, held]), learned)


@dataclass(frozen=True)
class Holdings:
    """The parameters that the ranks of one pipeline rank hold."""

    plan: TrainPlan
    pipeline_rank: int

    @property
    def mirror(self) -> int | None:
        """The pipeline rank with the same stages, or None. In DualPipe two ranks hold a stage, one per direction."""
        return self.plan.dims.pp - 1 - self.pipeline_rank if self.plan.is_mirrored else None

    @property
    def leads(self) -> bool:
        """Whether this rank writes the exchanges of its stages; of two ranks with the same stages, the first does."""
        return self.mirror is None or self.pipeline_rank < self.mirror

    def layer(self, number: int) -> Count:
        """The parameters of a decoder layer; for an MTP layer, including the projection before it."""
        return self.plan.parameters_of(number)

    def units(self, stage: Stage) -> list[Unit]:
        """The units of a stage, in model order.

        MTP layers also look up tokens; on a stage without the embedding they need a copy of it.
        """
        plan, numbers = self.plan, [*stage.layers, *stage.mtp]
        found = [Unit(n, self.layer(n), plan.learned_of(n)) for n in numbers] or [Unit(-1, Count(0), Count(0))]
        spec, tp = plan.split
        if stage.embedding:
            found[0] = found[0].join(self.embedding, plan.trains_embedding)
        if self.copies_embedding(stage):
            at = numbers.index(stage.mtp[0])
            found[at] = found[at].join(self.embedding, plan.trains_embedding)
        if stage.head:
            own = head_count(spec, tp=tp, tied_here=any(other.embedding for other in self.stages))
            found[-1] = found[-1].join(own, plan.trains_head)
        return found

    @cached_property
    def embedding(self) -> Count:
        """The parameters of the embedding, on a rank that has it."""
        spec, tp = self.plan.split
        owners = self.plan.dims.size("dp_cp") if self.plan.shard_embedding else 1
        return embedding_count(spec, tp=tp, owners=owners)

    def copies_embedding(self, stage: Stage) -> bool:
        """Whether the MTP layers of a stage need a copy of the embedding; a tied output matrix already is one."""
        tied = stage.head and self.plan.spec.tie_word_embeddings
        return bool(stage.mtp) and not tied and not any(other.embedding for other in self.stages)

    @cached_property
    def stages(self) -> list[Stage]:
        """The stages of this pipeline rank."""
        return [self.plan.stages[stage] for stage in self.plan.grid.stages_of(self.pipeline_rank)]

    @cached_property
    def own(self) -> list[Unit]:
        """The units of all stages of this pipeline rank."""
        return [unit for stage in self.stages for unit in self.units(stage)]

    @cached_property
    def replicated(self) -> int:
        """Parameters whose gradients each tensor-parallel rank computes from its own tokens and then sums over tp.

        Without sequence parallelism these are norms of heads, which see a rank's own heads. As Megatron-LM's
        `_allreduce_non_tensor_model_parallel_grads`. 2-D tensor parallelism has other exchanges.
        """
        shard = self.plan.shard
        if self.plan.dims.tp == 1 or shard.side > 1 or self.plan.lora:
            return 0
        of_layers = sum(self.plan.copies_of(n) for stage in self.stages for n in (*stage.layers, *stage.mtp))
        heads = sum(stage.head for stage in self.stages) * shard.sequence_parallel * self.plan.trains_head
        return of_layers + heads * head_copies(self.plan.spec)

    def weight_bytes(self, number: int, share: Share) -> float:
        """Bytes of new weights of a share of a unit; embedding and head may have another type than the layer."""
        types = self.plan.types
        if self.plan.lora or number < 0:
            return share.parameters * types.weights
        own = self.plan.learned_of(number)
        of_layer = own.expert if share.lane == "edp" else own.dense
        return of_layer * types.layers + (share.parameters - of_layer) * types.weights

    def gathered_bytes(self, number: int, parameters: int, lane: str = "") -> float:
        """Bytes of parameters of a unit as they are gathered, packed ones so; all, or those of a lane."""
        types, packed = self.plan.types, self.plan.packed_of(number)
        of_lane = {"dp": packed.dense, "edp": packed.expert}.get(lane, sum(packed))
        return parameters * types.weights - of_lane * (types.weights - types.base)

    def shares(self, held: Count) -> list[Share]:
        """Dense and expert parameters, each with the groups over which they are reduced."""
        groups = self.plan.groups
        replicas = groups["dp_replicate"] if self.plan.dims.shard else (0,)
        found = [Share(held.dense, self._doubled(groups["dp_shard"]), replicas, "dp")]
        if held.expert:
            inside, across = self._expert_copies(groups["edp"])
            found.append(Share(held.expert, self._doubled(inside), across, "edp"))
        return [share for share in found if share.parameters and len(share.group) * len(share.replicas) > 1]

    def _expert_copies(self, group: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split the ranks that hold the same experts: (those in one copy of the model, one of each copy).

        If experts lie over more ranks than a copy of the model has, several copies hold them together.
        """
        copies = gcd(len(group), self.plan.dims.size("dp_replicate"))
        size = len(group) // copies
        return group[:size], group[::size]

    def _doubled(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """The group joined with that of the other rank that holds the same stages (DualPipe)."""
        if self.mirror is None:
            return group
        across = self.mirror - self.pipeline_rank
        stride = self.plan.dims.rank(pp=1)
        return tuple(sorted({*group, *(rank + across * stride for rank in group)}))
