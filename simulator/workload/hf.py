"""From a Hugging Face config.json to a ModelSpec, by model family.

A family says what its config.json leaves to the code: which biases and norms there are, which keys name the experts.
An unknown `model_type` is read as llama-like, which the spec's `assumptions` say; layers we cannot size are refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, fault
from .keys import Keys
from .model import Fp8, Mla, ModelSpec, Moe

DTYPES = ("bfloat16", "float16", "float32")
_MAX_LAYERS, _MAX_EXPERTS = 1000, 4096
_EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")
_NOT_MODELLED = (
    *("text_config", "vision_config", "encoder_layers"),
    *("hybrid_override_pattern", "mamba_d_state", "ssm_state_size", "state_size", "linear_num_value_heads"),
    *("linear_attn_config", "index_topk", "compress_ratios", "o_lora_rank"),
)


@dataclass(frozen=True)
class Family:
    """What a `model_type` fixes beside its config.

    `attention_bias` is the default of that key, `out_bias` whether it also covers the output projection, `experts` the
    key that counts experts (None: a dense family), `expert_width` the key of their width.
    """

    attention_bias: bool = False
    out_bias: bool = True
    qk_norm: bool = False
    fused_gate_up: bool = False
    sandwich_norms: bool = False
    attention_sinks: bool = False
    mlp_bias: bool = False
    mla: bool = False
    experts: str | None = None
    expert_width: str = "moe_intermediate_size"
    shared_gate: bool = False
    correction_bias: bool = False
    router_bias: bool = False
    window_needs_flag: bool = False
    alternating_window: bool = False


_QWEN2 = Family(attention_bias=True, out_bias=False, window_needs_flag=True)
_DEEPSEEK_V3 = Family(mla=True, experts="n_routed_experts", correction_bias=True)
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(experts="num_local_experts", expert_width="intermediate_size"),
    "qwen2": _QWEN2,
    "qwen2_moe": Family(True, False, experts="num_experts", shared_gate=True, window_needs_flag=True),
    "qwen3": Family(qk_norm=True, window_needs_flag=True),
    "qwen3_moe": Family(qk_norm=True, experts="num_experts", window_needs_flag=True),
    "deepseek_v2": Family(mla=True, experts="n_routed_experts"),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4": Family(out_bias=False, fused_gate_up=True, sandwich_norms=True),
    "glm4_moe": Family(out_bias=False, experts="n_routed_experts", correction_bias=True),
    "gpt_oss": Family(
        attention_bias=True, attention_sinks=True, mlp_bias=True, experts="num_local_experts",
        expert_width="intermediate_size", router_bias=True, alternating_window=True,
    ),
}  # fmt: skip


def load_hf_config(path: str | Path) -> ModelSpec:
    """Read a config.json, or the one in a model's folder.

    Raises:
        UserError: no such file, not JSON, or a key that is missing or out of range; one line per fault.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    name = file.parent.name if file.name == "config.json" else file.stem
    return from_hf_config(read_json(file), str(file), name)


