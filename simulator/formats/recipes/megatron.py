"""From Megatron-LM's arguments to a scenario: what each says, with Megatron-LM's own defaults and its own refusals."""

from collections.abc import Mapping
from typing import Any

from ...program.parallel import ParallelDims
from ...systems.train_step.checks import indivisible, no_such_part
from .arguments import Arguments, Machine
from .picks import is_compressed, is_sparse
from .pipelines import read_pipeline
from .shapes import Shape, padding, read_shape

ORDER_PP_INSIDE = "tp-cp-ep-pp-dp"  # --use-tp-pp-dp-mapping
CP_TYPES = {
    "p2p": "ring", "all_gather": "all_gather", "allgather": "all_gather", "a2a": "ulysses", "a2a+p2p": "ring",
}  # fmt: skip
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
OF_EXPERTS = ("moe_act",)
"""Modules that Megatron-LM recomputes with grouped GEMMs of experts alone (TransformerConfig refuses them else)."""
_ARGUMENTS = {
    "parallel.tp": "tensor_model_parallel_size",
    "parallel.cp": "context_parallel_size",
    "parallel.pp": "pipeline_model_parallel_size",
    "parallel.ep": "expert_model_parallel_size",
    "parallel.etp": "expert_tensor_parallel_size",
    "batch.seq_len": "seq_length",
}
_SEPARATE = ("unfused", "local")  # attention in separate kernels for scores, softmax and values
FP8 = {"tensorwise": "fp8", "delayed": "fp8", "blockwise": "fp8-block", "mxfp8": "mxfp8"}


