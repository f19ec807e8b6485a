"""From a run script or a config of verl to the step of its actor and the update of its engines' weights."""

from collections.abc import Mapping
from typing import Any

from .additions import Additions
from .arguments import Arguments, Machine
from .finetuning import read_adapters
from .hugging_face import find_model
from .megatron import note_started, read_megatron
from .model_names import last_part, preset_of
from .reinforcement import (
    ADAPTERS_ALONE,
    LOG_PROBABILITIES,
    Engines,
    Lengths,
    align,
    describe_update,
    fit_micro,
    is_in_eight_bits,
    spread_attention,
)
from .shapes import Shape
from .trainers import Files, TrainerStep
from .training import Training

PREFIX = "actor_rollout_ref"
_ENGINES = ("fsdp", "fsdp2", "megatron", "veomni", "torchtitan", "automodel", "mindspeed")
_READ = ("fsdp", "fsdp2", "megatron")
_BUCKET_MEGABYTES = 2048
"""Of CheckpointEngineConfig (verl/workers/config/rollout.py), which senders to engines on the same GPUs fill too."""
_TYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16"}
_MICRO = "actor.ppo_micro_batch_size_per_gpu"


def read_verl(
    args: Arguments, machine: Machine, additions: Additions
) -> tuple[dict[str, Any], Mapping[str, Any] | None, dict[str, Any] | None]:
    """The actor's step, the model's config where it is no preset, and the update; faults are noted or raised."""
    engine = _engine(args)
    shape = _model(args, additions.model)
    axes = _axes(args, engine)
    length = _sequence(args, additions.seq_len, axes)
    total = _total(args)
    if engine == "megatron":
        table = _by_megatron(args, machine, shape, length, total)
    else:
        table = _by_fsdp(args, machine, shape, length, total)
    _note_passes(args)
    # with model.lora.merge adapters are merged into the weights, which travel (trainer/config/model/hf_model.yaml)
    if "lora" in table and not args.switch("model.lora.merge"):
        args.assumed.append(f"no weight update: {ADAPTERS_ALONE}")
        return table, shape.config, None
    return table, shape.config, _update(args, machine, table, experts=shape.spec.moe is not None)


def _engine(args: Arguments) -> str:
    """Who trains the actor: by its strategy, by the config's name, or by keys that one of them has."""
    hints = f"{args.hint('config_name')} {args.hint('model_engine')}"
    given = "megatron" if "megatron" in hints or args.has("tensor_model_parallel_size") else "fsdp"
    named = args.text("model_engine") if args.hint("model_engine") in _ENGINES else given
    engine = args.choice("actor.strategy", named, _ENGINES)
    if engine not in _READ:
        key = "actor.strategy" if args.has("actor.strategy") else "model_engine"
        args.fault(key, f"not read: expected one of {', '.join(_READ)}", engine)
        args.check()
    return engine


def _model(args: Arguments, stated: str | None) -> Shape:
    """By `--model`, or by the last part of a path, whose folders may be variables that nobody assigns."""
    path = args.hint("model.path")
    found = None if stated else preset_of(path)
    if found is not None:
        args.assumed.append(f"model.preset = {found}: the shape of {last_part(path)}, by its name")
    return find_model(args, "model.path", stated or found)


def _axes(args: Arguments, engine: str) -> tuple[int, int]:
    """tp and cp."""
    if engine == "megatron":
        return args.whole("tensor_model_parallel_size"), args.whole("context_parallel_size")
    return 1, args.whole("actor.ulysses_sequence_parallel_size")


def _sequence(args: Arguments, stated: int | None, axes: tuple[int, int]) -> int:
    prompt, answer = (args.whole(f"data.max_{part}_length", 512) for part in ("prompt", "response"))
    length = align(stated or prompt + answer, *axes)
    if not stated:
        args.assumed.append(f"batch.seq_len = {length}: every prompt ({prompt}) and answer ({answer}) has full length")
    return length


