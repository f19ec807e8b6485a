"""From DeepSpeed's JSON to a scenario: how ZeRO shares a step over GPUs, with DeepSpeed's own defaults.

"auto" is what the trainer says, as transformers' integrations/deepspeed.py fills it in. Defaults are those of
DeepSpeed's runtime/config.py and runtime/zero/config.py.
"""

from collections.abc import Mapping
from typing import Any

from .arguments import Arguments
from .training import HALF, TRAINER_MICRO, WEIGHTS_STAY, Tables, Training

STAGE = "zero_optimization.stage"
_MICRO, _ACCUMULATION, _TOTAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
_BUCKET = "zero_optimization.reduce_bucket_size"
_AHEAD = "zero_optimization.stage3_prefetch_bucket_size"
_BUCKET_SIZE = 500_000_000  # elements
_OVERLAP = "zero_optimization.overlap_comm"
_OF_STAGES = {
    _OVERLAP: (2, 3),
    "zero_optimization.offload_optimizer.device": (1, 2, 3),
    "zero_optimization.cpu_offload": (1, 2, 3),
    "zero_optimization.offload_param.device": (3,),
    "zero_optimization.mics_shard_size": (3,),
    _AHEAD: (3,),
    _BUCKET: (1, 2, 3),
}
"""The stages in which a key has an effect (runtime/engine.py, runtime/zero/config.py)."""
_ADAM = ("adam", "adamw", "fusedadam", "auto")


def read_axes(args: Arguments) -> dict[str, int]:
    """The axes that the file sets: AutoTP, Ulysses, and stages of a pipeline."""
    stages = "pipeline.stages"
    sizes = {
        "tp": args.optional("tensor_parallel.autotp_size", minimum=0) or None,
        "cp": args.optional("sequence_parallel_size"),
        "pp": None if args.text(stages) == "auto" else args.optional(stages),
    }
    found: dict[str, Any] = {axis: size for axis, size in sizes.items() if size and size > 1}
    return found | ({"cp_type": "ulysses"} if "cp" in found else {})


def read_alone(args: Arguments, seq_len: int | None) -> Training:
    """The step of a file that no trainer's file names; its loss is made of torch's ops, as in transformers.

    Where the file sets up DeepSpeed's own activation checkpointing, the model is taken to use it.
    """
    more: dict[str, Any] = {"loss": "passes"}
    if _sets_up_checkpointing(args):
        args.assumed.append("recompute.mode = full: activation_checkpointing says how, not whether")
        away = args.switch("activation_checkpointing.cpu_checkpointing")
        more |= {"recompute": {"mode": "full"}, "offload": {"activations": float(away)}}
    return Training(seq_len or 1, None, None, None, more=more)


def _sets_up_checkpointing(args: Arguments) -> bool:
    parts = ("partition_activations", "cpu_checkpointing", "number_checkpoints", "contiguous_memory_optimization")
    return any(args.text(f"activation_checkpointing.{part}", "false").lower() != "false" for part in parts)


def share_by_deepspeed(args: Arguments, training: Training, hidden: int, dp: int) -> tuple[Tables, dict[str, Any]]:
    """What ZeRO makes of a step: tables of the scenario, and the batch and other keys; faults are noted.

    `hidden` is the model's width, of which transformers makes the bucket where that is "auto".
    """
    stated, compute = _stage(args), _compute(args, training)
    types = _types(args, training, compute, stated)
    stage = stated or _stage_of_bf16(args, compute, types)
    _note_idle_keys(args, stated)
    tables: Tables = {
        "parallel": {"zero": stage},
        "precision": {"compute": compute, **types},
        "offload": _offload(args) if stated else {},
        "overlap": {"dp": _overlaps(args, stated)},
    }
    if stage in (1, 2):  # new weights are gathered behind the optimizer's step
        tables["overlap"]["params"] = False
    if stage == 3:
        tables["parallel"] |= _groups(args, dp) | _prefetch(args)
    if training.compute and _sets_up_checkpointing(args):
        args.not_modelled.append("activation_checkpointing: the trainer's own keys say what is recomputed")
    if stated in (1, 2) and not args.switch("zero_optimization.reduce_scatter", True):
        args.not_modelled.append("zero_optimization.reduce_scatter = false: an all-reduce moves twice as many bytes")
    _check_optimizer(args)
    micro, total = _batch(args, training, dp)
    batch = {"global": total, "micro": micro, "seq_len": training.seq_len}
    bucket = _bucket(args, hidden) if stated else _BUCKET_SIZE
    return tables | {"batch": batch}, ({"bucket": bucket} if stage in (1, 2) else {})


