"""Checks of a training step: sizes that do not divide, mechanisms that exclude each other, machines without a profile,
and keys without effect for this model or on these machines.

The rules for dividing a model and its sequences are the same for scenarios and for recipes of other tools. Dependencies
between keys that do not depend on the model are in `keys`. A key that the file does not set is never an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isqrt
from typing import NamedTuple

from ...base.errors import Fault, UserError, fault
from ...base.units import format_seconds
from ...hardware import Cluster
from ...models import ModelSpec, total_params
from ...models.parts import Frozen, Inputs
from ...models.shard import ALL_LINEAR, PRODUCTS
from ...models.states import adapter_modules, adapter_params
from ...profile import without_profile
from ...program.parallel import ParallelDims
from ...schedules import SCHEDULES
from .routing import expert_islands
from .scenario import Experts, Freeze, Run, Tower, TrainScenario

_MOST_LAYERS = 1_000_000  # layers times micro-batches of a step: a Program of some 60 million ops
_MOST_BUCKETS = 1_000_000  # of a whole model's gradients: each is an op of every stage
_MOST_FAILURES = 20.0  # expected in one interval: a run then takes e^20 times as long


class Misfit(NamedTuple):
    """A key of a scenario with a value that does not fit, and what is allowed."""

    key: str
    value: object
    allowed: str


def as_trained(spec: ModelSpec, towers: Mapping[str, Tower], freeze: Freeze | None, where: str) -> ModelSpec:
    """The model with what its towers read and what is frozen, as the scenario says it.

    Raises:
        UserError: the model has no such towers or layers, or nothing is left to train.
    """
    made = _with_inputs(spec, towers, where)
    if freeze is None or freeze == Freeze():
        return made
    frozen = Frozen(_frozen_layers(freeze.layers, made, where), freeze.embedding, freeze.head)
    if made.tie_word_embeddings and freeze.embedding != freeze.head:
        allowed = f"{freeze.embedding}, as freeze.embedding is: the output matrix of {spec.name} is its embedding"
        raise UserError(fault(where, "freeze.head", freeze.head, allowed.lower()))
    whole = len(frozen.layers) == made.num_hidden_layers and freeze.embedding and freeze.head
    learns = any(tower.inputs and tower.inputs.is_trained(False) for tower in made.towers)
    if whole and not learns and not made.num_nextn_predict_layers:
        raise UserError(f"{where}: freeze: freezes all of {spec.name}; expected something that is trained")
    return replace(made, frozen=frozen)


def _frozen_layers(said: int | str, spec: ModelSpec, where: str) -> frozenset[int]:
    """The numbers of the layers that are frozen.

    Raises:
        UserError: the model has no such layers.
    """
    count = spec.num_hidden_layers
    if isinstance(said, int):
        if abs(said) > count:
            raise UserError(fault(where, "freeze.layers", said, f"at most the {count} of {spec.name}"))
        return frozenset(range(count)[:said])
    if said == "all":
        return frozenset(range(count))
    ends = [(int(first), int(last or (count - 1 if dash else first)))
            for first, dash, last in (part.partition("-") for part in said.split(","))]  # fmt: skip
    if any(not first <= last < count for first, last in ends):
        raise UserError(fault(where, "freeze.layers", said, f"of {spec.name}'s layers, 0 to {count - 1}"))
    return frozenset(layer for first, last in ends for layer in range(first, last + 1))


def _with_inputs(spec: ModelSpec, said: Mapping[str, Tower], where: str) -> ModelSpec:
    names = [tower.name for tower in spec.towers]
    allowed = f"{spec.name} has {' and '.join(names) if names else 'no towers'}"
    if faults := [fault(where, "towers", name, allowed) for name in said if name not in names]:
        raise UserError(*faults)
    without = [name for name, tower in said.items() if tower.inputs == 0]
    if without and spec.cross is not None:
        raise UserError(fault(where, f"towers.{without[0]}.inputs", 0, f"1 or more: {spec.name} attends to it"))
    own = [tower for tower in spec.towers if tower.name not in without]
    return replace(spec, towers=tuple(_reads(tower, said.get(tower.name, Tower())) for tower in own))


def _reads(tower: ModelSpec, said: Tower) -> ModelSpec:
    of = tower.inputs or Inputs(0)
    items, span = said.inputs or of.items, said.tokens or of.span
    frozen, both = said.frozen, said.frozen_projector
    return replace(tower, inputs=replace(of, items=items, span=span, frozen=frozen, projector_frozen=both))


def unfit_run(run: Run, gpus: int) -> Iterator[Misfit]:
    """Check that a run can make progress: a checkpoint and a restart must fit between two failures."""
    if run.gpu_mtbf is None:
        return
    mtbf_s = run.gpu_mtbf / gpus
    lost_s = (run.checkpoint or 0.0) + (run.restart or 0.0) + (run.interval or 0.0)
    if lost_s > _MOST_FAILURES * mtbf_s:
        text = f"one of {gpus:,} GPUs fails every {format_seconds(mtbf_s)}, but interval, checkpoint and restart"
        yield Misfit("run.gpu_mtbf", format_seconds(run.gpu_mtbf), f"{text} take {format_seconds(lost_s)}: no progress")


def indivisible(
    spec: ModelSpec, dims: ParallelDims, seq_len: int, *, sequence_parallel: bool = True, ulysses: bool = False
) -> Iterator[Misfit]:
    """The sizes of a model and its sequences that the axes do not divide; for tp only the first one."""
    designs = [design for stack in (spec, *spec.towers) for design in stack.designs]
    if wrong := next((line for design in designs for line in _tensor_parallel(design, dims.tp)), ""):
        yield Misfit("parallel.tp", dims.tp, wrong)
    elif ulysses and (spec.num_attention_heads // dims.tp) % dims.cp:
        heads = spec.num_attention_heads // dims.tp
        yield Misfit("parallel.cp", dims.cp, f"ulysses must divide the {heads} heads of a rank")
    if dims.cp > 1 and (reason := _unsplit_context(spec, dims)):
        yield Misfit("parallel.cp", dims.cp, reason)
    if (moe := spec.moe) is None and dims.ep > 1:
        yield Misfit("parallel.ep", dims.ep, f"{spec.name} has no experts: 1")
    if moe is not None and moe.n_routed_experts % dims.ep:
        yield Misfit("parallel.ep", dims.ep, f"must divide the {moe.n_routed_experts} experts")
    if moe is not None and (width := moe.moe_intermediate_size) % dims.etp and not (wrong and dims.etp == dims.tp):
        yield Misfit("parallel.etp", dims.etp, f"must divide the experts' width, {width}: by default tp")
    tp, cp = dims.tp if sequence_parallel and not wrong else 1, dims.cp
    if seq_len % (parts := tp * (2 * cp if cp > 1 else 1)):  # each cp rank has an early and a late part of a sequence
        sizes = " and ".join(f"{axis} = {size}" for axis, size in (("tp", tp), ("cp", cp)) if size > 1)
        yield Misfit("batch.seq_len", seq_len, f"must be a multiple of {parts} with {sizes}")


def _tensor_parallel(spec: ModelSpec, tp: int) -> Iterator[str]:
    if spec.num_attention_heads % tp:
        yield f"must divide the {spec.num_attention_heads} heads of {spec.name}"
    keys = spec.num_key_value_heads
    if not spec.mla and keys % tp and tp % keys:
        yield f"must divide, or be divided by, the {keys} key heads"
    if spec.compressed is not None and spec.compressed.o_groups % tp:
        yield f"must divide the {spec.compressed.o_groups} groups of heads that share a latent"
    if spec.linear_attention and spec.linear_attention.unsplit and tp > 1:
        yield f"1 for {spec.name}: {spec.linear_attention.unsplit}"
    for count, what in spec.linear_attention.split_units if spec.linear_attention else ():
        if count % tp:
            yield f"must divide the {count} {what}"
    if spec.has_dense_layers and spec.intermediate_size % tp:
        yield f"must divide the width of the feed-forward network, {spec.intermediate_size}"
    if spec.moe is not None and spec.moe.shared_intermediate_size % tp:
        yield f"must divide the width of shared experts, {spec.moe.shared_intermediate_size}"


def _unsplit_context(spec: ModelSpec, dims: ParallelDims) -> str:
    """Why context parallelism cannot split the layers that replace attention; empty if it can."""
    mixer = spec.linear_attention
    if spec.cross is not None:
        return f"1 for {spec.name}: attention to a tower is not split over cp"
    if mixer is not None and mixer.unsplit:
        return f"1 for {spec.name}: {mixer.unsplit}"
    if mixer is not None and mixer.swaps_heads and (heads := mixer.split_units[0][0] // dims.tp) % dims.cp:
        return f"must divide the {heads} heads of Mamba-2 on a rank"
    return ""


def unfit(scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims, where: str) -> Iterator[str]:
    """The errors of a scenario for this model and these axes, one line each."""
    given, batch = scenario.parallel, scenario.batch
    plain = replace(dims, tp=1) if given.tp_2d else dims  # 2-D tensor parallelism divides other sizes
    found = indivisible(
        spec, plain, batch.seq_len, sequence_parallel=given.sequence_parallel, ulysses=given.cp_type == "ulysses"
    )
    yield from (fault(where, *misfit) for misfit in found)
    yield from (fault(where, *misfit) for misfit in (*_texts(scenario, spec), *_inputs(spec, batch.seq_len)))
    if spec.moe is not None and dims.tp > 1 and not given.sequence_parallel:
        yield fault(where, "parallel.sequence_parallel", False, "experts with tp > 1 need true, as in Megatron")
    if scenario.lora is not None and scenario.lora.rank > spec.hidden_size:
        yield fault(where, "lora.rank", scenario.lora.rank, f"at most {spec.hidden_size}, the width of {spec.name}")
    if scenario.lora is not None and scenario.freeze is not None:
        yield f"{where}: freeze: goes without lora: where adapters are trained, all else is frozen"
    if isinstance(scenario.bucket, int) and scenario.bucket < (least := total_params(spec) // _MOST_BUCKETS):
        yield fault(where, "bucket", scenario.bucket, f"expected {least:,} elements or more for {spec.name}")
    yield from (fault(where, *misfit) for misfit in _mechanisms(scenario, spec, dims))


def _texts(scenario: TrainScenario, spec: ModelSpec) -> Iterator[Misfit]:
    """Documents for which attention is not priced, or that no sequence can hold."""
    if (said := scenario.batch.documents) is None:
        return
    if said.mean > scenario.batch.seq_len:
        yield Misfit("batch.documents.mean", said.mean, f"at most seq_len = {scenario.batch.seq_len}")
    reasons = {
        "attention = 'unfused' computes all pairs": scenario.attention == "unfused",
        f"{spec.name} attends to an encoder": spec.cross is not None,
        f"{spec.name} has compressed attention": spec.compressed is not None,
    }
    allowed = [why for why, holds in reasons.items() if holds]
    if allowed:
        yield Misfit("batch.documents", said.model_dump(exclude_none=True), f"none, as {allowed[0]}")


def _inputs(spec: ModelSpec, seq_len: int) -> Iterator[Misfit]:
    """Towers that give more tokens than a sequence has, or less than one for an input."""
    for tower in spec.towers:
        of, key = tower.inputs, f"towers.{tower.name}"
        if of is None or of.projector is None:
            continue
        each = of.span // of.projector.merge
        if not each:
            yield Misfit(f"{key}.tokens", of.span, f"{of.projector.merge} or more, which make one token")
        elif each * of.items > seq_len:
            most = f"at most {seq_len // each}" if each <= seq_len else f"0, or seq_len = {each} or more"
            allowed = f"{most}: each gives {each:,} of the {seq_len:,} tokens of a sequence"
            yield Misfit(f"{key}.inputs", of.items, allowed)


def unfit_batch(scenario: TrainScenario, layers: int, dp: int) -> Iterator[Misfit]:
    """Errors in the number of sequences, and of passes through a pipeline."""
    batch, passes = scenario.batch, scenario.schedule.passes
    each = batch.micro * dp
    if batch.global_ % each:
        near = " or ".join(f"{each * count:,}" for count in _counts_near(scenario, batch.global_ // each))
        allowed = f"must be a multiple of micro x dp = {batch.micro} x {dp} = {each}, such as {near}"
        yield Misfit("batch.global", batch.global_, allowed)
    elif (layers_run := batch.global_ // each * layers) > _MOST_LAYERS:
        allowed = f"{layers_run:,} layers run one after another; at most {_MOST_LAYERS:,}"
        yield Misfit("batch.global", batch.global_, allowed)
    elif batch.global_ // each % passes:
        allowed = f"a step of {batch.global_ // each} micro-batches has equal passes where this divides them"
        yield Misfit("schedule.passes", passes, allowed)


_FAR = 1000  # most micro-batches that are tried; of interleaved schedules, which fit least often, every pp-th fits


def _counts_near(scenario: TrainScenario, count: int) -> list[int]:
    """The micro-batches at or below `count`, and above it, that the schedule exists for; else `count` and the next."""
    far = min(4 * scenario.parallel.pp * scenario.schedule.passes, _FAR)
    ways = range(count, max(count - far, 0), -1), range(count + 1, count + far)
    near = [found for way in ways if (found := next((m for m in way if _has_schedule(scenario, m)), 0))]
    return near or [m for m in (count, count + 1) if m]


def _has_schedule(scenario: TrainScenario, microbatches: int) -> bool:
    """Whether the schedule by its name exists for so many micro-batches; a file and an unknown name are not checked."""
    said = scenario.schedule
    if said.file is not None or said.name not in SCHEDULES:
        return True
    if microbatches % said.passes:
        return False
    options = {} if said.group is None else {"group": said.group}
    try:
        SCHEDULES[said.name].check(said.name, scenario.parallel.pp, microbatches // said.passes, options)
    except ValueError:
        return False
    return True


def missing_profiles(machines: Cluster, scenario: TrainScenario) -> Iterator[Misfit]:
    """Devices without their own profile; the generic profile has no times of a step's kernels."""
    names = without_profile(node.device for node in machines.nodes)
    if names and scenario.profile is None:
        allowed = "no profile is made for it: say what it is `like`, or give one that you have measured as profile"
        yield Misfit("cluster.device", " and ".join(names), allowed)