def _total(args: Arguments) -> int:
    """Sequences of an optimizer's step: prompts of a mini-batch, with `n` answers each."""
    prompts, n = args.whole("actor.ppo_mini_batch_size", 256), args.whole("rollout.n")
    batch, epochs = args.whole("data.train_batch_size", 1024), args.whole("actor.ppo_epochs")
    steps = max(batch // prompts, 1) * epochs
    args.assumed.append(
        f"batch.global = {prompts * n}: {prompts} prompts of a mini-batch, n = {n} for each; {steps} steps a rollout"
    )
    return prompts * n


def _micro(args: Arguments, dp: int, length: int, total: int, cp: int) -> int:
    """Sequences of a micro-batch of a data-parallel rank."""
    if args.switch("actor.use_dynamic_bsz"):
        key = "actor.ppo_max_token_len_per_gpu"
        return fit_micro(args, total, dp, Lengths(length, args.whole(key, 16384) * cp), key)
    if not args.has(_MICRO) and args.has("actor.ppo_micro_batch_size"):
        return max(args.whole("actor.ppo_micro_batch_size") // dp, 1)
    if not args.has(_MICRO):
        args.note_missing(_MICRO, "sequences of a micro-batch, or actor.use_dynamic_bsz")
    return args.whole(_MICRO)


def _by_megatron(args: Arguments, machine: Machine, shape: Shape, length: int, total: int) -> dict[str, Any]:
    """Megatron-LM, with verl's own defaults (trainer/config/engine/megatron.yaml)."""
    tp, cp, pp = (args.whole(f"{axis}_parallel_size") for axis in ("tensor_model", "context", "pipeline_model"))
    dp = max(machine.gpus // (tp * cp * pp), 1)
    micro = _micro(args, dp, length, total, cp)
    if not args.has("use_distributed_optimizer"):
        args.imply("use_distributed_optimizer", "true")
    if tp == 1 or not args.has("sequence_parallel"):
        args.imply("sequence_parallel", str(tp > 1).lower())
    if args.switch("model.enable_gradient_checkpointing"):
        key = args.spelling("model.enable_gradient_checkpointing")
        args.not_modelled.append(f"{key}: Megatron-LM recomputes what override_transformer_config says")
    args.imply("fp16" if _TYPES.get(args.text("actor.megatron.dtype")) == "fp16" else "bf16", "true")
    args.imply("micro_batch_size", min(micro, max(total // dp, 1)), args.spelling(_MICRO))
    args.imply("global_batch_size", total, args.spelling("actor.ppo_mini_batch_size"))
    args.imply("seq_length", length, args.spelling("data.max_response_length"))
    if args.text("moe_token_dispatcher_type", "allgather") == "allgather":
        args.imply("moe_token_dispatcher_type", "alltoall")
    args.check()
    table, _ = read_megatron(args, machine, shape)
    return table | _adapters(args)


def _by_fsdp(args: Arguments, machine: Machine, shape: Shape, length: int, total: int) -> dict[str, Any]:
    """FSDP, with verl's own defaults (trainer/config/engine/fsdp.yaml): FP32 weights, computed in 16 bits.

    Log probabilities come from one kernel, that of flash-attn (utils/torch_functional.py).
    """
    cp = args.whole("actor.ulysses_sequence_parallel_size")
    dp = max(machine.gpus // cp, 1)
    micro = _micro(args, dp, length, total, cp)
    share = total // dp
    if total % dp or share % min(micro, max(share, 1)):
        args.fault(
            "actor.ppo_mini_batch_size", f"{total} sequences must be whole micro-batches of {micro} on {dp} ranks"
        )
        args.check()
    micro = min(micro, share)
    args.imply("distributed_type", "FSDP")
    args.imply("sync_each_batch", str(not args.switch("no_sync")).lower())
    size = args.whole("fsdp_size", -1, minimum=-1)
    if 0 < size < machine.gpus:
        args.imply("dp_replicate_size", machine.gpus // size, args.spelling("fsdp_size"))
    checkpointing = args.switch("model.enable_gradient_checkpointing", True)
    more: dict[str, Any] = {
        "loss": "fused",
        "memory": {"logits": 2.0},  # inplace_backward: the gradient is written over them
        "recompute": {"mode": "full", "early_stop": True} if checkpointing else {},
        "offload": {"activations": 1.0} if args.switch("model.enable_activation_offload") else {},
        **_adapters(args),
    }
    axes: dict[str, Any] = {"cp": cp, "cp_type": "ulysses"} if cp > 1 else {}
    compute = _TYPES.get(args.text("fsdp_dtype", "bfloat16"), "bf16")
    lean = _TYPES.get(args.text("model_dtype", "fp32")) == "bf16" and "lora" not in more
    training = Training(length, micro, share // micro, compute, lean, axes=axes, more=more)
    table = TrainerStep(Files(args, None, None), machine, shape, training).table()
    table["precision"]["reduce"] = "fp32"
    note_started(args, machine)
    return table


def _adapters(args: Arguments) -> dict[str, Any]:
    if not args.whole("model.lora_rank", 0, minimum=0):
        return {}
    targets = args.text("model.target_modules", "all-linear")
    return {"lora": read_adapters(args, "model.lora_rank", "model.target_modules", targets == "all-linear")}


def _note_passes(args: Arguments) -> None:
    args.not_modelled.append(LOG_PROBABILITIES)
    if args.text("algorithm.adv_estimator", "gae") == "gae":
        args.not_modelled.append("algorithm.adv_estimator = gae: the critic's own step takes about as long again")


def _engine_axes(args: Arguments, experts: bool) -> tuple[int, int]:
    """tp and ep of an engine; copies of attention, each for requests of its own, share its experts alone."""
    tp, ep = args.whole("rollout.tensor_model_parallel_size", 2), args.whole("rollout.expert_parallel_size")
    copies = args.whole(key := "rollout.data_parallel_size")
    return spread_attention(args, tp * copies, copies, ep, key) if experts and copies > 1 else (tp, ep)


def _update(args: Arguments, machine: Machine, step: Mapping[str, Any], experts: bool) -> dict[str, Any]:
    """From the actor to its engines: on the same GPUs, or by NCCL where engines have nodes of their own."""
    nodes = args.whole("rollout.nnodes", 0, minimum=0)
    each = args.whole("rollout.n_gpus_per_node", machine.gpus_per_node)
    update: dict[str, Any] = {"method": "single_sender"} if nodes else {"method": "colocated", "messages": "bucket"}
    update["bucket"] = args.whole("rollout.update_weights_bucket_megabytes", _BUCKET_MEGABYTES) * 2**20
    if "fp8" in args.hint("rollout.quantization").lower():
        update["quantize"] = "after"
    elif is_in_eight_bits(step["model"]):
        args.assumed.append(
            "model.overrides.quantization_config = {}: engines have 16 bits where rollout.quantization is none"
        )
    tp, ep = _engine_axes(args, experts)
    return describe_update(step, machine, Engines(tp, ep, nodes * each or None), update, "verl")
