"""What trainers on Hugging Face models say in the same words: adapters, optimizers, attention and the loss."""

import re
from typing import Any

from .arguments import Arguments

_TARGETS = {
    "qkv": r"(q|k|v|qkv|query_key_value|wqkv|c_attn|in_proj_qkvz?)(_proj)?|(q_a|q_b|kv_a|kv_b)_proj(_with_mqa)?"
    r"|linear_(q|k|v|qkv)|linear_(q|kv)_(down|up)_proj",
    "proj": r"(o|out|linear)_proj|dense|wo|attn_out",
    "up": r"(gate|up|gate_up)_proj|dense_h_to_4h|w1|w3|(linear_)?fc1|c_fc",
    "down": r"down_proj|dense_4h_to_h|w2|(linear_)?fc2|c_proj",
}
"""Modules that adapters name, by the GEMMs of a layer that a scenario has."""
_PARTS = {"qkv": ("q_proj", "k_proj", "v_proj"), "up": ("gate_proj", "up_proj")}
_STATES = re.compile(
    r"([\w.]+\.)?(paged_)?(fusedadam|adamw_(torch|hf|apex)\w*|adamw|adam|adamw_(8bit|bnb_8bit)|ao_adamw_\w+|flash_adamw?|optimi_adamw)"
)
_KERNELS = {
    "flash_attention_2": "flash-2", "fa2": "flash-2", "sdpa": "flash-2", "auto": "flash-2", "xformers": "flash-2",
    "flash_attention_3": "flash", "fa3": "flash", "flash_attention_4": "flash",
    "eager": "unfused", "disabled": "unfused",
}  # fmt: skip


def read_adapters(args: Arguments, rank: str, targets: str, all_linear: bool, default: int = 8) -> dict[str, Any]:
    """The `[lora]` table of adapters of this rank in these modules; `all_linear`: in every GEMM of a layer."""
    found: dict[str, Any] = {"rank": args.whole(rank, default)}
    modules = [name.rpartition(".")[2].lower() for name in args.texts(targets)]
    if all_linear or "all" in modules or "all-linear" in modules:
        return found
    if not modules:
        args.assumed.append("lora.targets = qkv: PEFT's default for Llama, q_proj and v_proj")
        return found | {"targets": ("qkv",)}
    if any(re.search(r"[\\()|*\[\]]", name) for name in args.texts(targets)):
        args.assumed.append(f"lora.targets = all GEMMs of a layer: {args.spelling(targets)} is a pattern")
        return found
    return found | {"targets": _adapted_gemms(args, targets, modules)}


def read_base(packed: bool, double: bool) -> dict[str, str]:
    """What `[lora]` says of frozen weights in bitsandbytes' 4 bits; `double`: their scales are quantized, too."""
    return {"base": "nf4-double" if double else "nf4"} if packed else {}


def _adapted_gemms(args: Arguments, targets: str, modules: list[str]) -> tuple[str, ...]:
    """The GEMMs of a layer that these modules are parts of; a module without one is named as not modelled."""
    gemms = {name: _gemm(name) for name in modules}
    for name in [name for name, gemm in gemms.items() if gemm is None]:
        args.not_modelled.append(
            f"{args.spelling(targets)} {name}: only qkv, proj, up and down of a layer have adapters"
        )
    for gemm, parts in _PARTS.items():
        missing = [part for part in parts if part not in modules]
        if missing and len(missing) < len(parts):
            present = ", ".join(part for part in parts if part in modules)
            args.assumed.append(f"lora.targets: {present} without {', '.join(missing)} is taken as all of {gemm}")
    adapted = tuple(gemm for gemm in _TARGETS if gemm in gemms.values())
    if not adapted:
        args.fault(targets, "expected some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj")
    return adapted


def _gemm(name: str) -> str | None:
    return next((gemm for gemm, names in _TARGETS.items() if re.fullmatch(names, name)), None)


def read_moments(args: Arguments, key: str) -> str:
    """The type of the optimizer's moments by the optimizer's name; one that is no AdamW is named as not modelled."""
    name = args.text(key, "adamw_torch").lower()
    if not _STATES.fullmatch(name):
        args.not_modelled.append(f"{args.spelling(key)} = {name}: AdamW's states and step are assumed")
        return "fp32"
    if "4bit" in name:
        args.not_modelled.append(f"{args.spelling(key)} = {name}: moments take 8 bits here, where 4 take half of it")
    if name.startswith("paged"):
        args.not_modelled.append(f"{args.spelling(key)} = {name}: states stay on the GPU, and are never paged out")
    return "fp8" if re.search(r"4bit|8bit|fp8", name) else "fp32"


def read_attention(args: Arguments, key: str, implementation: str) -> dict[str, Any]:
    """The kernels of attention by the implementation's name in transformers; `sdpa` is PyTorch's FlashAttention-2."""
    name = implementation.lower().replace("-", "_")
    kernels = _KERNELS.get(name) or ("flash" if re.search(r"flash.?attn?3|flash.?attention3", name) else None)
    if kernels is None:
        args.not_modelled.append(f"{args.spelling(key)} = {name}: FlashAttention-2's kernels are assumed")
        kernels = "flash-2"
    return {"attention": kernels} | ({"attention_dropout": False} if kernels == "unfused" else {})


def read_loss(by_parts: bool, norms: bool = False, gate: bool = False) -> dict[str, Any]:
    """torch's ops over all logits, or a loss that is joined with the last GEMM, some tokens after others.

    Such losses never hold all logits (Liger Kernel, arXiv 2410.10989, 3.2; Cut Cross-Entropy, arXiv 2411.09009).
    Liger's kernels for `norms` keep their input alone, and that for the `gate` computes its activation again.
    """
    memory = {"logits": 0.0} if by_parts else {}
    memory |= ({"norms": 0.0} if norms else {}) | ({"gate": False} if gate else {})
    return {"loss": "fused" if by_parts else "passes"} | ({"memory": memory} if memory else {})


def read_liger(on: bool) -> dict[str, Any]:
    """All of Liger's kernels, as one switch of a trainer sets them, or none."""
    return read_loss(on, norms=on, gate=on)