def _mechanisms(scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims) -> Iterator[Misfit]:
    zero, each = scenario.parallel.zero, scenario.parallel.sync_each_microbatch
    if scenario.batch.split == "proportional" and zero >= 2 and (zero == 3 or each):
        allowed = "replicas meet in every micro-batch, so all have as many: zero = 0 or 1, or split = 'even'"
        yield Misfit("batch.split", "proportional", allowed)
    if scenario.overlap.fusion is not None:
        given = scenario.overlap.fusion.model_dump()
        yield from (Misfit("overlap.fusion", given, line) for line in _fusion(scenario))
    if scenario.parallel.shard_embedding:
        yield from (Misfit("parallel.shard_embedding", True, line) for line in _embedding(scenario, spec))
    if scenario.parallel.tp_2d:
        yield from (Misfit("parallel.tp_2d", True, line) for line in _grid(scenario, spec, dims))


def _fusion(scenario: TrainScenario) -> Iterator[str]:
    if scenario.bucket is not None:
        yield "its threshold takes the place of bucket: leave that out"
    if scenario.level != "kernels":
        yield "ticks lie between kernels: level = 'kernels'"


def _embedding(scenario: TrainScenario, spec: ModelSpec) -> Iterator[str]:
    if spec.tie_word_embeddings:
        yield f"the output matrix of {spec.name} is its embedding, and is read whole: not with tied embeddings"
    if scenario.parallel.zero == 3:
        yield "zero = 3 shards and gathers the embedding already: 0 to 2"
    if scenario.parallel.tp_2d:
        yield "tp_2d splits the embedding over its grid: one of the two"
    if scenario.schedule.name == "dualpipe":
        yield "in dualpipe each stage lies on two ranks, and so does the embedding: another schedule"


