"""From LLaMA-Factory's YAML to what it says of a step, with LLaMA-Factory's own defaults and those of transformers."""

from typing import Any

from .arguments import Arguments
from .finetuning import read_adapters, read_attention, read_base, read_liger, read_moments
from .training import TRAINER_MICRO, WITHIN_SAMPLES, Training, let_fsdp_decide

_STAGES = ("pt", "sft")
_TUNING = ("lora", "full", "freeze")
_OTHER_STAGES = ("rm", "ppo", "dpo", "kto")
_OTHER_TUNING = ("oft",)
_ENDS = {"embed_tokens": "embedding", "embeddings": "embedding", "lm_head": "head"}
_OF_MEDIA = (
    "freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model", "image_max_pixels",
    "image_min_pixels", "video_max_pixels", "video_fps", "video_maxlen", "audio_sampling_rate",
)  # fmt: skip
_OTHER_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")


def read_llamafactory(args: Arguments, seq_len: int | None) -> Training:
    """The step that the keys describe; `seq_len` in place of the file's. Faults are noted."""
    _check_kind(args)
    let_fsdp_decide(args)
    tuning = args.choice("finetuning_type", "lora", (*_TUNING, *_OTHER_TUNING))
    compute = _compute(args, tuning)
    length = seq_len or args.whole("cutoff_len", 2048)
    packed = args.switch("packing", args.text("stage", "sft") == "pt") or args.switch("neat_packing")
    if args.switch("neat_packing"):
        args.not_modelled.append(f"neat_packing: {WITHIN_SAMPLES}")
    if not packed:
        args.assumed.append(f"batch.seq_len = {length}: every sequence is as long as cutoff_len allows")
    micro = "per_device_train_batch_size"
    if not args.has(micro):
        args.assumed.append(f"batch.micro = {TRAINER_MICRO}: the default of Hugging Face's Trainer")
    more: dict[str, Any] = {
        "recompute": _recompute(args),
        **read_liger(args.switch("enable_liger_kernel")),
        **read_attention(args, "flash_attn", args.text("flash_attn", "auto")),
    }
    if tuning == "lora":
        targets = "lora_target"
        more["lora"] = read_adapters(args, "lora_rank", targets, not args.has(targets)) | _base(args)
    elif args.gives("quantization_bit"):  # hparams/parser.py
        args.fault("quantization_bit", "needs finetuning_type: lora")
    if tuning == "freeze":
        more["freeze"] = _frozen(args)
    towers = _towers(args, adapters=tuning == "lora")
    if towers is not None and args.switch("freeze_language_model") and tuning != "lora":
        more["freeze"] = {"layers": "all", "embedding": True, "head": True}
    return Training(
        length,
        args.whole(micro, TRAINER_MICRO),
        args.whole("gradient_accumulation_steps"),
        compute,
        lean=args.switch("pure_bf16") and tuning != "lora",
        moments=_moments(args),
        axes=_axes(args),
        more=more,
        towers=towers,
    )


def _frozen(args: Arguments) -> dict[str, Any]:
    """All but the last layers, or with a number below 0 all but the first ones.

    Source: model/adapter.py, _setup_freeze_tuning, which can also train single modules of layers.
    """
    count, extra = args.whole("freeze_trainable_layers", 2, minimum=-10_000), args.texts("freeze_extra_modules")
    if not count:
        args.fault("freeze_trainable_layers", "expected how many of the last layers, or below 0 of the first ones")
    if args.has("freeze_trainable_modules") and "all" not in args.texts("freeze_trainable_modules"):
        name = args.spelling("freeze_trainable_modules")
        args.not_modelled.append(f"{name}: all weights of these layers are trained here")
    if args.switch("use_llama_pro"):
        args.not_modelled.append("use_llama_pro: the last layers are trained here, not every so many")
    if unread := [name for name in extra if name not in _ENDS]:
        args.not_modelled.append(f"freeze_extra_modules = {', '.join(unread)}: frozen here")
    ends = {_ENDS[name] for name in extra if name in _ENDS}
    layers = -count if count > 0 else f"{-count}-"
    return {"layers": layers, "embedding": "embedding" not in ends, "head": "head" not in ends}