def _stage(args: Arguments) -> int:
    stage = args.whole(STAGE, int(args.switch("zero_optimization")), minimum=0)  # true alone is stage 1
    if stage > 3:
        args.fault(STAGE, "expected 0 to 3")
        return 3
    if stage > 1 and args.has("pipeline.stages") and read_axes(args).get("pp"):
        args.fault(STAGE, "expected 0 or 1 with stages of a pipeline")
    return stage


def _overlaps(args: Arguments, stage: int) -> bool:
    """Whether gradients travel beside the backward (runtime/engine.py: _configure_zero_optimizer)."""
    return args.switch(_OVERLAP, stage == 3) and stage in _OF_STAGES[_OVERLAP]


def _stage_of_bf16(args: Arguments, compute: str, types: Mapping[str, Any]) -> int:
    """The stage that BF16 without ZeRO is: its optimizer keeps a share of the states (runtime/bf16_optimizer.py).

    It is chosen where gradients are summed in FP32 (runtime/engine.py: _do_optimizer_sanity_check).
    """
    autocast = args.switch("torch_autocast.enabled")
    if autocast or compute not in ("bf16", "fp8") or types["gradients"] != "fp32":
        return 0
    args.assumed.append("parallel.zero = 1: with stage 0 DeepSpeed's BF16_Optimizer shards weights in FP32 and moments")
    args.not_modelled.append(f"{STAGE} = 0: gradients are all-reduced, which moves twice as many bytes")
    return 1


def _note_idle_keys(args: Arguments, stage: int) -> None:
    """Say which keys are of another stage than the file's."""
    for name, stages in _OF_STAGES.items():
        if args.gives(name) and stage not in stages:
            args.assumed.append(f"{args.spelling(name)} has no effect with stage {stage}")
    if stage == 3 and args.has(_BUCKET):
        args.not_modelled.append(f"{_BUCKET} = {args.hint(_BUCKET)}: with stage 3 each layer's gradients are a bucket")


def _is_auto(args: Arguments, name: str) -> bool:
    return not args.has(name) or args.text(name).lower() == "auto"


def _compute(args: Arguments, training: Training) -> str:
    """The type of computation: the trainer's, with which this file must agree; without a trainer's file, this one's."""
    stated = {name: args.switch(f"{name}.enabled") for name in HALF if not _is_auto(args, f"{name}.enabled")}
    on = [name for name, enabled in stated.items() if enabled]
    if len(on) > 1:
        args.fault("fp16.enabled", "cannot go with bf16.enabled")
    elif training.compute and (wrong := _find_contradiction(stated, training.compute)):
        allowed = f"the trainer's own file computes in {training.compute}; expected the same, or auto"
        args.fault(f"{wrong}.enabled", allowed)
    if training.compute:
        return training.compute
    if on:
        return on[0]
    if args.switch("torch_autocast.enabled"):
        return _autocast(args)
    if any(args.text(f"{name}.enabled").lower() == "auto" for name in HALF):
        args.assumed.append("precision.compute = bf16: bf16 is auto, and no trainer's file says it")
        return "bf16"
    return "fp32"