def _grid(scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims) -> Iterator[str]:
    given, batch, q = scenario.parallel, scenario.batch, isqrt(dims.tp)
    if q * q != dims.tp:
        yield f"tp = {dims.tp} is no square: such as {q * q} or {(q + 1) ** 2}"
        return
    if given.sequence_parallel and "sequence_parallel" in given.model_fields_set:
        yield "a grid splits tokens itself: sequence_parallel = false"
    kinds = {
        "experts": spec.moe, "latent attention": spec.mla, "layers without attention": spec.linear_attention,
        "compressed attention": spec.compressed, "several residual streams": spec.streams > 1,
        "embeddings of each layer's own": spec.per_layer_width, "layers that differ in size": spec.variants,
        "towers": spec.towers,
    }  # fmt: skip
    if held := [name for name, there in kinds.items() if there]:
        yield f"{spec.name} has {' and '.join(held)}: dense models with plain attention only"
    if dims.cp > 1 or scenario.lora is not None:
        yield "neither with cp above 1, nor with lora"
    sizes = {"hidden size": spec.hidden_size, "width of the network": spec.intermediate_size}
    for name, size in {**sizes, "heads": spec.num_attention_heads, "batch.micro": batch.micro}.items():
        if size % q:
            yield f"{name} = {size}: must be a multiple of the grid's side, {q}"
    keys = spec.num_key_value_heads
    if keys % q and q % keys:
        yield f"key heads = {keys}: must be a multiple of the grid's side, {q}, or divide it"