def _towers(args: Arguments, *, adapters: bool) -> dict[str, Any] | None:
    """What towers say where the file has images or other media: by default frozen (hparams/finetuning_args.py)."""
    if not any(map(args.has, _OF_MEDIA)) and "mllm" not in args.hint("dataset"):
        return None
    kept = args.switch("freeze_multi_modal_projector", True)
    if not args.switch("freeze_vision_tower", True):
        if kept and not adapters:
            args.not_modelled.append("freeze_multi_modal_projector: a trained tower has a trained projector here")
        return {}
    projector = not adapters and kept
    return {"frozen": True} | ({"frozen_projector": True} if projector else {})


def _base(args: Arguments) -> dict[str, str]:
    """Frozen weights in 4 bits; in 8 bits their GEMMs are other ones."""
    bits, method = args.whole("quantization_bit", 16), args.text("quantization_method", "bnb").lower()
    if bits == 4 and method not in ("bnb", "bitsandbytes", "nf4", "fp4"):
        args.not_modelled.append(f"quantization_method = {method}: 4 bits of bitsandbytes are assumed")
    if bits not in (4, 16):
        args.not_modelled.append(f"quantization_bit = {bits}: frozen weights are in 16 bits here")
    return read_base(bits == 4, args.switch("double_quantization", True))


def _check_kind(args: Arguments) -> None:
    if not args.has("do_train"):
        args.note_missing("do_train", "true: without it LLaMA-Factory does not train")
    elif not args.switch("do_train"):
        args.fault("do_train", "expected true: the file does not train")
    stage = args.choice("stage", "sft", (*_STAGES, *_OTHER_STAGES))
    if stage in _OTHER_STAGES:
        args.fault("stage", "not modelled: expected pt or sft, which train one model without a reference or reward")
    if args.choice("finetuning_type", "lora", (*_TUNING, *_OTHER_TUNING)) in _OTHER_TUNING:
        args.fault("finetuning_type", f"not modelled: expected one of {', '.join(_TUNING)}")
    if args.switch("use_kt"):
        args.fault("use_kt", "not modelled: experts would run on the host's CPUs")
    for name in filter(args.has, ("tensor_model_parallel_size", "pipeline_model_parallel_size")):
        args.fault(name, "not read: of Megatron-LM in LLaMA-Factory; give its arguments as a file of their own")


def _compute(args: Arguments, tuning: str) -> str:
    if args.switch("fp8"):
        return "fp8"
    if args.switch("bf16") or args.switch("pure_bf16"):
        return "bf16"
    if args.switch("fp16"):
        return "fp16"
    launched = args.text("mixed_precision", "no")  # TrainingArguments then takes ACCELERATE_MIXED_PRECISION
    return launched if launched in ("bf16", "fp16") else _compute_without_a_type(args, tuning)


def _compute_without_a_type(args: Arguments, tuning: str) -> str:
    """The checkpoint's type under adapters (extras/misc.py: infer_optim_dtype), but trained weights are made FP32.

    DeepSpeed, whose file then names no type either, makes FP32 of the whole model.
    """
    if tuning == "lora" and not args.has("deepspeed"):
        why = "a frozen model computes in the checkpoint's type, today 16 bits"
        args.assumed.append(f"precision.compute = bf16: neither bf16 nor fp16 is on, and {why}")
        return "bf16"
    compute = "tf32" if args.switch("tf32") else "fp32"
    args.assumed.append(f"precision.compute = {compute}: neither bf16 nor fp16 is on, and the weights are made FP32")
    return compute


def _axes(args: Arguments) -> dict[str, Any]:
    cp = args.whole("sequence_parallel_size")
    if cp == 1:
        return {}
    kinds = {"ulysses": "ulysses", "deepspeed-alst": "ulysses", "zigzag-ring": "ring", "llama3": "all_gather"}
    return {"cp": cp, "cp_type": kinds[args.choice("sequence_parallel_mode", "zigzag-ring", kinds)]}


def _recompute(args: Arguments) -> dict[str, Any]:
    """Layers' inputs are kept unless that is switched off (model/model_utils/checkpointing.py)."""
    if args.switch("disable_gradient_checkpointing"):
        return {}
    return {"mode": "full"} | ({} if args.switch("use_reentrant_gc", True) else {"early_stop": True})


def _moments(args: Arguments) -> str:
    for name in _OTHER_OPTIMIZERS:
        if args.switch(name):
            args.not_modelled.append(f"{name}: AdamW's states and step are assumed")
    return read_moments(args, "optim")
