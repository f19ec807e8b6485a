"""From NeMo AutoModel's YAML to what it says of a step: FSDP2 on Hugging Face models, as nemo_automodel sets it up."""

from collections.abc import Mapping
from typing import Any

from .arguments import Arguments
from .finetuning import read_adapters, read_attention, read_base, read_loss, read_moments
from .training import WITHIN_SAMPLES, Training

_STRATEGIES = {"fsdp2": "FULL_SHARD", "megatron_fsdp": "FULL_SHARD", "ddp": ""}
_MANAGERS = {"fsdp2manager": "fsdp2", "megatronfsdpmanager": "megatron_fsdp", "ddpmanager": "ddp"}
_PIPELINES = ("1f1b", "interleaved1f1b")
_KERNELS = {"te": "flash", "flex": "flex_attention", "sdpa": "sdpa"}
_FP8 = {"current": "fp8", "block": "fp8-block", "mxfp8": "mxfp8"}
_RESHARD = "fsdp_config.reshard_after_forward"
_AXES = {
    "tp": "tensor_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_parallel_size",
    "ep": "expert_parallel_size",
}


def read_automodel(args: Arguments, seq_len: int | None) -> Training:
    """The step that the keys describe; `seq_len` in place of the file's. Faults are noted."""
    local = args.whole("step_scheduler.local_batch_size")
    axes: dict[str, Any] = {axis: args.whole(name) for axis, name in _AXES.items()}
    if axes["cp"] > 1:
        axes["cp_type"] = "ring"
    has_adapters = args.has("peft.dim")
    loss = "linear" if "FusedLinear" in args.text("loss") else "passes"
    more: dict[str, Any] = {
        "recompute": {"mode": "full", "early_stop": True} if args.switch("activation_checkpointing") else {},
        **read_loss(loss, norms=True, gate=True),  # kernels of Liger, or of Transformer Engine
        **_attention(args),
    }
    if has_adapters:
        more["lora"] = read_adapters(args, "peft.dim", "peft.target_modules", args.switch("peft.match_all_linear"))
        double = args.switch("quantization.bnb_4bit_use_double_quant", True)
        more["lora"] |= read_base(args.switch("quantization.load_in_4bit"), double)
    if axes["ep"] > 1 and (args.switch("enable_deepep") or args.text("dispatcher") in ("deepep", "hybridep")):
        more["experts"] = {"dispatcher": "deepep"}
    towers = _towers(args)
    if towers is not None and not has_adapters and (frozen := _frozen(args)):
        more["freeze"] = frozen
    _share(args, axes)
    return Training(
        seq_len or _length(args),
        args.whole("pipeline.microbatch_size", local) if axes["pp"] > 1 else local,
        None,
        _compute(args),
        lean=not has_adapters,
        moments=read_moments(args, "optimizer"),
        axes=axes,
        more=more,
        total=args.optional("step_scheduler.global_batch_size"),
        chunk=_chunk(args) if axes["pp"] > 1 else None,
        at_once=local,
        rounds_up=args.choice("pipeline.round", "down", ("up", "down")) == "up",
        reduce="fp32",  # MixedPrecisionPolicy of nemo_automodel's FSDP2Config
        towers=towers,
    )


def _towers(args: Arguments) -> dict[str, Any] | None:
    """What towers say in a recipe for images or sounds: that of images is frozen by default (utils/model_utils.py)."""
    if not args.has_section("freeze_config") and not args.has_section("processor"):
        return None
    frozen = args.switch("freeze_config.freeze_vision_tower", args.has_section("freeze_config"))
    if args.has("freeze_config.freeze_audio_tower"):
        args.switch("freeze_config.freeze_audio_tower")
        args.not_modelled.append("freeze_config.freeze_audio_tower: all towers are as freeze_vision_tower says")
    return {"frozen": True} if frozen else {}


def _frozen(args: Arguments) -> dict[str, Any]:
    """What of the language model is frozen; the output matrix is another one."""
    if args.switch("freeze_config.freeze_language_model"):
        return {"layers": "all", "embedding": True, "head": True}
    return {"embedding": True} if args.switch("freeze_config.freeze_embeddings") else {}


def _compute(args: Arguments) -> str:
    """The type of GEMMs: torchao's FP8, or Transformer Engine's by its recipe."""
    if args.has("te_fp8.recipe"):
        return _FP8[args.choice("te_fp8.recipe", "current", _FP8)]
    return "fp8" if args.switch("fp8.enabled") else "bf16"


def _share(args: Arguments, axes: Mapping[str, Any]) -> None:
    """Say in Trainer's words who shares the model: FSDP2, unless the file names another strategy.

    Weights stay after the forward in pipelines and in models with experts (nemo_automodel 0.7,
    distributed/parallelizer.py and MoEParallelizerConfig).
    """
    named = args.text("distributed.manager").rpartition(".")[2].lower()
    strategy = args.choice("distributed.strategy", _MANAGERS.get(named, "fsdp2"), _STRATEGIES)
    if _STRATEGIES[strategy]:
        args.imply("fsdp", _STRATEGIES[strategy])
    if not args.switch("defer_fsdp_grad_sync", True):
        args.imply("sync_each_batch", "true")
    has_experts = axes["ep"] > 1 or args.has("dispatcher") or args.has("enable_deepep")
    if not args.has(_RESHARD) and (axes["pp"] > 1 or has_experts):
        args.imply(_RESHARD, "false")


def _length(args: Arguments) -> int:
    """Tokens of a sequence: packed ones, else those of the data set; a fault where neither is given."""
    packed = args.whole("packed_sequence_size", 0, minimum=0)
    if packed:
        args.not_modelled.append(f"{args.spelling('packed_sequence_size')}: {WITHIN_SAMPLES}")
        return packed
    if not args.has("seq_len"):
        args.note_missing("seq_len", "tokens of a sequence, which the data set leaves open; give --seq-len")
    elif "mock" not in args.hint("dataset").lower():
        args.assumed.append(
            f"batch.seq_len = {args.whole('seq_len')}: every sequence is as long as the data set allows"
        )
    return args.whole("seq_len")


def _attention(args: Arguments) -> dict[str, Any]:
    backend = args.text("attn").lower()
    key = "attn" if backend else "attn_implementation"
    if _KERNELS.get(backend) == "flash":
        return {"attention": "flash"}
    return read_attention(args, key, _KERNELS.get(backend, backend) or args.text("attn_implementation", "sdpa"))


def _chunk(args: Arguments) -> int | None:
    """Layers of a stage of an interleaved pipeline; None for one stage per rank."""
    schedule = args.choice("pipeline.schedule", "1f1b", _PIPELINES)
    return args.optional("pipeline.layers_per_stage") if schedule == "interleaved1f1b" else None