def misfits(scenario: TrainScenario, spec: ModelSpec, where: str) -> Iterator[str]:
    """Errors: keys without effect for this model, one line each."""
    if spec.moe is None and scenario.experts != Experts():
        why = f"{spec.name} has none"
        yield Fault(f"{where}: experts: {why}", "experts", scenario.experts, why)
    if spec.moe is None and scenario.parallel.etp is not None:
        yield fault(where, "parallel.etp", scenario.parallel.etp, f"goes with experts: {spec.name} has none")
    if scenario.recompute.mode == "selective":
        reasons = {module: no_such_part(spec, module) for module in scenario.recompute.modules}
        yield from (fault(where, "recompute.modules", module, why) for module, why in reasons.items() if why)
    yield from (fault(where, *misfit) for misfit in _kept_inputs(scenario, spec))
    yield from _check_adapters(scenario, spec, where)


def _check_adapters(scenario: TrainScenario, spec: ModelSpec, where: str) -> Iterator[str]:
    """Errors: adapters of GEMMs and modules that the model has not, or two of one GEMM; experts have none here."""
    lora = scenario.lora
    if lora is None:
        return
    total, words = adapter_params(spec, lora.rank, lora.targets), {*PRODUCTS, ALL_LINEAR}
    if not total and words.issuperset(lora.targets):
        allowed = f"no GEMM of {spec.name} that has one here; experts and state-space layers have none"
        yield fault(where, "lora.targets", list(lora.targets), allowed)
    if set(PRODUCTS).issuperset(lora.targets):
        return  # which have nothing in common
    sizes = {target: adapter_params(spec, lora.rank, (target,)) for target in lora.targets}
    for target in [target for target, size in sizes.items() if not size and target not in words]:
        modules = ", ".join(adapter_modules(spec)) or "none"
        allowed = f"expected {', '.join(PRODUCTS)}, {ALL_LINEAR}, or modules of {spec.name}: {modules}"
        yield fault(where, "lora.targets", target, allowed)
    if total != sum(sizes.values()):
        allowed = "expected each module once: alone, in its product, or in all-linear"
        yield fault(where, "lora.targets", list(lora.targets), allowed)