def read_json(file: Path) -> Mapping[str, Any]:
    """The JSON object in a file; UserError when there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: cannot read it ({error.strerror or error}); expected a Hugging Face config.json") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON ({_one_line(error)}); expected a Hugging Face config.json") from None
    return content if isinstance(content, Mapping) else _not_an_object(str(file), content)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _not_an_object(where: str, content: Any) -> Mapping[str, Any]:
    raise UserError(f"{where}: a {type(content).__name__}; expected a JSON object with the keys of a Hugging Face config.json")


def from_hf_config(config: Mapping[str, Any], where: str = "model", name: str | None = None) -> ModelSpec:
    """The model that the keys of a Hugging Face config describe.

    Beside the Hugging Face keys, `gated_ffn`, `norm_bias`, `attention_out_bias`, `qk_norm` and `position_embeddings` are
    read for models that have no config of their own (GPT-3 and the like).

    Args:
        config: the keys; unknown ones are ignored.
        where: the file or place named in error messages.
        name: the model's name; by default its source or `model_type`.

    Raises:
        UserError: a key is missing or out of range, or the model has layers that we cannot size; one line per fault.
    """
    keys = Keys(config if isinstance(config, Mapping) else _not_an_object(where, config), where)
    model_type = keys.text("model_type", "llama")
    family = FAMILIES.get(model_type) or _guess_family(keys)
    _refuse(keys)
    keys.check()
    spec = _spec(keys, family, model_type, name or keys.text("source", "") or keys.text("_name_or_path", "") or model_type)
    keys.check()
    return spec


def _guess_family(keys: Keys) -> Family:
    experts = next((key for key in _EXPERT_KEYS if keys.has(key)), None)
    width = "moe_intermediate_size" if keys.has("moe_intermediate_size") else "intermediate_size"
    return Family(mla=keys.has("kv_lora_rank"), experts=experts, expert_width=width)


def _refuse(keys: Keys) -> None:
    for key in _NOT_MODELLED:
        if keys.config.get(key):
            keys.fault(key, "not modelled; only text decoders whose layers are all plain attention can be sized")


def _spec(keys: Keys, family: Family, model_type: str, name: str) -> ModelSpec:
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    layers = keys.whole("num_hidden_layers", maximum=_MAX_LAYERS)
    mla = _mla(keys) if family.mla else None
    attention_bias = keys.flag("attention_bias", family.attention_bias)
    window = _window(keys, family)
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads if mla else _kv_heads(keys, heads),
        head_dim=mla.v_head_dim if mla else _head_dim(keys, hidden, heads),
        intermediate_size=keys.whole("intermediate_size"),
        vocab_size=keys.whole("vocab_size"),
        tie_word_embeddings=keys.flag("tie_word_embeddings", False),
        dtype=_dtype(keys),
        hidden_act=keys.text("hidden_act", "silu"),
        gated_ffn=keys.flag("gated_ffn", True),
        fused_gate_up=family.fused_gate_up,
        attention_bias=attention_bias,
        attention_out_bias=keys.flag("attention_out_bias", attention_bias and family.out_bias),
        attention_sinks=family.attention_sinks,
        mlp_bias=keys.flag("mlp_bias", family.mlp_bias),
        norm_bias=keys.flag("norm_bias", False),
        qk_norm=keys.flag("qk_norm", False) or keys.flag("use_qk_norm", family.qk_norm),
        sandwich_norms=family.sandwich_norms,
        sliding_window=window,
        sliding_layers=_sliding_layers(keys, family, layers) if window else (),
        max_position_embeddings=keys.whole("max_position_embeddings", default=0),
        position_embeddings=keys.whole("position_embeddings", default=0, minimum=0),
        mla=mla,
        moe=_moe(keys, family, layers) if family.experts else None,
        num_nextn_predict_layers=keys.whole("num_nextn_predict_layers", default=0, minimum=0, maximum=_MAX_LAYERS),
        quantization=_quantization(keys),
        assumptions=_assumptions(keys, model_type),
    )


def _kv_heads(keys: Keys, heads: int) -> int:
    kv_heads = keys.whole("num_key_value_heads", default=heads)
    if heads % kv_heads:
        keys.fault("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
    return kv_heads


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    if not keys.has("head_dim") and hidden % heads:
        keys.fault("num_attention_heads", f"a divisor of hidden_size = {hidden}, or give head_dim")
    return keys.whole("head_dim", default=max(hidden // heads, 1))


def _dtype(keys: Keys) -> str:
    key = "dtype" if keys.has("dtype") else "torch_dtype"
    dtype = keys.text(key, "bfloat16").removeprefix("torch.")
    if dtype not in DTYPES:
        keys.fault(key, f"one of {', '.join(DTYPES)}")
    return dtype


def _mla(keys: Keys) -> Mla:
    return Mla(
        q_lora_rank=keys.optional("q_lora_rank"),
        kv_lora_rank=keys.whole("kv_lora_rank"),
        qk_nope_head_dim=keys.whole("qk_nope_head_dim"),
        qk_rope_head_dim=keys.whole("qk_rope_head_dim"),
        v_head_dim=keys.whole("v_head_dim"),
    )


def _moe(keys: Keys, family: Family, layers: int) -> Moe:
    assert family.experts is not None
    experts = keys.whole(family.experts, maximum=_MAX_EXPERTS)
    width = keys.whole(family.expert_width)
    return Moe(
        n_routed_experts=experts,
        num_experts_per_tok=keys.whole("num_experts_per_tok", maximum=experts),
        moe_intermediate_size=width,
        layers=_moe_layers(keys, layers),
        shared_intermediate_size=_shared_width(keys, width),
        shared_gate=family.shared_gate,
        correction_bias=family.correction_bias,
        router_bias=family.router_bias,
        stacked_experts=family.router_bias,
    )


def _shared_width(keys: Keys, width: int) -> int:
    if keys.has("shared_expert_intermediate_size"):
        return keys.whole("shared_expert_intermediate_size", minimum=0)
    return width * keys.whole("n_shared_experts", default=0, minimum=0, maximum=_MAX_EXPERTS)


def _moe_layers(keys: Keys, layers: int) -> tuple[int, ...]:
    """DeepSeek counts from the first MoE layer on, Qwen steps through all and names dense exceptions."""
    first, frequency = keys.whole("first_k_dense_replace", default=0, minimum=0), keys.whole("moe_layer_freq", default=1)
    step, dense = keys.whole("decoder_sparse_step", default=1), keys.sequence("mlp_only_layers")
    return tuple(i for i in range(first, layers) if i % frequency == 0 and (i + 1) % step == 0 and i not in dense)


def _window(keys: Keys, family: Family) -> int | None:
    off = family.window_needs_flag and not keys.flag("use_sliding_window", False)
    return None if off else keys.optional("sliding_window")


def _sliding_layers(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
    if keys.has("layer_types"):
        return _by_layer_type(keys, layers)
    first = keys.whole("max_window_layers", default=0, minimum=0) if family.window_needs_flag else 0
    return tuple(range(first, layers, 2 if family.alternating_window else 1))


def _by_layer_type(keys: Keys, layers: int) -> tuple[int, ...]:
    types = keys.sequence("layer_types")
    if len(types) < layers or not {str(kind) for kind in types} <= {"sliding_attention", "full_attention"}:
        keys.fault("layer_types", f"sliding_attention or full_attention for each of {layers} layers")
    return tuple(i for i, kind in enumerate(types[:layers]) if kind == "sliding_attention")


def _quantization(keys: Keys) -> Fp8 | None:
    """Block FP8 as DeepSeek stores it; any other method has sizes that we do not know."""
    if not keys.has("quantization_config"):
        return None
    given = keys.config["quantization_config"]
    block = given.get("weight_block_size") if isinstance(given, Mapping) else None
    if isinstance(given, Mapping) and given.get("quant_method") == "fp8" and _is_block(block):
        return Fp8((int(block[0]), int(block[1])))
    keys.fault("quantization_config", 'quant_method "fp8" with a weight_block_size such as [128, 128], or none at all')
    return None


def _is_block(block: Any) -> bool:
    pair = isinstance(block, list | tuple) and len(block) == 2
    return pair and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in block)


def _assumptions(keys: Keys, model_type: str) -> tuple[str, ...]:
    notes = []
    if model_type not in FAMILIES:
        notes.append(f"model_type {model_type!r} is not known and read as llama-like")
    if not keys.has("dtype") and not keys.has("torch_dtype"):
        notes.append("no dtype given: bfloat16")
    return tuple(notes)