def _autocast(args: Arguments) -> str:
    """The type of products under torch's autocast (runtime/torch_autocast.py), which leaves the weights in FP32."""
    args.not_modelled.append("torch_autocast: weights are in FP32 alone; here with a copy in 16 bits")
    short = {"bfloat16": "bf16", "float16": "fp16", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
    return short[args.choice("torch_autocast.dtype", "bfloat16", short)]


def _find_contradiction(stated: Mapping[str, bool], compute: str) -> str | None:
    """The type that is on or off against the trainer's; FP8 has BF16 beside it, on or not."""
    if compute == "fp8":
        return "fp16" if stated.get("fp16") else None
    on_first = sorted(stated, key=stated.__getitem__, reverse=True)
    return next((name for name in on_first if stated[name] != (name == compute)), None)


def _types(args: Arguments, training: Training, compute: str, stage: int) -> dict[str, Any]:
    """Types of gradients and moments: DeepSpeed keeps weights in FP32 beside those in 16 bits.

    Gradients are kept in the type of the model, but for BF16 without ZeRO in FP32, and travel in the type of the model
    (runtime/engine.py: get_data_types, communication_data_type).
    """
    if compute in ("fp32", "tf32") or args.switch("torch_autocast.enabled"):
        return {"gradients": "fp32", "reduce": "fp32", "moments": training.moments}
    kept = args.choice("data_types.grad_accum_dtype", "", ("", "fp32", "fp16", "bf16"))
    kept = kept or ("fp32" if compute in ("bf16", "fp8") and stage == 0 else "bf16")
    sent = args.choice("communication_data_type", "", ("", "fp32", "fp16", "bf16"))
    if compute == "fp16" and kept != "fp32":
        args.assumed.append("precision.gradients = bf16: fp16 gradients, which take as many bytes")
    types = {"gradients": kept, "reduce": sent or "bf16"}
    return {key: "fp32" if name == "fp32" else "bf16" for key, name in types.items()} | {"moments": training.moments}


def _offload(args: Arguments) -> dict[str, Any]:
    """The optimizer in host memory; its states on a disk, and weights in host memory, are named as not modelled."""
    where = "zero_optimization.offload_{}.device"
    known = ("none", "cpu", "nvme")
    optimizer, weights = (args.choice(where.format(name), "none", known) for name in ("optimizer", "param"))
    old = args.switch("zero_optimization.cpu_offload")
    if optimizer == "nvme":
        args.not_modelled.append(f"{where.format('optimizer')} = nvme: states are in host memory; a disk takes longer")
    if weights != "none" and _stage(args) == 3:
        args.not_modelled.append(f"{where.format('param')} = {weights}: {WEIGHTS_STAY}")
    return {"optimizer": old or optimizer != "none"}


def _groups(args: Arguments, dp: int) -> dict[str, Any]:
    """MiCS: weights are sharded over a part of the ranks, and these groups hold replicas."""
    name = "zero_optimization.mics_shard_size"
    size = args.whole(name, -1, minimum=-1)
    if size <= 0 or size == dp:
        return {}
    if dp % size:
        args.fault(name, f"must divide the {dp} data-parallel ranks")
    return {"shard": size}


def _prefetch(args: Arguments) -> dict[str, Any]:
    """Nothing is gathered ahead with a bucket of 0 (runtime/zero/partitioned_param_coordinator.py)."""
    if args.has(_AHEAD) and args.hint(_AHEAD) in ("0", "0.0"):
        return {"prefetch": 0, "prefetch_backward": 0}
    if args.has(_AHEAD):
        line = f"{_AHEAD} = {args.hint(_AHEAD)}: how far ahead weights are gathered is parallel.prefetch, in layers"
        args.not_modelled.append(line)
    return {}


def _bucket(args: Arguments, hidden: int) -> int:
    """Elements of a gradient bucket."""
    if not args.has(_BUCKET):
        return _BUCKET_SIZE
    if _is_auto(args, _BUCKET):
        return hidden * hidden
    size = args.number(_BUCKET)
    if size is not None and size < 1:
        args.fault(_BUCKET, "expected a number of elements from 1 on")
    return max(int(size or 0), 1)


def _check_optimizer(args: Arguments) -> None:
    name = args.text("optimizer.type", "auto")
    if name.lower() not in _ADAM:
        args.not_modelled.append(f"optimizer.type = {name}: AdamW's states and step are assumed")


def _batch(args: Arguments, training: Training, dp: int) -> tuple[int, int]:
    """Sequences of a micro-batch and of a step: two of the three keys say the third one, as in DeepSpeed."""
    micro, accumulation = _agree_on(args, _MICRO, training.micro), _agree_on(args, _ACCUMULATION, training.accumulation)
    total = None if _is_auto(args, _TOTAL) else args.whole(_TOTAL)
    if total is None:
        if micro is None:
            args.assumed.append(f"batch.micro = {TRAINER_MICRO}: the default of Hugging Face's Trainer")
        micro, accumulation = micro or TRAINER_MICRO, accumulation or 1
        return micro, micro * accumulation * dp
    share = (micro or 1) * (accumulation or 1) * dp
    known = f"micro {micro or '?'} x accumulation {accumulation or '?'} x dp {dp}"
    if total % share:
        args.fault(_TOTAL, f"{known}: {share} must divide it")
    elif micro and accumulation and total != share:
        args.fault(_TOTAL, f"{known} = {share} is expected")
    return micro or max(total // ((accumulation or 1) * dp), 1), total


def _agree_on(args: Arguments, name: str, own: int | None) -> int | None:
    """A size that the file or the trainer says, None where neither does."""
    if _is_auto(args, name):
        return own
    size = args.whole(name)
    if own is not None and own != size:
        args.fault(name, f"the trainer's own file says {own}; expected the same, or auto")
    return size
