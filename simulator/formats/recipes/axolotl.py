"""From Axolotl's YAML to what it says of a step, with Axolotl's own defaults."""

from typing import Any

from .arguments import Arguments
from .finetuning import read_adapters, read_attention, read_base, read_loss, read_moments
from .training import WITHIN_SAMPLES, Training, has_fsdp

_OTHER_TRAINING = ("rl", "reward_model", "process_reward_model")
_RINGS = {"varlen_llama3": "all_gather", "batch_ring": "ring", "batch_zigzag": "ring", "batch_stripe": "ring"}
_BACKENDS = {"auto": "ring", "ring": "ring", "usp": "ring", "ulysses": "ulysses"}
_FLAGS = {  # older switches by the attn_implementation that they mean
    "xformers_attention": "xformers",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
_LOSSES = {
    "liger_fused_linear_cross_entropy": "linear",
    "liger_cross_entropy": "kernel",
    "chunked_cross_entropy": "chunks",
}
_PLUGINS = ("liger", "cut_cross_entropy", "kernels", "spectrum", "expert_parallel")


def read_axolotl(args: Arguments, seq_len: int | None) -> Training:
    """The step that the keys describe; `seq_len` in place of the file's. Faults are noted."""
    for name in _OTHER_TRAINING:
        if args.text(name).lower() not in ("", "false"):
            args.fault(name, "not modelled: only steps that train one model on texts, without a reference or reward")
    compute = _compute(args)
    micro = args.whole("micro_batch_size")
    accumulation = args.whole("gradient_accumulation_steps", max(args.whole("batch_size", micro) // micro, 1))
    length = seq_len or args.whole("sequence_len", 512)
    if not seq_len and not args.has("sequence_len"):
        args.assumed.append(f"batch.seq_len = {length}: Axolotl's default")
    if args.switch("sample_packing"):
        args.not_modelled.append(f"sample_packing: {WITHIN_SAMPLES}")
    elif not args.switch("pad_to_sequence_len"):
        args.assumed.append(f"batch.seq_len = {length}: every sequence is as long as sequence_len allows")
    # weights are loaded in 16 bits and trained so (utils/config), but accelerate makes FP32 of them for FSDP 1
    first = has_fsdp(args) and args.whole("fsdp_version", 1) == 1
    more: dict[str, Any] = {"recompute": _recompute(args), "offload": _offload(args), **_loss(args)}
    adapter = args.choice("adapter", "none", ("none", "lora", "qlora"))
    if adapter != "none":
        more["lora"] = read_adapters(args, "lora_r", "lora_target_modules", args.switch("lora_target_linear"))
        double = args.switch("bnb_config_kwargs.bnb_4bit_use_double_quant", True)
        more["lora"] |= read_base(args.switch("load_in_4bit"), double)
    if adapter == "qlora" and not args.switch("load_in_4bit"):  # utils/schemas/validation.py
        args.fault("adapter", "needs load_in_4bit: true")
    axes = _axes(args)
    if axes.get("ep", 1) > 1:
        more["experts"] = {"dispatcher": "deepep"}
    moments = read_moments(args, "optimizer")
    lean = compute in ("bf16", "fp8") and not first and adapter == "none"
    towers = _towers(args, adapters=adapter != "none")
    return Training(length, micro, accumulation, compute, lean, moments, axes, more | _attention(args), towers=towers)


def _towers(args: Arguments, *, adapters: bool) -> dict[str, Any] | None:
    """What towers say where the file has a processor of images: they are trained unless adapters are."""
    if not args.has("processor_type"):
        return None
    return {"frozen": True} if adapters or args.switch("freeze_mm_modules") else {}


def _compute(args: Arguments) -> str:
    half = args.switch("fp16") or args.switch("float16")
    bf16 = args.text("bf16", args.text("bfloat16", "false" if half else "auto")).lower()
    if args.switch("fp8"):
        return "fp8"
    if bf16 in ("auto", "full"):
        args.assumed.append(f"precision.compute = bf16: bf16 is {bf16}, and all GPUs since A100 have it")
        return "bf16"
    if bf16 == "true":
        return "bf16"
    if half:
        return "fp16"
    return "tf32" if args.switch("tf32") else "fp32"


def _axes(args: Arguments) -> dict[str, Any]:
    sizes = {
        "tp": args.whole("tensor_parallel_size"),
        "cp": args.whole("context_parallel.size", args.whole("context_parallel_size")),
        "ep": args.whole("expert_parallel_size"),
    }
    if sizes["cp"] == 1:
        return sizes
    if args.has("context_parallel.size"):
        return sizes | {"cp_type": _context(args)}
    default = "varlen_llama3" if args.switch("sample_packing") else "batch_ring"
    return sizes | {"cp_type": _RINGS[args.choice("ring_attn_func", default, _RINGS)]}


def _context(args: Arguments) -> str:
    """How ranks share a sequence, by the section `context_parallel`."""
    backend = args.choice("context_parallel.backend", "auto", _BACKENDS)
    if backend in ("auto", "usp"):
        why = "is chosen when the run starts" if backend == "auto" else "has rings of groups, which are not modelled"
        args.assumed.append(f"parallel.cp_type = ring: backend {backend} {why}")
    return _BACKENDS[backend]


def _recompute(args: Arguments) -> dict[str, Any]:
    """Layers' inputs are kept; `offload` keeps them in host memory. Reentrant where nothing is said (utils/config)."""
    if args.text("gradient_checkpointing", "false").lower() == "false":
        return {}
    reentrant = args.switch("gradient_checkpointing_kwargs.use_reentrant", True)
    return {"mode": "full"} | ({} if reentrant else {"early_stop": True})


def _offload(args: Arguments) -> dict[str, Any]:
    words = [args.text(name, "false").lower() for name in ("gradient_checkpointing", "activation_offloading")]
    away = words[0] in ("offload", "offload_disk") or words[1] != "false"
    return {"activations": 1.0} if away else {}


def _loss(args: Arguments) -> dict[str, Any]:
    """Of a kind that a plugin or a switch says, else torch's ops one after another."""
    plugins = args.texts("plugins")
    for plugin in plugins:
        if not any(known in plugin for known in _PLUGINS):
            args.not_modelled.append(f"plugins {plugin}: what this plugin changes of a step")
    cut = any("cut_cross_entropy" in plugin for plugin in plugins) and args.switch("cut_cross_entropy", True)
    said = next((kind for name, kind in _LOSSES.items() if args.switch(name)), "passes")
    kind = "linear" if cut else said
    return read_loss(kind, args.switch("liger_rms_norm"), args.switch("liger_glu_activation"))


def _attention(args: Arguments) -> dict[str, Any]:
    """By its key, or by an older switch; transformers takes PyTorch's own where nothing is said."""
    key = next((flag for flag in _FLAGS if args.switch(flag)), "attn_implementation")
    return read_attention(args, key, args.text("attn_implementation", _FLAGS.get(key, "sdpa")))
