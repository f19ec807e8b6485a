"""From a torchtitan config (TOML), or a plain table of FSDP settings, to a scenario.

torchtitan's mesh has pp farthest, then dp_replicate, dp_shard, cp and tp: runcast's default order.
"""

import re
from collections.abc import Mapping
from typing import Any

from ...base.errors import UserError, did_you_mean
from ...models import ModelSpec, preset, preset_names
from ...program.parallel import ParallelDims
from ...systems.train_step.unfit import undivided
from .config import Config, leaves_of
from .recipe import Machine, Notes, Recipe

_SCHEDULES = {
    "1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}  # fmt: skip
_TWO_CHUNKS = ("interleaved", "zb-v", "dualpipe-v")
_FLAVORS = {"deepseekv3671b": "deepseek-v3", "deepseekv316b": "deepseek-v2-lite"}
_TYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
_KEYS = {
    "parallel.tp": "tensor_parallel_degree",
    "parallel.ep": "expert_parallel_degree",
    "parallel.etp": "expert_tensor_parallel_degree",
    "batch.seq_len": "seq_len",
}
_STRATEGIES = {  # zero, whether weights are dropped after the forward, whether copies are per node
    "FULL_SHARD": (3, True, False),
    "SHARD_GRAD_OP": (3, False, False),
    "HYBRID_SHARD": (3, True, True),
    "_HYBRID_SHARD_ZERO2": (3, False, True),
    "HYBRID_SHARD_ZERO2": (3, False, True),
    "NO_SHARD": (0, True, False),
}


def read_torchtitan(text: str, where: str, machine: Machine) -> Recipe | Notes:
    """The recipe that a config writes, or the notes with its faults.

    Raises:
        UserError: neither TOML nor JSON; one line.
    """
    leaves = leaves_of(text)
    if leaves is None:
        raise UserError(f"{where}: is neither TOML nor JSON; expected a torchtitan config or a table of FSDP settings")
    config = Config(where, Notes(), leaves)
    spec, model = _model(config)
    if spec is None:
        return config.notes
    table = _table(config, spec, model, machine)
    if config.notes.faults:
        return config.notes
    untimed, not_modelled, unknown = config.others()
    return Recipe(
        form="torchtitan",
        table=table,
        config=None,
        read=config.read(),
        assumed=tuple(config.notes.assumed),
        untimed=untimed,
        not_modelled=(*not_modelled, *config.notes.not_modelled),
        unknown=unknown,
    )


def _model(config: Config) -> tuple[ModelSpec | None, dict[str, Any]]:
    name = config.text("", (), "model.name", "job.model", "model", "model_name")
    flavor = config.text("", (), "model.flavor", "flavor")
    known = {_loose(known): known for known in preset_names()}
    loose = _loose(name + flavor)
    found = known.get(loose) or _FLAVORS.get(loose)
    if found is None:
        _no_such_model(config, name, flavor, list(known.values()))
        return None, {}
    if loose in _FLAVORS and _FLAVORS[loose] == "deepseek-v2-lite":
        config.notes.assumed.append("model.preset = deepseek-v2-lite: the shape of that flavor")
    spec = preset(found)
    if spec.num_nextn_predict_layers:
        return spec, {"preset": found, "mtp": False}
    return spec, {"preset": found}


def _no_such_model(config: Config, name: str, flavor: str, presets: list[str]) -> None:
    if config.notes.faults:
        return
    if not name + flavor:
        config.notes.faults.append(
            f'{config.where}: model.name: is missing; expected a model, such as "llama3" of flavor "8B"'
        )
        return
    wanted = did_you_mean(f"{name}-{flavor}".strip("-"), presets) or f"no preset has the name {name}-{flavor}".rstrip(
        "-"
    )
    plain = "model" if ("", "model") in config.leaves else "model.name"
    config.fault("model.flavor" if flavor else plain, flavor or name, wanted)


def _loose(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _table(config: Config, spec: ModelSpec, model: dict[str, Any], machine: Machine) -> dict[str, Any]:
    tp = config.whole(1, "tensor_parallel_degree", "tp_degree", "tp_size", "tp")
    cp = config.whole(1, "context_parallel_degree", "cp_degree", "cp_size", "cp")
    pp = config.whole(1, "pipeline_parallel_degree", "pp_degree", "pp_size", "pp")
    dp = _data_parallel(config, machine, tp, cp, pp)
    if dp is None:
        return {}
    shard, replicate = dp
    sharded = _sharding(config, machine, shard, replicate, cp, pp)
    parallel = {"tp": tp, "cp": cp, "pp": pp} | sharded | _experts(config, spec, tp, cp, shard)
    if cp > 1:
        rotate = config.text("allgather", ("allgather", "alltoall"), "context_parallel_rotate_method")
        parallel["cp_type"] = {"allgather": "all_gather", "alltoall": "ring"}[rotate]
    schedule = _schedule(config, spec, pp)
    if pp > 1:
        parallel["embedding_as_layer"] = True
    table = {
        "model": model,
        "parallel": parallel,
        "schedule": schedule,
        "batch": _batch(config, spec, shard * replicate, pp),
        "precision": _precision(config),
        "recompute": _recompute(config, spec, schedule, pp),
        "overlap": {"tp": True} if config.flag(False, "enable_async_tensor_parallel") and tp > 1 else {},
        "experts": {},
    }
    _check(config, spec, parallel, table["batch"]["seq_len"])
    if spec.moe:
        config.notes.assumed.append("experts.routing = balanced: each expert gets as many tokens")
    config.notes.assumed.append("stack by default: how torchtitan issues its kernels was not measured")
    return table


def _check(config: Config, spec: ModelSpec, parallel: Mapping[str, Any], seq_len: int) -> None:
    """What a scenario would refuse."""
    if config.notes.faults:
        return
    tp = parallel["tp"]
    dims = ParallelDims(tp=tp, cp=parallel["cp"], ep=parallel.get("ep", 1), etp=parallel.get("etp", tp))
    for misfit in undivided(spec, dims, seq_len):
        config.fault(_KEYS[misfit.key], misfit.value, misfit.allowed)


def _data_parallel(config: Config, machine: Machine, tp: int, cp: int, pp: int) -> tuple[int, int] | None:
    """dp_shard and dp_replicate; -1 is what the other axes leave."""
    replicate = config.whole(1, "data_parallel_replicate_degree", "dp_replicate")
    asked = ("data_parallel_shard_degree", "data_parallel_degree", "dp_shard")
    shard = config.whole(-1, *asked, minimum=-1)
    fixed = tp * cp * pp * replicate
    product = f"tp {tp} x cp {cp} x pp {pp} x dp_replicate {replicate}"
    if shard == -1 and machine.gpus % fixed == 0:
        return machine.gpus // fixed, replicate
    if shard > 0 and fixed * shard == machine.gpus:
        return shard, replicate
    fits = f"so {machine.gpus // fixed}" if machine.gpus % fixed == 0 else f"which {fixed} does not divide"
    config.fault(asked[0], shard, f"{product} x dp_shard must be {machine}, {fits}")
    return None


def _sharding(config: Config, machine: Machine, shard: int, replicate: int, cp: int, pp: int) -> dict[str, Any]:
    strategy = config.text("FULL_SHARD", tuple(_STRATEGIES), "sharding_strategy")
    zero, reshard, per_node = _STRATEGIES[strategy]
    if shard * cp == 1 or zero == 0:
        return {"zero": 0}
    policy = config.raw("fsdp_reshard_after_forward", "reshard_after_forward")
    if policy in (True, False):
        reshard = bool(policy)
    elif policy not in (None, "default", "always", "never"):
        config.fault("fsdp_reshard_after_forward", policy, "expected default, always or never")
    else:  # torchtitan's default keeps weights between the micro-batches of a pipeline
        reshard = reshard and pp == 1 if policy in (None, "default") else policy == "always"
    found: dict[str, Any] = {"zero": zero, "reshard": reshard}
    if per_node and shard % machine.gpus_per_node == 0:
        found["shard"] = machine.gpus_per_node
    elif replicate > 1:
        found["shard"] = shard * cp
    if pp > 1:
        found["sync_each_microbatch"] = False  # gradients are reduced behind the last micro-batch
    return found


def _experts(config: Config, spec: ModelSpec, tp: int, cp: int, shard: int) -> dict[str, Any]:
    ep = config.whole(1, "expert_parallel_degree", "ep_degree", "ep_size")
    etp = config.whole(1, "expert_tensor_parallel_degree")
    if ep > 1 and spec.moe is None:
        config.fault("expert_parallel_degree", ep, f"{spec.name} has no experts")
    elif tp * cp * shard % (ep * etp):
        allowed = f"x etp {etp} must divide tp {tp} x cp {cp} x dp_shard {shard} = {tp * cp * shard}"
        config.fault("expert_parallel_degree", ep, allowed)
    if etp not in (1, tp):
        config.fault("expert_tensor_parallel_degree", etp, f"expected 1 or tp = {tp}")
    found = {"ep": ep} if ep > 1 else {}
    return found | ({"etp": etp} if spec.moe and etp != tp else {})


def _schedule(config: Config, spec: ModelSpec, pp: int) -> dict[str, Any]:
    written = config.text("1F1B", tuple(_SCHEDULES), "pipeline_parallel_schedule")
    name = _SCHEDULES[written]
    if pp == 1:
        return {}
    units = spec.num_hidden_layers + 2
    each = config.whole(0, "pipeline_parallel_layers_per_stage", minimum=1)
    chunks = -(-units // each) // pp if each else 2 if name in _TWO_CHUNKS else 1
    if each and -(-units // each) % pp:
        line = (
            f"makes {-(-units // each)} stages of {units} layers, with embedding and head; pp = {pp} must divide them"
        )
        config.fault("pipeline_parallel_layers_per_stage", each, line)
    elif chunks != 2 and name in _TWO_CHUNKS[1:]:
        config.fault(
            "pipeline_parallel_schedule", written, f"has 2 stages per rank; the layers per stage make {chunks}"
        )
    elif name not in _TWO_CHUNKS[1:] and (chunks == 1) == (name == "interleaved"):
        has = "more than one stage" if chunks == 1 else "one stage"
        config.fault("pipeline_parallel_schedule", written, f"has {has} per rank; the layers per stage make {chunks}")
    return {"name": name, "vpp": chunks} if name == "interleaved" else {"name": name}


def _batch(config: Config, spec: ModelSpec, dp: int, pp: int) -> dict[str, Any]:
    """A rank's batch is one micro-batch, or with a pipeline as many as its micro-batches' size makes of it."""
    local = config.whole(
        1, "local_batch_size", "training.batch_size", "per_device_train_batch_size", "micro_batch_size"
    )
    written = config.whole(-1, "global_batch_size", minimum=-1)
    accumulated = config.whole(1, "gradient_accumulation_steps")
    total = written if written > 0 else local * dp * accumulated
    micro = config.whole(1, "pipeline_parallel_microbatch_size") if pp > 1 else local
    seq_len = config.whole(0, "seq_len", "seq_length", "max_seq_length")
    if not seq_len:
        seq_len = min(spec.max_position_embeddings, 2048) or 2048
        config.notes.assumed.append(f"batch.seq_len = {seq_len}: torchtitan's default")
    if total % (local * dp):
        config.fault("global_batch_size", total, f"local {local} x dp {dp} = {local * dp} must divide it")
    elif local % micro:
        config.fault("pipeline_parallel_microbatch_size", micro, f"must divide the local batch of {local}")
    elif pp > 1 and total > local * dp:
        config.notes.assumed.append(f"pipelines run once per step, with {total // dp // micro} micro-batches")
    return {"global": total, "micro": micro, "seq_len": seq_len}


def _precision(config: Config) -> dict[str, Any]:
    param = config.text("bfloat16", tuple(_TYPES), "mixed_precision_param", "param_dtype")
    reduce = config.text("float32", ("float32", "bfloat16"), "mixed_precision_reduce", "reduce_dtype")
    own = config.text("float32", ("float32", "bfloat16"), "training.dtype")
    found: dict[str, Any] = {"compute": _TYPES[param]}
    converters = config.raw("converters")
    names = converters if isinstance(converters, list) else [converters] if converters else []
    if any("float8" in str(name) for name in names):
        found["compute"] = "fp8"
    elif any(str(name).split(".")[-1] == "mx" for name in names):
        found["compute"] = "mxfp8"
    if own == "bfloat16":  # the sharded weights themselves, hence gradients and moments
        return found | {"gradients": "bf16", "moments": "bf16", "master": False} | {"reduce": _TYPES[reduce]}
    return found | ({"reduce": "bf16"} if reduce == "bfloat16" else {})


def _recompute(config: Config, spec: ModelSpec, schedule: Mapping[str, Any], pp: int) -> dict[str, Any]:
    plain = config.flag(False, "activation_checkpointing", "gradient_checkpointing")
    mode = config.text("full" if plain else "none", ("none", "selective", "full", "memory_budget"),
                       "activation_checkpoint.mode", "training.ac_mode")  # fmt: skip
    option = config.raw("selective_ac_option", "activation_checkpoint.selective_ac_option")
    if mode == "memory_budget":
        config.fault("activation_checkpoint.mode", mode, "expected none, selective or full")
    stops = {"early_stop": True} if config.flag(False, "activation_checkpoint.early_stop") else {}
    if mode == "full":
        return {"mode": "full", **stops}
    if mode != "selective":
        return {}
    if isinstance(option, int | str) and str(option).isdigit() and int(option) > 0:
        chunks = pp * schedule.get("vpp", 2 if schedule.get("name") in _TWO_CHUNKS else 1)
        layers = max(spec.num_hidden_layers // chunks // int(option), 1)
        return {"mode": "full", "layers": layers, **stops}
    line = "selective by operation: norms and activations are computed again, half of the matrix products are not"
    config.notes.not_modelled.append(line)
    return {"mode": "selective", "modules": ["layernorm", "activation"]}
