"""What a rank is: its places along the axes of parallelism, its tokens, its units, the process groups of its lanes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ....simulator.base.errors import UserError
from ....simulator.models.parameters import Parameter
from ....simulator.models.parts import Frozen, Moe
from ....simulator.program import Program
from ....simulator.systems.train_step.lower import TrainPlan
from ....simulator.systems.train_step.resolve import ResolvedTrain
from .exchanges import GroupKey, Peers
from .kernels import ACTIVATIONS, Activation, Heads
from .reference import THETA
from .weights import EMBEDDING, NORMS, POSITIONS, Place, Unit, tables_of, units_of

_KERNELS = ("input_norm", "qkv", "qk_norm", "rope", "attention", "proj", "residual", "mlp_norm", "up", "activation",
            "down", "router", "topk", "permute", "sort", "experts", "unsort", "unpermute", "add_shared", "embed",
            "final_norm", "logits", "loss")  # fmt: skip
"""Kernels that are executed, by label."""


@dataclass(frozen=True, eq=False)
class RankView:
    """One rank of a resolved training step."""

    resolved: ResolvedTrain
    rank: int
    device: torch.device

    @property
    def program(self) -> Program:
        """The step, in which a place stands for all ranks of a pipeline rank."""
        return self.resolved.program

    @cached_property
    def peers(self) -> Peers:
        """Who takes part in what."""
        return Peers(self.program, self.plan)

    @property
    def plan(self) -> TrainPlan:
        """The plan of the step."""
        return self.resolved.plan

    @cached_property
    def place(self) -> int:
        """The place that stands for this rank."""
        return next(i for i, place in enumerate(self.program.places) if self.rank in place.ranks)

    @cached_property
    def at(self) -> Place:
        """The position among ranks that split parameters."""
        dims = self.plan.dims
        tp, ep, etp = (dims.group(axis, self.rank).index(self.rank) for axis in ("tp", "ep", "etp"))
        return Place(tp, dims.tp, ep, dims.ep, etp, dims.etp)

    @cached_property
    def stages(self) -> list[int]:
        """The stages of this rank, in model order."""
        return sorted(self.plan.grid.stages_of(self.place))

    @cached_property
    def units(self) -> Mapping[int, list[Unit]]:
        """The units of each stage of this rank."""
        stages = {number: self.plan.stages[number] for number in self.stages}
        tied_here = any(stage.embedding for stage in stages.values())
        return {number: units_of(self.plan, stage, self.at, tied_here) for number, stage in stages.items()}

    @cached_property
    def heads(self) -> Heads:
        """The attention of this rank."""
        spec, tp = self.plan.spec, self.plan.dims.tp
        return Heads(spec.num_attention_heads // tp, spec.num_key_value_heads // tp, spec.head_dim, THETA)

    def key(self, lane: str, *, replicas: bool = False) -> GroupKey:
        """The process group of a lane."""
        name = "fsdp" if lane.startswith("fsdp") else lane
        axis = lane.removeprefix("fsdp ") if lane.startswith("fsdp ") else lane
        return name, self.peers.group(axis, self.rank, replicas=replicas)

    @property
    def activation(self) -> Activation:
        """The activation of networks."""
        return ACTIVATIONS[self.plan.spec.hidden_act]

    def has(self, stage: int, layer: int, name: str) -> bool:
        """Whether a layer of a stage (-1: any unit of it) has a parameter or GEMM of this name."""
        units = [unit for unit in self.units[stage] if layer in (-1, unit.number)]
        return any(layout.has(name) for unit in units for layout in unit.layouts.values())

    @property
    def moe(self) -> Moe:
        """The mixture of experts."""
        moe = self.plan.spec.moe
        assert moe is not None
        return moe

    # Tokens

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch that the ranks of a tensor-parallel group compute together."""
        return int(self.plan.shard.tokens)

    @cached_property
    def batch(self) -> torch.Tensor:
        """All tokens of the step, of shape [sequences, length + 1]; the last one of each is only a target."""
        return batch_of(self.resolved).to(self.device)

    def sequences(self, microbatch: int) -> torch.Tensor:
        """The sequences of one of this rank's micro-batches."""
        micro, many = self.plan.shard.batch, self.plan.grid.microbatches
        dp = int(self.plan.dims.place("dp", np.array([self.rank]))[0])
        return self.batch[(dp * many + microbatch) * micro :][:micro]

    @cached_property
    def positions(self) -> torch.Tensor:
        """The places in a sequence of the tokens of this rank: with context parallelism from both ends."""
        return self.positions_at(self.plan.dims.group("cp", self.rank).index(self.rank))

    @cached_property
    def places(self) -> torch.Tensor:
        """The same of all tokens of a micro-batch, one sequence after another."""
        return self.positions.repeat(self.plan.shard.batch)

    def positions_at(self, place: int) -> torch.Tensor:
        """The same of the rank at a place among those that share its sequences."""
        length, cp = self.plan.shard.seq, self.plan.dims.cp
        whole = torch.arange(length, device=self.device)
        chunks = whole.chunk(2 * cp)
        return torch.cat((chunks[place], chunks[2 * cp - 1 - place])) if cp > 1 else whole

    def inputs(self, microbatch: int) -> torch.Tensor:
        """The tokens of a micro-batch on this rank, one sequence after another."""
        return self.sequences(microbatch)[:, self.positions].flatten()

    def targets(self, microbatch: int) -> torch.Tensor:
        """The token after each of them."""
        return self.sequences(microbatch)[:, self.positions + 1].flatten()


