"""From the YAML of Hugging Face's trainer to what it says of a step: TrainingArguments, as TRL's scripts read them.

TRL adds the model, how long sequences are, and adapters (SFTConfig, ModelConfig) to transformers' TrainingArguments.
"""

from typing import Any

from .arguments import Arguments
from .finetuning import read_adapters, read_attention, read_base, read_loss, read_moments
from .training import TRAINER_MICRO, WITHIN_SAMPLES, Training, let_fsdp_decide

_LENGTH = 1024  # max_length of TRL's SFTConfig
_LOSS = "chunked_nll"


def read_trl(args: Arguments, seq_len: int | None) -> Training:
    """The step that the keys describe; `seq_len` in place of the file's. Faults are noted."""
    length = seq_len or args.whole("max_length", _LENGTH)
    let_fsdp_decide(args)
    micro = "per_device_train_batch_size"
    if not seq_len and not args.has("max_length"):
        args.assumed.append(f"batch.seq_len = {length}: TRL's default of max_length")
    elif not args.switch("packing"):
        args.assumed.append(f"batch.seq_len = {length}: every sequence is as long as max_length allows")
    # trainer/sft_trainer.py: all but `wrapped` keep samples apart, each with positions of its own
    if args.switch("packing") and args.text("packing_strategy", "bfd") != "wrapped":
        args.not_modelled.append(f"packing: {WITHIN_SAMPLES}")
    if not args.has(micro):
        args.assumed.append(f"batch.micro = {TRAINER_MICRO}: the default of Hugging Face's Trainer")
    more: dict[str, Any] = {
        "recompute": _recompute(args),
        **_loss(args),
        **read_attention(args, "attn_implementation", args.text("attn_implementation", "sdpa")),
    }
    if args.switch("use_peft"):
        more["lora"] = read_adapters(args, "lora_r", "lora_target_modules", all_linear=False, default=16)
        more["lora"] |= read_base(args.switch("load_in_4bit"), args.switch("use_bnb_nested_quant"))
    elif args.switch("load_in_4bit"):  # transformers' trainer.py: no fine-tuning on purely quantized models
        args.fault("load_in_4bit", "needs use_peft: true", True)
    lean = "lora" not in more and _is_half(args)
    return Training(
        length,
        args.whole(micro, TRAINER_MICRO),
        args.whole("gradient_accumulation_steps"),
        _compute(args),
        lean=lean,
        moments=read_moments(args, "optim"),
        more=more,
    )


def _is_half(args: Arguments) -> bool:
    """Whether the model is loaded, and its weights kept, in 16 bits."""
    kind = args.choice("dtype", "float32", ("float32", "auto", "bfloat16", "float16"))
    if kind == "auto":
        args.assumed.append("precision.master = false: dtype is auto, and checkpoints of today are in 16 bits")
    elif kind == "float16":
        args.assumed.append("precision.gradients = bf16: dtype is float16, which takes as many bytes")
    return kind != "float32"


def _loss(args: Arguments) -> dict[str, Any]:
    """torch's, or by parts of the logits: with Liger's kernels, or in chunks of tokens (`chunked_nll`)."""
    kind, liger = args.choice("loss_type", _LOSS, (_LOSS, "nll", "dft")), args.switch("use_liger_kernel")
    if not args.has("loss_type") and not liger:
        args.assumed.append(
            f"loss = fused: loss_type is {_LOSS}, the default of TRL 1.6; older ones have nll, in passes"
        )
    return read_loss("linear" if liger or kind == _LOSS else "passes", norms=liger, gate=liger)


def _compute(args: Arguments) -> str:
    """TRL computes in BF16 unless it is told otherwise; plain TrainingArguments would in FP32."""
    if args.switch("fp16"):
        return "fp16"
    if args.switch("bf16", True):
        return "bf16"
    return "tf32" if args.switch("tf32") else "fp32"


def _recompute(args: Arguments) -> dict[str, Any]:
    """TRL keeps layers' inputs alone unless it is told otherwise, and is not reentrant since transformers 5."""
    if not args.switch("gradient_checkpointing", True):
        return {}
    reentrant = args.switch("gradient_checkpointing_kwargs.use_reentrant")
    return {"mode": "full"} | ({} if reentrant else {"early_stop": True})
