"""What trainers on Hugging Face models say in the same words: adapters, optimizers, attention and the loss."""

import re
from collections.abc import Mapping
from typing import Any

from ...models import ModelSpec
from ...models.shard import ALL_LINEAR, PRODUCTS
from ...models.states import adapter_modules
from .arguments import Arguments

_MODULES = {
    **{f"{one}_proj": rf"(linear_)?{one}(_proj)?" for one in "qkv"},
    "q_a_proj": r"q_a_proj|linear_q_down_proj", "q_b_proj": r"q_b_proj|linear_q_up_proj",
    "kv_a_proj_with_mqa": r"kv_a_proj(_with_mqa)?|linear_kv_down_proj", "kv_b_proj": r"kv_b_proj|linear_kv_up_proj",
    "qkv": r"(qkv|query_key_value|wqkv|c_attn|in_proj_qkvz?)(_proj)?|linear_qkv",
    "proj": r"(o|out|linear)_proj|dense|wo|attn_out",
    "gate_proj": r"gate_proj|w1|linear_fc1_gate", "up_proj": r"up_proj|w3|linear_fc1_up",
    "up": r"gate_up_proj|dense_h_to_4h|(linear_)?fc1|c_fc",
    "down": r"down_proj|dense_4h_to_h|w2|(linear_)?fc2|c_proj",
}  # fmt: skip
"""What `lora.targets` names, by the modules that adapters name."""
_PRODUCTS = {
    "qkv": ("q_proj", "k_proj", "v_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
    "up": ("gate_proj", "up_proj"),
}
"""Products of several modules, which some models have as one."""
_STATES = re.compile(
    r"([\w.]+\.)?(paged_)?(fusedadam|adamw_(torch|hf|apex)\w*|adamw|adam|adamw_(8bit|bnb_8bit)|ao_adamw_\w+|flash_adamw?|optimi_adamw)"
)
_KERNELS = {
    "flash_attention_2": "flash-2", "fa2": "flash-2", "sdpa": "flash-2", "auto": "flash-2", "xformers": "flash-2",
    "flash_attention_3": "flash", "fa3": "flash", "flash_attention_4": "flash",
    "eager": "unfused", "disabled": "unfused",
}  # fmt: skip

LOSSES = {
    # torch's ops over all logits: what they hold is the stack's
    "passes": None,
    # joined with the last GEMM, some tokens after others (arXiv 2410.10989, 3.2; arXiv 2411.09009)
    "linear": 0.0,
    # logits in 16 bits, and in FP32 (transformers, loss_utils.py), where Liger's kernel writes the gradient over them
    "kernel": 6.0,
    # logits and their gradient in 16 bits, by a compiled kernel a chunk (Axolotl, monkeypatch/loss/chunked.py)
    "chunks": 4.0,
}
"""Kinds of losses, with the bytes that they hold of each logit."""


def read_adapters(args: Arguments, rank: str, targets: str, all_linear: bool, default: int = 8) -> dict[str, Any]:
    """The `[lora]` table of adapters of this rank in these modules; `all_linear`: in every linear module of a layer."""
    found: dict[str, Any] = {"rank": args.whole(rank, default)}
    modules = [name.rpartition(".")[2].lower() for name in args.texts(targets)]
    if all_linear or "all" in modules or ALL_LINEAR in modules:
        return found | {"targets": (ALL_LINEAR,)}
    if not modules:
        args.assumed.append("lora.targets = q_proj and v_proj: PEFT's default for Llama")
        return found | {"targets": ("q_proj", "v_proj")}
    if any(re.search(r"[\\()|*\[\]]", name) for name in args.texts(targets)):
        args.assumed.append(f"lora.targets = {ALL_LINEAR}: {args.spelling(targets)} is a pattern")
        return found | {"targets": (ALL_LINEAR,)}
    return found | {"targets": _targets_of(args, targets, modules)}


def fit_adapters(args: Arguments, lora: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """The `[lora]` table with the product of modules that a model does not have apart."""
    has, fitted = {*adapter_modules(spec), *PRODUCTS, ALL_LINEAR}, dict.fromkeys(lora["targets"])
    for product, parts in _PRODUCTS.items():
        if not has.intersection(parts) and (missing := [part for part in parts if part in fitted]):
            args.assumed.append(
                f"lora.targets: {', '.join(missing)} of {spec.name} are part of {product}, which has one adapter"
            )
            fitted = dict.fromkeys(product if part in missing else part for part in fitted)
        elif has.intersection(parts):
            fitted.pop(product, None)
    if not (targets := tuple(part for part in fitted if part in has)):
        args.faults.append(
            f"{args.where}: adapters: expected some of the modules of {spec.name}: {', '.join(sorted(has))}"
        )
    return {**lora, "targets": targets}


def read_base(packed: bool, double: bool) -> dict[str, str]:
    """What `[lora]` says of frozen weights in bitsandbytes' 4 bits; `double`: their scales are quantized, too."""
    return {"base": "nf4-double" if double else "nf4"} if packed else {}


def _targets_of(args: Arguments, targets: str, modules: list[str]) -> tuple[str, ...]:
    """What these modules are in a scenario; a module that is none is named as not modelled."""
    found = {name: _module(name) for name in modules}
    for name in [name for name, module in found.items() if module is None]:
        args.not_modelled.append(f"{args.spelling(targets)} {name}: only GEMMs of attention and MLP have adapters")
    adapted = tuple(module for module in _MODULES if module in found.values())
    if not adapted:
        args.fault(targets, "expected some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj")
    return adapted


def _module(name: str) -> str | None:
    return next((module for module, names in _MODULES.items() if re.fullmatch(names, name)), None)


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


def read_loss(kind: str, norms: bool = False, gate: bool = False) -> dict[str, Any]:
    """The loss of a kind, one of LOSSES.

    Liger's kernels for `norms` keep their input alone, and that for the `gate` computes its activation again.
    """
    held = LOSSES[kind]
    memory: dict[str, Any] = {} if held is None else {"logits": held}
    memory |= ({"norms": 0.0} if norms else {}) | ({"gate": False} if gate else {})
    return {"loss": "passes" if kind == "passes" else "fused"} | ({"memory": memory} if memory else {})


def read_liger(on: bool) -> dict[str, Any]:
    """All of Liger's kernels, as one switch of a trainer sets them, or none."""
    return read_loss("linear" if on else "passes", norms=on, gate=on)