def machine_misfits(
    machines: Cluster, scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims, where: str
) -> Iterator[str]:
    """Errors: machines without a profile, and keys without effect on these machines. The axes must fit the machines."""
    yield from (fault(where, *misfit) for misfit in missing_profiles(machines, scenario))
    if scenario.parallel.shard_embedding and dims.size("dp_cp") == 1:
        yield fault(where, "parallel.shard_embedding", True, "goes with dp x cp above 1")
    most = scenario.experts.nodes_per_token
    if spec.moe is not None and most is not None and most > (nodes := expert_islands(dims, machines)):
        yield fault(where, "experts.nodes_per_token", most, f"at most {nodes}, over which ep = {dims.ep} lies")


def no_such_part(spec: ModelSpec, module: str) -> str:
    """The reason why a model lacks a module of recomputation; empty if it has the module."""
    moe = spec.moe
    missing = {
        "mla_up_proj": spec.mla is None and "latent attention",
        "moe": moe is None and "experts",
        "moe_act": moe is None and "experts",
        "shared_experts": (moe is None or not moe.shared_intermediate_size) and "shared experts",
        "mlp": not spec.has_dense_layers and "layers without experts",
    }
    return f"{spec.name} has no {what}" if (what := missing.get(module)) else ""


def _kept_inputs(scenario: TrainScenario, spec: ModelSpec) -> Iterator[Misfit]:
    """Keys for stored inputs of modules that the model does not have."""
    for module, stored in scenario.precision.activations.model_dump(exclude_none=True).items():
        key = f"precision.activations.{module}"
        if module in ("expert_fc1", "moe_act") and spec.moe is None:
            yield Misfit(key, stored, f"{spec.name} has no experts")
        if module == "mlp_act" and not spec.has_dense_layers:
            yield Misfit(key, stored, f"{spec.name} has no layers without experts")
