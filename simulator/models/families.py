"""Model families: what a `model_type` fixes that its config.json does not say, and which models are refused."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..base.errors import did_you_mean
from .diffusion import DIFFUSION
from .encoder_decoders import ENCODER_DECODERS
from .encoders import ENCODERS
from .family import Family
from .gpts import GPTS
from .hybrids import HYBRIDS
from .keys import EXPERT_KEYS, Keys
from .llamas import LLAMAS
from .mixtures import MIXTURES

FAMILIES = {**LLAMAS, **MIXTURES, **GPTS, **HYBRIDS, **ENCODERS, **ENCODER_DECODERS, **DIFFUSION}


def family_of(model_type: str, config: Mapping[str, Any]) -> Family:
    """The family of a `model_type`; an unknown one is llama-like, with MLA or experts if the config has their keys."""
    return FAMILIES.get(model_type) or llama_like(config)


def llama_like(config: Mapping[str, Any]) -> Family:
    """The family of a config that says no more than its keys do."""
    given = {key for key, value in config.items() if value is not None}
    experts = next((key for key in EXPERT_KEYS if key in given), None)
    width = "moe_intermediate_size" if "moe_intermediate_size" in given else "intermediate_size"
    return Family(mla="kv_lora_rank" in given, experts=experts, expert_width=width)


# Models that we cannot size, by `model_type` or by a key of layers that Llama lacks. A `model_type` that is neither a
# family nor here is read as llama-like if all keys of its sizes are read.

_ENCODERS = "an encoder unlike BERT"
_ENCODER_DECODERS = "encoder and decoder"
_STATE_SPACE = "state-space or recurrent layers"
_SHARED = "layers that share weights"
_SEVERAL_MEDIA = "towers for other media than text"
_OTHER_ATTENTION = "another kind of attention"
_EXPERTS = "experts in a model_type that has none"
_OTHER_DECODERS = "a decoder whose norms, biases or layers differ from Llama's"

REFUSED_TYPES = {
    _ENCODERS: (
        *("nomic_bert", "deberta", "deberta-v2", "longformer", "vit", "dinov2", "wav2vec2", "xmod", "roc_bert"),
        *("xlnet", "reformer"),
    ),
    _ENCODER_DECODERS: ("t5gemma", "longt5", "prophetnet", "led", "trocr", "musicgen"),
    _STATE_SPACE: (
        *("rwkv", "rwkv5", "rwkv6", "xlstm", "retnet", "hyena"),
        *("recurrent_gemma", "plamo2", "bailing_hybrid", "qwen4_exp_text"),
    ),
    _SHARED: ("albert", "zamba", "zamba2", "dory", "hrm_text", "inkling2_loop_text"),
    _OTHER_ATTENTION: ("inkling2_text", "jetmoe"),
    _OTHER_DECODERS: ("cpmant", "blt", "moshi"),
}
REFUSED_KEYS = {
    _SHARED: ("num_mem_blocks",),
    _SEVERAL_MEDIA: ("text_config", "vision_config"),
    _ENCODER_DECODERS: ("is_encoder_decoder", "encoder_layers", "num_decoder_layers", "relative_attention_num_buckets"),
    _ENCODERS: ("type_vocab_size",),
    _STATE_SPACE: (
        *("hybrid_override_pattern", "layers_block_type", "block_types", "attn_layer_period", "ssm_cfg", "lru_width"),
        *("mamba_d_state", "mamba_d_conv", "ssm_state_size", "state_size", "attention_hidden_size"),
    ),
    _OTHER_ATTENTION: ("linear_attn_config",),
}
KEY_OF_INDEXER, KEY_OF_LINEAR_ATTENTION = "index_topk", "linear_num_value_heads"  # refused outside their families


_OTHERWISE = "docs/models.md lists what is, and model.unknown = 'approximate' prices it as if it were built like Llama"


def refuse(keys: Keys, family: Family, model_type: str) -> None:
    """Note why the model cannot be sized, if it cannot; the first sign is enough."""
    for key, why in _signs(keys, family, model_type):
        if key != "model_type" and (cause := _wrong_type(keys, why)):
            keys.fault("model_type", cause)
            return
        keys.fault(key, f"not modelled: {why}; {_OTHERWISE}")
        return
    for key, values in family.only.items():
        if keys.has(key) and keys.get(key) not in values:
            keys.fault(key, f"not modelled; {' or '.join(map(repr, values))}")


def refuse_unknown(keys: Keys, model_type: str) -> bool:
    """Note that a `model_type` is not known, if keys of its sizes belong to no layer that is. Returns whether so."""
    unread = [] if model_type in FAMILIES else keys.unread_sizes()
    if unread:
        keys.fault("model_type", f"not known, nor what {', '.join(unread)} means; {_OTHERWISE}")
    return bool(unread)


def _wrong_type(keys: Keys, why: str) -> str:
    """What is wrong with a `model_type` that is missing or misspelled though a config has keys of a hybrid model."""
    mixers = sorted(name for name, family in FAMILIES.items() if family.mixer)
    given = keys.get("model_type")
    if why not in (_STATE_SPACE, _OTHER_ATTENTION) or str(given) in FAMILIES:
        return ""
    if given is None:
        return f"missing; such layers are read of {', '.join(mixers)}" if why == _STATE_SPACE else ""
    near = did_you_mean(given, mixers, most=1)
    return f"unknown; {near}" if near else ""


def _signs(keys: Keys, family: Family, model_type: str) -> Iterator[tuple[str, str]]:
    yield from (("model_type", why) for why, types in REFUSED_TYPES.items() if model_type in types)
    signs_of = {why: signs for why, signs in REFUSED_KEYS.items() if why != _STATE_SPACE or not family.mixer}
    if family.cross:
        del signs_of[_ENCODER_DECODERS]
    known = {name.partition(".")[0] for name in family.own.values()}
    yield from ((key, why) for why, signs in signs_of.items() for key in signs if key not in known and keys.get(key))
    foreign = [] if family.indexer or family.compressed else [KEY_OF_INDEXER]
    foreign += [] if family.compressed else ["compress_ratios", "o_lora_rank"]
    foreign += [] if family.mixer else [KEY_OF_LINEAR_ATTENTION]
    yield from ((key, _OTHER_ATTENTION) for key in foreign if keys.get(key))
    if family.experts is None:
        yield from ((key, _EXPERTS) for key in EXPERT_KEYS if _exceeds_one(keys.config.get(key)))


def _exceeds_one(value: Any) -> bool:
    return isinstance(value, int | float) and value > 1