def read_megatron(
    args: Arguments, machine: Machine, named: Shape | None = None
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """The table of the scenario that arguments write, and the model's config where no preset has its shape.

    `named` is a model that the recipe names; else the arguments describe it. Faults are noted or raised.
    """
    sizes = {axis: args.whole(_ARGUMENTS[f"parallel.{axis}"]) for axis in ("tp", "cp", "pp", "ep")}
    shape = named or read_shape(args, sizes["tp"])
    encoded = args.optional("seq_length")
    if shape.spec.cross is not None:  # its own tokens are those of the decoder
        args.imply("seq_length", args.require("decoder_seq_length", "tokens that the decoder reads"))
    sizes["etp"] = args.whole("expert_tensor_parallel_size", sizes["tp"])
    stage = _check_grid(args, sizes, machine, experts=shape.spec.moe is not None)
    schedule, split = read_pipeline(args, sizes["pp"], shape.spec.num_hidden_layers)
    if named is None:
        _check_sends(args, sizes["pp"], schedule)
    zero = _zero(args)
    batch = _batch(args, stage // sizes["tp"] // sizes["cp"])
    if not args.faults:
        _check_batch(args, sizes, batch, schedule, stage)
    if not args.faults:  # what a scenario would refuse
        dims = ParallelDims(tp=sizes["tp"], cp=sizes["cp"], ep=sizes["ep"], etp=sizes["etp"])
        sequence, ulysses = args.switch("sequence_parallel"), _cp_type(args) == "ulysses"
        for one in indivisible(shape.spec, dims, batch["seq_len"], sequence_parallel=sequence, ulysses=ulysses):
            args.fault(_ARGUMENTS[one.key], one.allowed, one.value)
        keys = -(-shape.spec.num_key_value_heads // sizes["tp"])
        if ulysses and keys % sizes["cp"]:  # Transformer Engine makes no copies of keys, as other tools do
            args.fault("context_parallel_size", f"with a2a it must divide the key heads of a rank, {keys}")
    table: dict[str, Any] = {
        "model": dict(shape.model),
        "parallel": _parallel(args, sizes, zero, stage, shape) | split,
        "schedule": schedule,
        "batch": batch,
        "precision": _precision(args, zero),
        "recompute": _recompute(args, shape),
        "offload": {"optimizer": args.switch("optimizer_cpu_offload"), "activations": _offloaded_share(args, shape)},
        "overlap": _overlap(args, sizes, zero, schedule),
        "experts": _experts(args, sizes, machine) if shape.spec.moe else {},
    }
    if named is None and shape.spec.moe and not args.switch("moe_grouped_gemm"):
        args.not_modelled.append("experts one after another, without --moe-grouped-gemm: their GEMMs count as grouped")
    if _has_separate_attention(args, sizes["cp"]):
        table |= {"attention": "unfused", "attention_dropout": args.number("attention_dropout") != 0}
    if shape.spec.cross is not None:
        table["towers"] = {"encoder": {"tokens": encoded}}
    if named is None:
        _note_dropout(args, fused="attention" not in table)
    if (bucket := args.optional("ddp_bucket_size")) and zero < 3:
        table["bucket"] = bucket
    note_started(args, machine)
    return table, shape.config


def note_started(args: Arguments, machine: Machine) -> None:
    """Note the GPUs that the file starts where they are not those of the machine."""
    started = _started(args)
    if started and started != machine.gpus:
        args.assumed.append(f"{machine}: the file itself starts {started}")


def _started(args: Arguments) -> int:
    """The GPUs that the file starts; 0 where it does not say."""
    nodes, each = args.hint("nnodes") or "1", args.hint("nproc_per_node")
    return int(nodes) * int(each) if nodes.isdigit() and each.isdigit() else 0


def _note_dropout(args: Arguments, fused: bool) -> None:
    """Note the dropout that is not modelled; both shares are 0.1 unless an argument says another one."""
    shares = {name: args.number(name) for name in ("hidden_dropout", "attention_dropout")[: 1 + fused]}
    said = [
        f"{args.spelling(name)} {0.1 if share is None else share:g}" for name, share in shares.items() if share != 0
    ]
    if said:
        args.not_modelled.append(f"{', '.join(said)}: masks take a byte of each element, and passes of their own")


def _has_separate_attention(args: Arguments, cp: int) -> bool:
    """Whether kernels of their own compute scores, softmax and values.

    Megatron-LM's own layers (DotProductAttention) always do; the legacy ones have FlashAttention if it is asked for.
    Models for export may have them, but for cp (megatron/post_training/model_builder.py).
    """
    if is_compressed(args) or is_sparse(args):
        return False  # the variant has kernels of its own, whatever the back end of others
    if args.switch("export_force_local_attention") and cp == 1:
        return True
    if args.hint("transformer_impl").lower() != "local":
        return args.text("attention_backend") in _SEPARATE
    line = f"{args.spelling('transformer_impl')} local: kernels beside attention are the software stack's"
    args.not_modelled.append(line)
    return not (args.switch("use_legacy_models") and args.switch("use_flash_attn"))


def _check_grid(args: Arguments, sizes: dict[str, int], machine: Machine, experts: bool) -> int:
    """GPUs of a stage, if the axes fit the machine; else a fault and the least that they need."""
    tp, cp, pp, ep, etp = sizes.values()
    model = tp * cp * pp
    if machine.gpus % model:
        largest = max(("tp", "cp", "pp"), key=sizes.__getitem__)
        args.fault(_ARGUMENTS[f"parallel.{largest}"], f"tp {tp} x cp {cp} x pp {pp} = {model} must divide {machine}")
        return tp * cp
    stage = machine.gpus // pp
    if ep > 1 and not experts:
        args.fault("expert_model_parallel_size", "needs --num-experts")
    elif stage % (etp * ep):
        allowed = f"etp {etp} x ep {ep} = {etp * ep} must divide the {stage} GPUs of a stage"
        args.fault("expert_model_parallel_size", allowed, ep)
    elif args.switch("use_tp_pp_dp_mapping"):
        dims = ParallelDims(tp, cp, stage // tp // cp, pp, ep, etp, ORDER_PP_INSIDE)
        if dims.faults(machine.gpus):
            args.fault("use_tp_pp_dp_mapping", f"etp x ep ({etp * ep}) must equal tp x cp ({tp * cp}) then", True)
    return stage


def _parallel(args: Arguments, sizes: dict[str, int], zero: int, stage: int, shape: Shape) -> dict[str, Any]:
    tp, cp, pp, ep = (sizes[axis] for axis in ("tp", "cp", "pp", "ep"))
    found: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "zero": zero, "pad_vocab": padding(args)}
    if shape.spec.moe and sizes["etp"] != tp:
        found["etp"] = sizes["etp"]
    if args.switch("use_tp_pp_dp_mapping"):
        found["order"] = ORDER_PP_INSIDE
    if tp > 1:
        found["sequence_parallel"] = args.switch("sequence_parallel")
        if shape.spec.moe and not found["sequence_parallel"]:
            args.fault("sequence_parallel", "needed for experts with tensor parallelism", False)
    if cp > 1:
        found["cp_type"] = _cp_type(args)
        if args.texts("cp_comm_type") == ("a2a+p2p",):
            args.not_modelled.append(f"{args.spelling('cp_comm_type')} a2a+p2p: a ring over all of cp is simulated")
    instances = "num_distributed_optimizer_instances"
    copies, ranks = args.whole(instances), stage // tp
    if ranks % copies:
        args.fault(instances, f"must divide dp x cp = {ranks}")
    elif copies > 1 and zero == 3:
        found["shard"] = ranks // copies
    elif copies > 1:
        args.not_modelled.append(f"{args.spelling(instances)} {copies}: the optimizer is sharded over all of dp x cp")
    return found


def _cp_type(args: Arguments) -> str:
    types = set(args.texts("cp_comm_type")) or {"p2p"}
    if len(types) > 1 or not types <= set(CP_TYPES):
        args.fault("cp_comm_type", f"expected one of {', '.join(CP_TYPES)}, the same for all layers")
        return "ring"
    return CP_TYPES[types.pop()]


def _zero(args: Arguments) -> int:
    if args.switch("use_torch_fsdp2"):
        return 3
    if args.switch("use_megatron_fsdp"):
        return SHARDING[args.choice("data_parallel_sharding_strategy", "no_shard", SHARDING)]
    if (name := args.hint("optimizer")).startswith("dist_"):  # layer_wise_optimizer.py
        args.assumed.append(f"zero = 1: {name} shards states by layer; its gradients go to all ranks, twice the bytes")
        return 1
    return int(args.switch("use_distributed_optimizer"))


def _batch(args: Arguments, dp: int) -> dict[str, Any]:
    micro = args.require("micro_batch_size", "sequences of a micro-batch")
    if not args.has("global_batch_size"):
        args.assumed.append(f"batch.global = {micro * dp}: a micro-batch for each of {dp} data-parallel ranks")
    total = args.whole("global_batch_size", micro * dp)
    return {"global": total, "micro": micro, "seq_len": args.require("seq_length", "tokens of a sequence")}


def _check_batch(
    args: Arguments, sizes: dict[str, int], batch: dict[str, Any], schedule: dict[str, Any], stage: int
) -> None:
    pp, dp = sizes["pp"], stage // sizes["tp"] // sizes["cp"]
    share = batch["micro"] * dp
    if batch["global"] % share:
        started = f"; the file itself starts {given} GPUs" if (given := _started(args)) else ""
        args.fault("global_batch_size", f"micro {batch['micro']} x dp {dp} = {share} must divide it{started}")
        return
    microbatches, group = batch["global"] // share, schedule.get("group", pp)
    if "vpp" in schedule and (microbatches < pp or 0 < microbatches % group < pp):
        allowed = f"makes {microbatches} micro-batches per step; chunks need a multiple of {group}"
        args.fault("global_batch_size", allowed, batch["global"])


def _precision(args: Arguments, zero: int) -> dict[str, Any]:
    bf16, fp16 = args.switch("bf16"), args.switch("fp16")
    if bf16 and fp16:
        args.fault("fp16", "cannot go with --bf16", True)
    compute = "bf16" if bf16 else "fp16" if fp16 else "fp32"
    if args.has("fp8_format") and args.text("fp8_format").lower() not in ("", "false"):
        args.choice("fp8_format", "hybrid", ("e4m3", "hybrid"))
        if not (bf16 or fp16):
            args.assumed.append("precision: of a BF16 model, though without --bf16 Megatron-LM keeps weights in FP32")
        compute = FP8[args.choice("fp8_recipe", "delayed", FP8)]
    if args.has("fp4_format"):
        args.choice("fp4_format", "e2m1", ("e2m1", "nvfp4"))
        compute = "nvfp4"
    found: dict[str, Any] = {"compute": compute, "moments": _moments(args, zero), "gradients": "fp32"}
    # Megatron-LM keeps gradients of BF16 models in FP32 unless told otherwise, those of FP16 models in FP16.
    if args.switch("grad_reduce_in_bf16") or _has_main_gradients_in_16_bits(args):
        found["gradients"] = "bf16"
    elif fp16 and not args.switch("grad_reduce_in_fp32"):
        found["gradients"] = "bf16"
        args.assumed.append("precision.gradients = bf16: fp16 gradients, which take as many bytes")
    gathers, can_gather = args.switch("fp8_param_gather"), compute in FP8.values() and zero < 3
    if gathers and not can_gather:
        args.not_modelled.append("--fp8-param-gather: weights in 8 bits go with FP8 GEMMs and no FSDP")
    return found | {"weights": "fp8" if gathers and can_gather else "bf16"}


def _has_main_gradients_in_16_bits(args: Arguments) -> bool:
    """Whether the optimizer reads gradients in BF16: Megatron-LM then adds them up in BF16 (training/arguments.py)."""
    name = "main_grads_dtype"
    if args.choice(name, "fp32", ("fp32", "bf16")) == "fp32":
        return False
    if not args.switch("use_precision_aware_optimizer"):
        args.fault(name, "needs --use-precision-aware-optimizer")
    if args.switch("grad_reduce_in_fp32"):
        args.fault(name, f"cannot go with {args.spelling('grad_reduce_in_fp32')}")
    return True


def _moments(args: Arguments, zero: int) -> str:
    names = ("exp_avg_dtype", "exp_avg_sq_dtype")
    known = ("fp32", "fp16", "bf16", "fp8")
    first, second = (args.choice(name, "fp32", known) for name in names)
    lean = args.switch("use_precision_aware_optimizer")
    if not lean and (first, second) != ("fp32", "fp32"):
        args.fault(names[0] if first != "fp32" else names[1], "needs --use-precision-aware-optimizer")
    if lean and zero == 0:
        args.fault("use_precision_aware_optimizer", "needs --use-distributed-optimizer", True)
    if first != second:
        args.not_modelled.append(f"--exp-avg-sq-dtype {second}: both moments are taken as {first}")
    return "bf16" if first == "fp16" else first


def _recompute(args: Arguments, shape: Shape) -> dict[str, Any]:
    earlier = args.switch("checkpoint_activations") or args.has("activations_checkpoint_method")  # before 2022
    mode = args.choice("recompute_granularity", "full" if earlier else "", ("", "none", "selective", "full"))
    if mode == "full":
        return {"mode": "full"} | _recomputed_layers(args)
    old = ("moe",) if args.switch("moe_layer_recompute") else ()  # transformer_config.py adds it to the others
    if mode != "selective" and not old and (mode or not args.switch("recompute_activations")):
        return {}
    modules: list[str] = []
    for name in dict.fromkeys([*(args.texts("recompute_modules") or ("core_attn",)), *old]):
        if name == "mhc":
            args.not_modelled.append(f"{args.spelling('recompute_modules')} mhc: what mixes streams is kept")
        elif name not in MODULES:
            args.fault("recompute_modules", f"expected some of {', '.join(MODULES)}", name)
        elif shape.spec.moe is None and name in OF_EXPERTS:
            args.fault("recompute_modules", "is recomputed in experts alone, and this model has none", name)
        elif reason := no_such_part(shape.spec, name):
            args.not_modelled.append(f"{args.spelling('recompute_modules')} {name}: {reason}")
        else:
            modules.append(name)
    return {"mode": "selective", "modules": modules} if modules else {}


def _recomputed_layers(args: Arguments) -> dict[str, Any]:
    earlier = args.text("activations_checkpoint_method") or ("uniform" if args.has("checkpoint_activations") else "")
    method = args.choice("recompute_method", earlier, ("", "uniform", "block"))
    if not method:
        args.note_missing("recompute_method", "uniform or block, with --recompute-granularity full")
    count = args.whole("recompute_num_layers")
    if method == "block":
        return {"layers": count}
    if count > 1:
        line = f"--recompute-num-layers {count}: each layer's input is kept, not that of every {count}"
        args.not_modelled.append(line)
    return {}


def _offloaded_share(args: Arguments, shape: Shape) -> float:
    """Of layers, those with activations in host memory; none where the switch is off, as in NeMo's own configs."""
    layers, count = shape.spec.num_hidden_layers, args.whole("cpu_offloading_num_layers", 0, minimum=0)
    if count > layers:
        args.fault("cpu_offloading_num_layers", f"at most the {layers} layers")
    return min(count / layers, 1.0) if args.switch("cpu_offloading", True) else 0.0


def _check_sends(args: Arguments, pp: int, schedule: dict[str, Any]) -> None:
    """Interleaved sends of two stages overlap: else several would be between the same ranks (training/arguments.py)."""
    if pp == 2 and "vpp" in schedule and not args.switch("overlap_p2p_comm", True):
        wanted = f"expected 3 or more beside an interleaved schedule and {args.spelling('overlap_p2p_comm')}"
        args.fault("pipeline_model_parallel_size", wanted)


def _overlap(args: Arguments, sizes: dict[str, int], zero: int, schedule: dict[str, Any]) -> dict[str, Any]:
    """What runs beside computation: gradients that FSDP shards always do (megatron_fsdp.py sets the flag itself)."""
    gradients, params = args.switch("overlap_grad_reduce") or zero >= 2, args.switch("overlap_param_gather")
    if params and zero == 0:
        args.fault("overlap_param_gather", "needs --use-distributed-optimizer", True)
    elif params and not gradients:
        args.fault("overlap_param_gather", "needs --overlap-grad-reduce", True)
    exchanges = args.switch("tp_comm_overlap")
    if exchanges and not args.switch("sequence_parallel"):
        args.fault("tp_comm_overlap", "needs --sequence-parallel", True)
    found = {"dp": gradients, "tp": exchanges and sizes["tp"] > 1, "wgrad": args.switch("delay_wgrad_compute")}
    if zero in (1, 2):
        found["params"] = params
    if sizes["pp"] > 1:  # Megatron-LM overlaps sends of interleaved pipelines only
        found["pp"] = "vpp" in schedule and args.switch("overlap_p2p_comm", True)
    return found


def _experts(args: Arguments, sizes: dict[str, int], machine: Machine) -> dict[str, Any]:
    args.assumed.append("experts.routing = balanced: each expert gets as many tokens")
    capacity = max(args.number("moe_expert_capacity_factor") or 0, 0) or None
    if _dispatcher(args, sizes["ep"]) != "deepep" or sizes["ep"] == 1:
        return {"capacity": capacity}
    groups, chosen = args.optional("moe_router_num_groups"), args.optional("moe_router_group_topk")
    nodes = -(-sizes["ep"] * sizes["etp"] // machine.gpus_per_node)
    limit = chosen * -(-nodes // min(groups, nodes)) if groups and chosen else nodes
    return {"capacity": capacity, "dispatcher": "deepep", "nodes_per_token": limit if limit < nodes else None}


def _dispatcher(args: Arguments, ep: int) -> str:
    """Megatron-LM's own default, a gather of all tokens, is not modelled."""
    kind = args.choice("moe_token_dispatcher_type", "allgather", ("allgather", "alltoall", "alltoall_seq", "flex"))
    if kind == "flex":
        backend = args.choice("moe_flex_dispatcher_backend", "deepep", ("deepep", "hybridep"))
        if backend != "deepep":
            args.not_modelled.append(f"--moe-flex-dispatcher-backend {backend}: as fast as DeepEP, to our knowledge")
        return "deepep"
    if kind == "allgather" and ep > 1:
        args.assumed.append("experts.dispatcher = alltoall: a gather of all tokens is not modelled")
    return "alltoall"
