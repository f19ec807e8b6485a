"""From Megatron-LM's arguments to a scenario: what each says, with Megatron-LM's own defaults and its own refusals."""

from typing import Any

from ...program.parallel import ParallelDims
from ...systems.train_step.ignored import no_such_part
from ...systems.train_step.unfit import undivided
from .arguments import read_arguments
from .given import Given
from .pipelines import read_pipeline
from .recipe import Machine, Notes, Recipe
from .shapes import Shape, padding, read_shape

ORDER_PP_INSIDE = "tp-cp-ep-pp-dp"  # --use-tp-pp-dp-mapping
CP_TYPES = {"p2p": "ring", "all_gather": "all_gather", "allgather": "all_gather", "a2a": "ulysses"}
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
MODULES = {
    **{name: name for name in ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")},
    "moe_act": "activation",
}
OF_EXPERTS = ("moe_act",)
"""Modules that Megatron-LM recomputes with grouped products of experts alone (TransformerConfig refuses them else)."""
_ARGUMENTS = {
    "parallel.tp": "tensor_model_parallel_size",
    "parallel.cp": "context_parallel_size",
    "parallel.ep": "expert_model_parallel_size",
    "parallel.etp": "expert_tensor_parallel_size",
    "batch.seq_len": "seq_length",
}
FP8 = {"tensorwise": "fp8", "delayed": "fp8", "blockwise": "fp8-block", "mxfp8": "mxfp8"}


def read_megatron(text: str, where: str, machine: Machine) -> Recipe | Notes:
    """The recipe that arguments write, or the notes with its faults."""
    notes = Notes()
    given = Given(read_arguments(text, where), where, notes)
    sizes = _sizes(given)
    shape = read_shape(given, sizes["tp"])
    if shape is None:
        return notes
    table = _table(given, sizes, shape, machine)
    if notes.faults:
        return notes
    return Recipe(
        form="megatron",
        table=table,
        config=shape.config,
        read=given.read(),
        assumed=tuple(notes.assumed),
        untimed=given.untimed(),
        not_modelled=(*given.not_modelled(), *notes.not_modelled),
        unknown=given.unknown(),
    )


def _table(given: Given, sizes: dict[str, int], shape: Shape, machine: Machine) -> dict[str, Any]:
    stage = _check_grid(given, sizes, machine, experts=shape.spec.moe is not None)
    schedule, split = read_pipeline(given, sizes["pp"], shape.spec.num_hidden_layers)
    zero = _zero(given)
    batch = _batch(given, sizes, stage // sizes["tp"] // sizes["cp"])
    _check_batch(given, sizes, batch, schedule, stage)
    _check_model(given, sizes, batch["seq_len"], shape)
    table: dict[str, Any] = {
        "model": dict(shape.model),
        "parallel": _parallel(given, sizes, zero, stage, shape) | split,
        "schedule": schedule,
        "batch": batch,
        "precision": _precision(given, zero),
        "recompute": _recompute(given, sizes, schedule, shape),
        "offload": _offload(given, shape),
        "overlap": _overlap(given, sizes, zero, schedule),
        "experts": _experts(given, sizes, machine) if shape.spec.moe else {},
    }
    if bucket := given.optional("ddp_bucket_size"):
        table["bucket"] = bucket
    _check_launch(given, machine)
    return table


def _sizes(given: Given) -> dict[str, int]:
    names = {
        "tp": "tensor_model_parallel_size",
        "cp": "context_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    sizes = {axis: given.whole(name) for axis, name in names.items()}
    experts_whole = given.has("num_experts")
    sizes["etp"] = given.whole("expert_tensor_parallel_size", sizes["tp"] if experts_whole else 1)
    return sizes


def _check_grid(given: Given, sizes: dict[str, int], machine: Machine, experts: bool) -> int:
    """GPUs of a stage, if the axes fit the machine; else a fault and the least that they need."""
    tp, cp, pp, ep, etp = (sizes[axis] for axis in ("tp", "cp", "pp", "ep", "etp"))
    model = tp * cp * pp
    largest = max(("tensor_model_parallel_size", tp), ("context_parallel_size", cp),
                  ("pipeline_model_parallel_size", pp), key=lambda pair: pair[1])[0]  # fmt: skip
    if machine.gpus % model:
        given.fault(largest, f"tp {tp} x cp {cp} x pp {pp} = {model} must divide {machine}")
        return tp * cp
    stage = machine.gpus // pp
    if ep > 1 and not experts:
        given.fault("expert_model_parallel_size", "needs --num-experts")
    elif stage % (etp * ep):
        allowed = f"etp {etp} x ep {ep} = {etp * ep} must divide the {stage} GPUs of a stage"
        given.fault("expert_model_parallel_size", allowed, ep)
    elif given.switch("use_tp_pp_dp_mapping"):
        order = ORDER_PP_INSIDE
        dims = ParallelDims(tp, cp, stage // tp // cp, pp, ep, etp if experts else 1, order)
        if dims.faults(machine.gpus):
            given.fault("use_tp_pp_dp_mapping", f"etp x ep ({etp * ep}) must equal tp x cp ({tp * cp}) then", True)
    return stage


def _parallel(given: Given, sizes: dict[str, int], zero: int, stage: int, shape: Shape) -> dict[str, Any]:
    tp, cp, pp, ep = (sizes[axis] for axis in ("tp", "cp", "pp", "ep"))
    found: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "zero": zero}
    found["pad_vocab"] = padding(given)
    if shape.spec.moe and sizes["etp"] != tp:
        found["etp"] = sizes["etp"]
    if given.switch("use_tp_pp_dp_mapping"):
        found["order"] = ORDER_PP_INSIDE
    if tp > 1:
        found["sequence_parallel"] = given.switch("sequence_parallel")
        if shape.spec.moe and not found["sequence_parallel"]:
            given.fault("sequence_parallel", "needed for experts with tensor parallelism", False)
    if cp > 1:
        found["cp_type"] = _cp_type(given)
    copies = given.whole("num_distributed_optimizer_instances")
    if copies > 1:
        ranks = stage // tp
        if ranks % copies:
            given.fault("num_distributed_optimizer_instances", f"must divide dp x cp = {ranks}")
        elif zero == 3:
            found["shard"] = ranks // copies
        else:
            name = given.spelled("num_distributed_optimizer_instances")
            given.notes.not_modelled.append(f"{name} {copies}: the optimizer is sharded over all of dp x cp")
    return found


def _cp_type(given: Given) -> str:
    types = set(given.texts("cp_comm_type")) or {"p2p"}
    if len(types) > 1 or not types <= set(CP_TYPES):
        given.fault("cp_comm_type", f"expected one of {', '.join(CP_TYPES)}, the same for all layers")
        return "ring"
    return CP_TYPES[types.pop()]


def _zero(given: Given) -> int:
    if given.switch("use_torch_fsdp2"):
        return 3
    if given.switch("use_megatron_fsdp"):
        return SHARDING[given.choice("data_parallel_sharding_strategy", "no_shard", tuple(SHARDING))]
    return int(given.switch("use_distributed_optimizer"))


def _batch(given: Given, sizes: dict[str, int], dp: int) -> dict[str, Any]:
    micro = given.needed("micro_batch_size", "sequences of a micro-batch")
    if not given.has("global_batch_size"):
        line = f"batch.global = {micro * dp}: a micro-batch for each of {dp} data-parallel ranks"
        given.notes.assumed.append(line)
    total = given.whole("global_batch_size", micro * dp)
    return {"global": total, "micro": micro, "seq_len": given.needed("seq_length", "tokens of a sequence")}


def _check_batch(
    given: Given, sizes: dict[str, int], batch: dict[str, Any], schedule: dict[str, Any], stage: int
) -> None:
    if given.notes.faults:
        return
    tp, cp, pp = sizes["tp"], sizes["cp"], sizes["pp"]
    dp = stage // tp // cp
    share = batch["micro"] * dp
    if batch["global"] % share:
        given.fault("global_batch_size", f"micro {batch['micro']} x dp {dp} = {share} must divide it")
        return
    microbatches, group = batch["global"] // share, schedule.get("group", pp)
    if "vpp" in schedule and (microbatches < pp or 0 < microbatches % group < pp):
        allowed = f"makes {microbatches} micro-batches per step; chunks need a multiple of {group}"
        given.fault("global_batch_size", allowed, batch["global"])


def _check_model(given: Given, sizes: dict[str, int], seq_len: int, shape: Shape) -> None:
    """What a scenario would refuse."""
    if given.notes.faults:
        return
    dims = ParallelDims(tp=sizes["tp"], cp=sizes["cp"], ep=sizes["ep"], etp=sizes["etp"])
    parallel, ulysses = given.switch("sequence_parallel"), _cp_type(given) == "ulysses"
    for misfit in undivided(shape.spec, dims, seq_len, sequence_parallel=parallel, ulysses=ulysses):
        given.fault(_ARGUMENTS[misfit.key], misfit.allowed, misfit.value)


def _precision(given: Given, zero: int) -> dict[str, Any]:
    bf16, fp16 = given.switch("bf16"), given.switch("fp16")
    if bf16 and fp16:
        given.fault("fp16", "goes not with --bf16", True)
    compute = "bf16" if bf16 else "fp16" if fp16 else "fp32"
    if given.has("fp8_format") and given.text("fp8_format").lower() not in ("", "false"):
        given.choice("fp8_format", "hybrid", ("e4m3", "hybrid"))
        compute = FP8[given.choice("fp8_recipe", "delayed", tuple(FP8))]
    if given.has("fp4_format"):
        given.choice("fp4_format", "e2m1", ("e2m1", "nvfp4"))
        compute = "nvfp4"
    found: dict[str, Any] = {"compute": compute}
    # Megatron-LM keeps gradients of BF16 models in FP32 unless told otherwise, those of FP16 models in FP16.
    if given.switch("grad_reduce_in_bf16"):
        found["gradients"] = "bf16"
    elif fp16 and not given.switch("grad_reduce_in_fp32"):
        found["gradients"] = "bf16"
        given.notes.assumed.append("precision.gradients = bf16: fp16 gradients, which take as many bytes")
    if (moments := _moments(given, zero)) != "fp32":
        found["moments"] = moments
    if given.switch("fp8_param_gather"):
        if compute in FP8.values() and zero < 3:
            found["weights"] = "fp8"
        else:
            given.notes.not_modelled.append("--fp8-param-gather: weights in 8 bits go with FP8 products and no FSDP")
    return found


def _moments(given: Given, zero: int) -> str:
    names = ("exp_avg_dtype", "exp_avg_sq_dtype")
    known = ("fp32", "fp16", "bf16", "fp8")
    first, second = (given.choice(name, "fp32", known) for name in names)
    lean = given.switch("use_precision_aware_optimizer")
    if not lean and (first, second) != ("fp32", "fp32"):
        given.fault(names[0] if first != "fp32" else names[1], "needs --use-precision-aware-optimizer")
    if lean and zero == 0:
        given.fault("use_precision_aware_optimizer", "needs --use-distributed-optimizer", True)
    if first != second:
        given.notes.not_modelled.append(f"--exp-avg-sq-dtype {second}: both moments are taken as {first}")
    return "bf16" if first == "fp16" else first


def _recompute(given: Given, sizes: dict[str, int], schedule: dict[str, Any], shape: Shape) -> dict[str, Any]:
    mode = given.choice("recompute_granularity", "", ("", "none", "selective", "full"))
    if given.switch("recompute_activations") and not mode:
        mode = "selective"
    if mode == "full":
        return {"mode": "full"} | _recomputed_layers(given)
    if mode != "selective":
        return {}
    named = given.texts("recompute_modules") or ("core_attn",)
    if wrong := [name for name in named if name not in MODULES]:
        given.fault("recompute_modules", f"expected some of {', '.join(MODULES)}", wrong[0])
    if shape.spec.moe is None and (wrong := [name for name in named if name in OF_EXPERTS]):
        given.fault("recompute_modules", "is recomputed in experts alone, and this model has none", wrong[0])
    modules = {MODULES[name]: no_such_part(shape.spec, MODULES[name]) for name in named if name in MODULES}
    for name, reason in modules.items():
        if reason:
            given.notes.not_modelled.append(f"{given.spelled('recompute_modules')} {name}: {reason}")
    kept = [name for name, reason in modules.items() if not reason]
    return {"mode": "selective", "modules": kept} if kept else {}


def _recomputed_layers(given: Given) -> dict[str, Any]:
    method = given.choice("recompute_method", "", ("", "uniform", "block"))
    if not method:
        given.missing("recompute_method", "uniform or block, with --recompute-granularity full")
    count = given.whole("recompute_num_layers")
    if method == "block":
        return {"layers": count}
    if count > 1:
        line = f"--recompute-num-layers {count}: each layer's input is kept, not that of every {count}"
        given.notes.not_modelled.append(line)
    return {}


def _offload(given: Given, shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {"optimizer": True} if given.switch("optimizer_cpu_offload") else {}
    layers = shape.spec.num_hidden_layers
    count = given.whole("cpu_offloading_num_layers", 0, minimum=0)
    if count > layers:
        given.fault("cpu_offloading_num_layers", f"at most the {layers} layers")
    elif count:
        found["activations"] = count / layers
    return found


def _overlap(given: Given, sizes: dict[str, int], zero: int, schedule: dict[str, Any]) -> dict[str, Any]:
    gradients, params = given.switch("overlap_grad_reduce"), given.switch("overlap_param_gather")
    if params and zero == 0:
        given.fault("overlap_param_gather", "needs --use-distributed-optimizer", True)
    elif params and not gradients:
        given.fault("overlap_param_gather", "needs --overlap-grad-reduce", True)
    found: dict[str, Any] = {"dp": gradients}
    if zero in (1, 2):
        found["params"] = params
    if given.switch("tp_comm_overlap"):
        if not given.switch("sequence_parallel"):
            given.fault("tp_comm_overlap", "needs --sequence-parallel", True)
        found["tp"] = sizes["tp"] > 1
    if sizes["pp"] > 1:  # Megatron-LM overlaps sends of interleaved pipelines only
        found["pp"] = "vpp" in schedule and given.switch("overlap_p2p_comm", True)
    if given.switch("delay_wgrad_compute"):
        found["wgrad"] = True
    return found


def _experts(given: Given, sizes: dict[str, int], machine: Machine) -> dict[str, Any]:
    given.notes.assumed.append("experts.routing = balanced: each expert gets as many tokens")
    found: dict[str, Any] = {}
    capacity = given.number("moe_expert_capacity_factor")
    if capacity is not None and capacity > 0:
        found["capacity"] = capacity
    if _dispatcher(given, sizes["ep"]) != "deepep" or sizes["ep"] == 1:
        return found
    found["dispatcher"] = "deepep"
    groups, chosen = given.optional("moe_router_num_groups"), given.optional("moe_router_group_topk")
    nodes = -(-sizes["ep"] * sizes["etp"] // machine.gpus_per_node)
    if groups and chosen and nodes > 1:
        limit = chosen if groups >= nodes else chosen * -(-nodes // groups)
        if limit < nodes:
            found["nodes_per_token"] = limit
    return found


def _dispatcher(given: Given, ep: int) -> str:
    """Megatron-LM's own default, a gather of all tokens, is not modelled."""
    kind = given.choice("moe_token_dispatcher_type", "allgather", ("allgather", "alltoall", "alltoall_seq", "flex"))
    if kind == "flex":
        backend = given.choice("moe_flex_dispatcher_backend", "deepep", ("deepep", "hybridep"))
        if backend != "deepep":
            given.notes.not_modelled.append(
                f"--moe-flex-dispatcher-backend {backend}: as fast as DeepEP, to our knowledge"
            )
        return "deepep"
    if kind == "allgather" and ep > 1:
        given.notes.assumed.append("experts.dispatcher = alltoall: a gather of all tokens is not modelled")
    return "alltoall"


def _check_launch(given: Given, machine: Machine) -> None:
    """What the script would launch, beside what is predicted."""
    nodes, each = (given.text(name) for name in ("nnodes", "nproc_per_node"))
    if nodes.isdigit() and each.isdigit() and int(nodes) * int(each) != machine.gpus:
        given.notes.assumed.append(f"{machine}: the file itself starts {nodes} x {each}")