def batch_of(resolved: ResolvedTrain) -> torch.Tensor:
    """The tokens of a step, drawn from one seed for all: [sequences, length + 1]."""
    scenario, spec = resolved.scenario, resolved.plan.spec
    rng = np.random.default_rng(SEED)
    shape = scenario.batch.global_, scenario.batch.seq_len + 1
    return torch.from_numpy(rng.integers(0, spec.vocab_size, shape))


SEED = 2026
"""Of tokens and weights: one run is checked as well as any other."""


def check(resolved: ResolvedTrain) -> None:
    """Raise a UserError, one line per fault, for a step that can be simulated but not executed."""
    if faults := list(_faults(resolved)):
        raise UserError(*(f"{resolved.where}: {fault}" for fault in faults))


def _faults(resolved: ResolvedTrain) -> Iterator[str]:
    scenario, plan = resolved.scenario, resolved.plan
    spec, dims, parallel = plan.spec, plan.dims, scenario.parallel
    if scenario.level != "kernels":
        yield f"level = {scenario.level!r}: a step is executed kernel by kernel"
        return
    if scenario.precision.compute != "fp32":
        yield f"precision.compute = {scenario.precision.compute!r}: steps are executed in 'fp32'"
    labels = {name.split(" ")[0] for name in resolved.program.names}
    known = {f"{name}{way}" for name in _KERNELS for way in ("", "_dgrad", "_wgrad")}
    parameters = [each for table in tables_of(plan) for each in table]
    if unknown := sorted(labels - known - {*_OTHERS}):
        yield f"model: {', '.join(unknown[:5])}: executed are layers of Llama and of mixtures of experts"
    elif unlike := list(dict.fromkeys(each.name for each in parameters if not _is_known(each))):
        yield f"model: {', '.join(unlike[:5])}: executed are parameters of Llama, Qwen, Mixtral and GPT-2"
    if spec.hidden_act not in ACTIVATIONS:
        yield f"model: hidden_act = {spec.hidden_act!r}: is simulated only; executed are {', '.join(ACTIVATIONS)}"
    structure = {
        "positions": spec.positions not in ("rotary", "learned"), "parallel_residual": spec.parallel_residual,
        "norms without weights": not spec.norm_weights,
        "norms of heads": spec.qk_norm and spec.qk_norm_weights != "shared",
        "RMSNorm with a bias": spec.norm == "rms" and spec.norm_bias, "biases of some projections": not spec.key_bias,
        "experts without gates, or with gates in one matrix": bool(spec.moe) and _matrices_of_experts(parameters) != 3,
        "attention in chunks": spec.window_is_chunk,
    }  # fmt: skip
    yield from (f"model: {what}: is simulated only" for what, has in structure.items() if has)
    windows = any(0 < (spec.window(number) or 0) < plan.shard.seq for number in range(spec.n_layers))
    if windows and dims.cp > 1 and plan.shard.cp_type != "ulysses":
        yield "parallel.cp_type: attention to a window is executed with 'ulysses'"
    refused = {
        "batch.documents": scenario.batch.documents is not None,
        "experts.dispatcher": scenario.experts.dispatcher != "alltoall",
        "experts.routing": scenario.experts.routing != "balanced",
        "experts.capacity": scenario.experts.capacity is not None,
        "overlap.tp": plan.overlap_tp, "parallel.tp_2d": parallel.tp_2d, "overlap.fusion": plan.sharding.fused,
        "parallel.shard_embedding": plan.shard_embedding, "lora": plan.lora,
        "freeze": plan.spec.frozen != Frozen(),
        "attention": plan.shard.unfused, "bucket": plan.sharding.by_tensor and not plan.sharding.overlap_grads,
    }  # fmt: skip
    yield from (f"{key}: is simulated only" for key, asked in refused.items() if asked)
    if plan.replicas is not None:
        yield "cluster.mix: is simulated only: equal machines are executed"
    if spec.num_key_value_heads % dims.tp:
        yield f"parallel.tp = {dims.tp}: must divide the {spec.num_key_value_heads} heads of k and v"
    if spec.moe and dims.tp > 1 and not plan.shard.sequence_parallel:
        yield "parallel.sequence_parallel = false: experts are executed on tokens that are split over tp"
    if dims.cp > 1 and plan.shard.seq % (2 * dims.cp):
        yield f"batch.seq_len = {plan.shard.seq}: twice the {dims.cp} ranks of cp must divide it"
    if plan.shard.cp_type == "ulysses" and spec.num_key_value_heads % (dims.tp * dims.cp):
        yield f"parallel.cp = {dims.cp}: tp x cp must divide the {spec.num_key_value_heads} heads of k and v"
    if plan.shard.sequence_parallel and plan.shard.tokens % dims.tp:
        yield f"batch.seq_len = {scenario.batch.seq_len}: tp x cp must divide it"
    if spec.tie_word_embeddings and dims.pp > 1:
        yield "model: an embedding that is also the output matrix is executed without a pipeline"


_GEMMS = "qkv", "proj", "up", "down"
_NAMES = {name for names in NORMS.values() for name in names} | {EMBEDDING, POSITIONS}


def _is_known(parameter: Parameter) -> bool:
    gemms = (*_GEMMS, *(f"{gemm} bias" for gemm in _GEMMS), "router", "experts", "logits")
    return parameter.gemm in gemms or parameter.name.replace(".bias", ".weight") in _NAMES


def _matrices_of_experts(parameters: Sequence[Parameter]) -> int:
    """Different matrices of an expert."""
    return len({each.name for each in parameters if each.gemm == "experts"})


_OTHERS = ("tp", "cp", "etp", "dispatch", "combine", "combine_back", "dispatch_back", "issue", "forward", "backward",
           "gather", "reduce", "gradient", "agree", "optimizer", "replicated", "offload", "onload", "tied", "gradients",
           "weights")  # fmt: skip
