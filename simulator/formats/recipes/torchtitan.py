"""From a torchtitan config (Python, TOML or JSON), or a plain table of FSDP settings, to a scenario.

torchtitan's mesh has pp farthest, then dp_replicate, dp_shard, cp and tp: runcast's default order.
"""

import re
from collections.abc import Mapping
from typing import Any

from ...base.errors import did_you_mean
from ...models import ModelSpec, from_hf_config, preset, preset_names
from ...program.parallel import ParallelDims
from ...systems.train_step.checks import indivisible
from .arguments import Arguments, Machine, loose
from .hugging_face import find_model
from .model_names import preset_of
from .shapes import Shape
from .torchtitan_registry import Registry, flavor_preset
from .training import FSDP_STRATEGIES

SCHEDULES = {
    "1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}  # fmt: skip
_VARIANT = re.compile(r"_((non_)?fused_qkv|(flex|varlen)(_attn)?)$")
"""What a flavor's name says of its kernels."""
TWO_CHUNKS = ("interleaved", "zb-v", "dualpipe-v")
_COMPILED = ("model", "loss")  # components of torchtitan's [compile]
_DEFAULTS = {
    "local_batch_size": 8, "seq_len": 2048, "activation_checkpoint.mode": "selective", "selective_ac_option": "2",
}  # fmt: skip
"""Of torchtitan 0.2's job_config.py."""
_SECTIONS = ("job", "model", "model_spec", "training", "parallelism")
TYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
_KEYS = {
    "parallel.tp": "tensor_parallel_degree",
    "parallel.ep": "expert_parallel_degree",
    "parallel.etp": "expert_tensor_parallel_degree",
    "batch.seq_len": "seq_len",
}
MARKS = re.compile(
    r"(data_parallel|tensor_parallel|pipeline_parallel|context_parallel|expert_parallel)_(shard_|replicate_)?"
    r"(degree|schedule)|local_batch_size|(fsdp_)?(sharding_strategy|reshard_after_forward)|fsdp_version"
    r"|model\.flavor|training\.(seq_len|steps)"
)
"""Keys by which a config is known as torchtitan's."""


def read_torchtitan(
    args: Arguments, machine: Machine, registry: Registry | None = None, stated: str | None = None
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """The table of the scenario that the keys of a config write, and the model's config where it is no preset.

    `registry` is where the keys come from, if they are of a Python file; `stated` is the model of `--model`. Faults are
    noted or raised.
    """
    if registry is not None or args.has_section("model_spec"):
        _imply_class(args)
    shape = find_model(args, "model.name", stated) if stated else _model(args, registry)
    spec = shape.spec
    tp, cp, pp = (args.whole(f"{axis}_parallel_degree") for axis in ("tensor", "context", "pipeline"))
    shard, replicate = _data_parallel(args, machine, tp, cp, pp)
    sharded = _sharding(args, machine, shard, replicate, cp, pp)
    parallel = {"tp": tp, "cp": cp, "pp": pp} | sharded | _experts(args, spec, tp, cp, shard)
    if cp > 1:
        rotate = args.choice("context_parallel_rotate_method", "allgather", ("allgather", "alltoall"))
        parallel["cp_type"] = {"allgather": "all_gather", "alltoall": "ring"}[rotate]
    counts = _split(args, spec) if pp > 1 else ()
    schedule, batch = _schedule(args, spec, pp, len(counts)), _batch(args, shard * replicate, pp)
    if pp > 1:
        schedule |= _passes(args, batch, shard * replicate)
        parallel |= {"layers": counts} if counts else _split_evenly(args, spec, _stages(schedule, pp))
    if not (sequence_parallel := _splits_sequences(args, spec, tp)):
        parallel["sequence_parallel"] = False
    table = {
        "model": dict(shape.model),
        "parallel": parallel,
        "schedule": schedule,
        "batch": batch,
        "precision": _precision(args, parallel, spec),
        "recompute": _recompute(args, spec, schedule, pp),
        "overlap": {"tp": True} if _has_async_tp(args) and tp > 1 else {},
        "experts": _dispatcher(args, parallel),
        **_software(args),
    }
    if any("lora" in name for name in args.texts("converters")):
        table["lora"] = {"rank": args.whole("rank", 8)}
    args.check()
    dims = ParallelDims(tp=tp, cp=cp, ep=parallel.get("ep", 1), etp=parallel.get("etp", tp))
    misfits = indivisible(spec, dims, batch["seq_len"], sequence_parallel=sequence_parallel)
    for misfit in misfits:  # what a scenario would refuse
        args.fault(_KEYS[misfit.key], misfit.allowed, misfit.value)
    if spec.moe:
        args.assumed.append("experts.routing = balanced: each expert gets as many tokens")
    return table, shape.config


def _is_plain(args: Arguments) -> bool:
    """Whether it is a plain table of FSDP settings, which has no section of torchtitan's and none of its defaults."""
    return not any(map(args.has_section, _SECTIONS))


def _fill(args: Arguments, name: str) -> None:
    """Give a key that is missing torchtitan's default, with a line that says so."""
    if not args.has(name):
        args.imply(name, _DEFAULTS[name])
        args.assumed.append(f"{name} = {_DEFAULTS[name]}: torchtitan's default")


def _has_async_tp(args: Arguments) -> bool:
    """Whether exchanges of tp overlap with products, as a compiler has it (torchtitan 0.2, maybe_enable_async_tp)."""
    key = "enable_async_tensor_parallel"
    on = args.switch(key)
    if on and not _is_plain(args) and not _compiles_layers(args):
        args.fault(key, "expected false, or compile.enable = true with model among compile.components")
    return on


def _compiles_layers(args: Arguments) -> bool:
    return args.switch("compile.enable") and "model" in (args.texts("compile.components") or _COMPILED)


def _software(args: Arguments) -> dict[str, str]:
    """Compiled layers or eager PyTorch, and the loss in one kernel where that is compiled, too."""
    on = args.switch("compile.enable")
    parts = (args.texts("compile.components") or _COMPILED) if on else ()
    stack = "torchtitan" if "model" in parts else "pytorch-fsdp"
    why = "layers are compiled" if "model" in parts else "eager PyTorch, as no layer is compiled"
    args.assumed.append(f"stack = {stack}: {why}")
    return {"stack": stack, "loss": "fused" if "loss" in parts else "passes"}


def _model(args: Arguments, registry: Registry | None) -> Shape:
    """The preset of a family's flavor, or of the assets' name, or the sizes in a registry; faults are raised."""
    args.check_readable()
    name, flavor = args.text("model.name"), args.text("model.flavor")
    if not name + flavor:
        args.note_missing("model.name", 'a model, such as "llama3" of flavor "8B"')
    args.check()
    plain = _VARIANT.sub("", flavor)
    known = {loose(known): known for known in preset_names()}
    called = known.get(loose(name + plain))
    found = called or flavor_preset(name, plain)
    if found is None and (config := registry.sizes(flavor) if registry else None):
        args.assumed.append(f"model: {name} {flavor} has the sizes of its table of flavors")
        return Shape(from_hf_config(config, args.where), {}, config)
    found = found or preset_of(args.hint("hf_model")) or preset_of(args.hint("hf_assets_path"))
    if found is None:
        wanted = f"{name}-{flavor}".strip("-")
        near = did_you_mean(wanted, list(known.values())) or f"no preset has the name {wanted}"
        where = "" if registry is None else "; give its config.json with --model"
        args.fault("model.flavor" if flavor else "model.name", near + where)
        args.check()
    assert found is not None
    if found != called:
        args.assumed.append(f"model.preset = {found}: the shape of that flavor")
    spec = preset(found)
    return Shape(spec, {"preset": found} | ({"mtp": False} if spec.num_nextn_predict_layers else {}), None)


def _data_parallel(args: Arguments, machine: Machine, tp: int, cp: int, pp: int) -> tuple[int, int]:
    """dp_shard and dp_replicate; -1 is what the other axes leave."""
    replicate = args.whole("data_parallel_replicate_degree")
    shard = args.whole("data_parallel_shard_degree", -1, minimum=-1)
    fixed = tp * cp * pp * replicate
    if shard == -1 and machine.gpus % fixed == 0:
        return machine.gpus // fixed, replicate
    if shard <= 0 or fixed * shard != machine.gpus:
        product = f"tp {tp} x cp {cp} x pp {pp} x dp_replicate {replicate}"
        fits = f"so {machine.gpus // fixed}" if machine.gpus % fixed == 0 else f"which {fixed} does not divide"
        args.fault("data_parallel_shard_degree", f"{product} x dp_shard must be {machine}, {fits}", shard)
        args.check()
    return shard, replicate


def _sharding(args: Arguments, machine: Machine, shard: int, replicate: int, cp: int, pp: int) -> dict[str, Any]:
    zero, reshard, per_node = FSDP_STRATEGIES[args.choice("sharding_strategy", "FULL_SHARD", FSDP_STRATEGIES)]
    if shard * cp == 1 or zero == 0:
        return {"zero": 0}
    policy = args.choice("fsdp_reshard_after_forward", "default", ("default", "always", "never", "true", "false"))
    # torchtitan's default keeps weights between the micro-batches of a pipeline
    reshard = reshard and pp == 1 if policy == "default" else policy in ("always", "true")
    found: dict[str, Any] = {"zero": zero, "reshard": reshard}
    if per_node and shard % machine.gpus_per_node == 0:
        found["shard"] = machine.gpus_per_node
    elif replicate > 1:
        found["shard"] = shard * cp
    if pp > 1 or args.switch("fsdp_defer_gradient_reduction"):
        found["sync_each_microbatch"] = False  # gradients are reduced behind the last micro-batch
    return found


def _experts(args: Arguments, spec: ModelSpec, tp: int, cp: int, shard: int) -> dict[str, Any]:
    """ep and etp; without ep experts are split over tp as all else (torchtitan 0.2, llama4's apply_moe_ep_tp)."""
    own = "expert_tensor_parallel_degree"
    ep, etp = args.whole("expert_parallel_degree"), args.whole(own)
    if etp not in (1, tp):
        args.fault(own, f"expected 1 or tp = {tp}", etp)
    if ep > 1 and spec.moe is None:
        args.fault("expert_parallel_degree", f"{spec.name} has no experts", ep)
    elif ep > 1 and tp * cp * shard % (ep * etp):
        allowed = f"x etp {etp} must divide tp {tp} x cp {cp} x dp_shard {shard} = {tp * cp * shard}"
        args.fault("expert_parallel_degree", allowed, ep)
    if ep == 1:
        if args.has(own) and etp != tp:
            args.assumed.append(f"{args.spelling(own)} = {etp} has no effect without expert_parallel_degree")
        return {}
    return {"ep": ep} | ({"etp": etp} if etp != tp else {})


def _dispatcher(args: Arguments, parallel: Mapping[str, Any]) -> dict[str, Any]:
    backends = ("standard", "deepep", "hybridep", "minimal_async_ep")
    if args.choice("expert_parallel_comm_backend", "standard", backends) == "standard" or parallel.get("ep", 1) == 1:
        return {}
    return {"dispatcher": "deepep"}


def _split(args: Arguments, spec: ModelSpec) -> tuple[int, ...]:
    """Layers of each stage where the modules of all are listed; nothing where they go evenly."""
    name = "module_fqns_per_model_part"
    counts = tuple(sum("layers." in module for module in part) for part in args.lists(name))
    if counts and sum(counts) != spec.num_hidden_layers:
        args.fault(name, f"expected the {spec.num_hidden_layers} layers of {spec.name}", sum(counts))
    return counts


def _ends(args: Arguments) -> tuple[int, int]:
    """As how many layers the embedding and the head count where stages are split evenly."""
    first, last = (args.whole(f"pipeline_parallel_{end}_stage_less_layers", minimum=0) for end in ("first", "last"))
    return first, last


def _split_evenly(args: Arguments, spec: ModelSpec, stages: int) -> dict[str, Any]:
    """Layers of each stage, the first ones with one more (torchtitan 0.2, generate_llm_fqn_per_model_part)."""
    first, last = _ends(args)
    if (first, last) == (1, 1):
        return {"embedding_as_layer": True}
    each, more = divmod(spec.num_hidden_layers + first + last, stages)
    counts = [each + (stage < more) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    if min(counts) < 1:
        key = "pipeline_parallel_first_stage_less_layers"
        args.fault(key, f"leaves a stage without layers: {', '.join(map(str, counts))}", first)
    return {"layers": tuple(counts)} if len(set(counts)) > 1 else {}


def _splits_sequences(args: Arguments, spec: ModelSpec, tp: int) -> bool:
    """Whether ranks of tp split sequences between their products."""
    key = "enable_sequence_parallel"
    splits = args.switch(key, True) or tp == 1
    if not splits and spec.moe:
        args.fault(key, "experts are not modelled without sequence parallelism")
    return splits


def _stages(schedule: Mapping[str, Any], pp: int) -> int:
    """Stages of a pipeline."""
    return int(pp * schedule.get("vpp", 2 if schedule.get("name") in TWO_CHUNKS else 1))


def _schedule(args: Arguments, spec: ModelSpec, pp: int, listed: int) -> dict[str, Any]:
    """The table `schedule`; `listed` stages are those of which the file lists modules."""
    name = SCHEDULES[args.choice("pipeline_parallel_schedule", "1F1B", SCHEDULES)]
    if pp == 1:
        return {}
    units = spec.num_hidden_layers + sum(_ends(args))
    each = args.optional("pipeline_parallel_layers_per_stage")
    stages = listed or (-(-units // each) if each else pp * (2 if name in TWO_CHUNKS else 1))
    chunks = stages // pp
    has = f"per rank; the layers per stage make {chunks}"
    if stages % pp:
        allowed = f"makes {stages} stages of {units} layers, with embedding and head; pp = {pp} must divide them"
        args.fault("pipeline_parallel_layers_per_stage", allowed)
    elif chunks != 2 and name in TWO_CHUNKS[1:]:
        args.fault("pipeline_parallel_schedule", f"has 2 stages {has}")
    elif name not in TWO_CHUNKS and chunks > 1:
        args.fault("pipeline_parallel_schedule", f"has one stage {has}")
    elif name == "interleaved" and chunks == 1:
        args.fault("pipeline_parallel_schedule", f"has more than one stage {has}")
    return {"name": name, "vpp": chunks} if name == "interleaved" else {"name": name}


def _batch(args: Arguments, dp: int, pp: int) -> dict[str, Any]:
    """A rank's batch is one micro-batch, or with a pipeline as many as its micro-batches' size makes of it."""
    _fill(args, "seq_len")
    seq_len = args.whole("seq_len")
    if args.has("num_tokens_per_microbatch_per_dp_rank"):
        return _batch_of_tokens(args, seq_len, dp, pp)
    if not _is_plain(args):
        _fill(args, "local_batch_size")
    local = args.whole("local_batch_size")
    written = args.whole("global_batch_size", -1, minimum=-1)
    total = written if written > 0 else local * dp * args.whole("gradient_accumulation_steps")
    micro = args.whole("pipeline_parallel_microbatch_size") if pp > 1 else local
    if total % (local * dp):
        args.fault("global_batch_size", f"local {local} x dp {dp} = {local * dp} must divide it", total)
    elif local % micro:
        args.fault("pipeline_parallel_microbatch_size", f"must divide the local batch of {local}", micro)
    return {"global": total, "micro": micro, "seq_len": seq_len}


def _batch_of_tokens(args: Arguments, seq_len: int, dp: int, pp: int) -> dict[str, Any]:
    """A batch that is given in tokens, as releases since the middle of 2026 do."""
    key, whole = "num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step"
    tokens, written = args.whole(key), args.whole(whole, -1, minimum=-1)
    micro = max(tokens // seq_len, 1)
    if tokens % seq_len:
        args.fault(key, f"must be a multiple of the {seq_len} tokens of a sequence")
    share = micro * dp * (args.whole("num_pp_microbatches") if pp > 1 else 1)
    total = written // seq_len if written > 0 else share
    if written > 0 and (written % seq_len or total % share):
        args.fault(whole, f"must be a multiple of the {share * seq_len} tokens that go through all ranks at once")
    return {"global": max(total, 1), "micro": micro, "seq_len": seq_len}


def _converters(args: Arguments, spec: ModelSpec) -> list[str]:
    """Names of what converts products, but for those of experts alone (quantize.grouped_mm), which are noted."""
    names = args.texts("converters")
    grouped = [name for name in names if "grouped" in name]
    if spec.moe:
        args.not_modelled += [f"converters = {name}: all GEMMs of a layer compute in one type" for name in grouped]
    else:
        args.assumed += [f"converters = {name} has no effect: {spec.name} has no experts" for name in grouped]
    return [name for name in names if name not in grouped]


def _passes(args: Arguments, batch: Mapping[str, Any], dp: int) -> dict[str, int]:
    """How often a step fills and empties the pipeline, if more than once.

    torchtitan does so for each local batch whose gradients add up (0.2, train.py: forward_backward_step).
    """
    tokens = "num_tokens_per_microbatch_per_dp_rank"
    at_once = batch["micro"] * args.whole("num_pp_microbatches") if args.has(tokens) else args.whole("local_batch_size")
    passes = batch["global"] // (dp * max(at_once, 1))
    return {"passes": passes} if passes > 1 else {}


def _precision(args: Arguments, parallel: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """Types; gradients that wait for the last micro-batch have the type in which they travel."""
    param = args.choice("mixed_precision_param", "bfloat16", TYPES)
    reduce = TYPES[args.choice("mixed_precision_reduce", "float32", ("float32", "bfloat16"))]
    own = args.choice("training.dtype", "float32", ("float32", "bfloat16"))
    found: dict[str, Any] = {"compute": TYPES[param]}
    converters = _converters(args, spec)
    if any("float8" in name for name in converters):
        found["compute"] = "fp8"
    elif any(name.split(".")[-1].startswith("mx") for name in converters):
        found["compute"] = "mxfp8"
    elif any("nvfp4" in name for name in converters):
        found["compute"] = "nvfp4"
    if own == "bfloat16":  # the sharded weights themselves, hence gradients and moments
        return found | {"gradients": "bf16", "moments": "bf16", "master": False, "reduce": reduce}
    waiting = parallel.get("sync_each_microbatch") is False and TYPES[param] != "fp32"
    types = {"reduce": "bf16"} | ({"gradients": "bf16"} if waiting else {})
    return found | (types if reduce == "bf16" else {})


def _recompute(args: Arguments, spec: ModelSpec, schedule: Mapping[str, Any], pp: int) -> dict[str, Any]:
    mode = _mode(args)
    stops = {"early_stop": True} if args.switch("activation_checkpoint.early_stop") else {}
    if mode == "full":
        return {"mode": "full", **stops}
    if mode != "selective":
        return {}
    _fill(args, "selective_ac_option")
    option = args.text("selective_ac_option")
    if option.isdigit() and int(option) > 0:
        layers = max(spec.num_hidden_layers // _stages(schedule, pp) // int(option), 1)
        return {"mode": "full", "layers": layers, **stops}
    if option != "op":
        args.fault("selective_ac_option", "expected op, or n to recompute every n-th layer")
    line = "selective by operation: norms and activations are computed again, half of the GEMMs are not"
    args.not_modelled.append(line)
    return {"mode": "selective", "modules": ["layernorm", "activation"]}


def _mode(args: Arguments) -> str:
    """What is recomputed: as the file says, or by default."""
    name = "activation_checkpoint.mode"
    if not _is_plain(args):
        _fill(args, name)
    plain = "full" if args.switch("gradient_checkpointing") else "none"
    return args.choice(name, plain, ("none", "selective", "full"))


def _imply_class(args: Arguments) -> None:
    """What the class says that recomputes, by its keys where a run saved them: selective is by operation there.

    Releases of 2026 have such classes (torchtitan's config/configs.py); keys of none are none at all.
    """
    section = "activation_checkpoint"
    by_op, budget = (args.has(f"{section}.{key}") for key in ("force_recompute_mm_shapes_by_fqns", "memory_budget"))
    full = "full" if args.has(f"{section}.preserve_rng_state") else "none"
    if not args.has(f"{section}.mode"):
        args.imply(f"{section}.mode", "selective" if by_op else "memory_budget" if budget else full)
    if not args.has("selective_ac_option"):
        args.imply("selective_ac_option", "op")
