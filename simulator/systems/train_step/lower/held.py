"""What of the parameters the ranks of a stage hold, layer by layer, and the groups that share the rest.

Dense parameters are replicated (or sharded) over data- and context-parallel ranks, those of experts over the ranks that
hold the same experts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple

from ....models.states import Count, adapter_count, embedding_count, head_copies, head_count, layer_copies, sum_counts
from .plan import Stage, TrainPlan

LANES = ("dp", "edp")
"""Lanes of a rank that carry gradients and new weights: of dense parameters, and of experts."""


class Share(NamedTuple):
    """A number of parameters of a rank and the ranks that they are reduced over, counted from the first one of its
    pipeline rank; `lane` carries their traffic.
    """

    parameters: int
    group: tuple[int, ...]
    replicas: tuple[int, ...]
    lane: str


def exchanges(share: Share, level: int, each: float) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """What sums gradients of `each` bytes up: (kind, group, bytes); scattered where sharded, then over replicas."""
    if len(share.group) > 1:
        yield ("reduce_scatter" if level else "all_reduce"), share.group, share.parameters * each
    if len(share.replicas) > 1:
        yield "all_reduce", share.replicas, share.parameters * each / len(share.group)


@dataclass(frozen=True)
class Holdings:
    """What the ranks of one pipeline rank hold."""

    plan: TrainPlan
    pipeline_rank: int

    @property
    def mirror(self) -> int | None:
        """The pipeline rank that holds the same stages: in DualPipe a stage lies on two, one for each direction."""
        return self.plan.dims.pp - 1 - self.pipeline_rank if self.plan.is_mirrored else None

    @property
    def leads(self) -> bool:
        """Whether exchanges of gradients and weights are this rank's to write: of two that hold the same, the first."""
        return self.mirror is None or self.pipeline_rank < self.mirror

    def layer(self, number: int) -> Count:
        """A decoder layer, MTP layers with what they have before it."""
        return self.plan.parameters_of(number)

    def units(self, stage: Stage) -> list[tuple[int, Count]]:
        """What is reduced and gathered together: (layer, parameters), embedding and head with the layer next to them.

        MTP layers look tokens up too, in a copy where the embedding is not. A stage without layers has one unit, -1.
        """
        numbers = [*stage.layers, *stage.mtp]
        found = [(number, self.layer(number)) for number in numbers] or [(-1, Count(0))]
        spec, tp = self.plan.split
        if stage.embedding:
            found[0] = (found[0][0], sum_counts([found[0][1], self.embedding]))
        if self.copies_embedding(stage):
            at = numbers.index(stage.mtp[0])
            found[at] = (found[at][0], sum_counts([found[at][1], self.embedding]))
        if stage.head:
            own = head_count(spec, tp=tp, tied_here=any(other.embedding for other in self.stages))
            found[-1] = (found[-1][0], sum_counts([found[-1][1], own]))
        return found

    @cached_property
    def embedding(self) -> Count:
        """The embedding, on a rank that has it."""
        spec, tp = self.plan.split
        owners = self.plan.dims.size("dp_cp") if self.plan.shard_embedding else 1
        return embedding_count(spec, tp=tp, owners=owners)

    def copies_embedding(self, stage: Stage) -> bool:
        """Whether MTP layers of a stage need a copy: a tied output matrix is one already."""
        tied = stage.head and self.plan.spec.tie_word_embeddings
        return bool(stage.mtp) and not tied and not any(other.embedding for other in self.stages)

    @cached_property
    def stages(self) -> list[Stage]:
        """The stages of this pipeline rank."""
        return [self.plan.stages[stage] for stage in self.plan.grid.stages_of(self.pipeline_rank)]

    @cached_property
    def own(self) -> list[tuple[int, Count]]:
        """The units of all of them."""
        return [unit for stage in self.stages for unit in self.units(stage)]

    def gradients(self, number: int, held: Count) -> Count:
        """What of a unit has gradients."""
        shard, (tp, ep, etp) = self.plan.shard, (self.plan.dims.tp, self.plan.dims.ep, self.plan.dims.etp)
        if not self.plan.lora:
            return held
        if number < 0:
            return Count(0)
        return adapter_count(self.plan.spec, number, shard.lora_rank, shard.adapted, tp=tp, ep=ep, etp=etp)

    @cached_property
    def replicated(self) -> int:
        """What the ranks of a tensor-parallel group learn apart, each from its own tokens, and add up over tp.

        Megatron-LM's `_allreduce_non_tensor_model_parallel_grads`. A grid of ranks has exchanges of its own.
        """
        shard, spec, tp = self.plan.shard, self.plan.spec, self.plan.dims.tp
        if tp == 1 or not shard.sequence_parallel or shard.side > 1 or self.plan.lora:
            return 0
        numbers = [number for stage in self.stages for number in (*stage.layers, *stage.mtp)]
        norms = sum(stage.head for stage in self.stages) * head_copies(spec)
        return norms + sum(layer_copies(spec, number, tp=tp) for number in numbers)

    def weight_bytes(self, number: int, share: Share) -> float:
        """Bytes of the weights of a share of a unit, embedding and head apart from its layer."""
        types = self.plan.types
        if self.plan.lora or number < 0:
            return share.parameters * types.weights
        own = self.layer(number)
        of_layer = own.expert if share.lane == "edp" else own.dense
        return of_layer * types.layers + (share.parameters - of_layer) * types.weights

    def shares(self, held: Count) -> list[Share]:
        """Dense and expert parameters with the groups that they are reduced over."""
        groups = self.plan.groups
        replicas = groups["dp_replicate"] if self.plan.dims.shard else (0,)
        found = [Share(held.dense, self._doubled(groups["dp_shard"]), replicas, "dp")]
        if held.expert:
            inside, across = self._expert_copies(groups["edp"])
            found.append(Share(held.expert, self._doubled(inside), across, "edp"))
        return [share for share in found if share.parameters and len(share.group) * len(share.replicas) > 1]

    def _expert_copies(self, group: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the ranks that hold the first one's experts, those in its copy of the model, and those that stand for it
        in other copies. Where experts lie over more ranks than a copy has, some copies have them together.
        """
        copies = gcd(len(group), self.plan.dims.size("dp_replicate"))
        size = len(group) // copies
        return group[:size], group[::size]

    def _doubled(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """Gradients of all that hold a stage belong together."""
        if self.mirror is None:
            return group
        across = self.mirror - self.pipeline_rank
        stride = self.plan.dims.rank(pp=1)
        return tuple(sorted({*group, *(rank + across * stride for rank in group)}))
