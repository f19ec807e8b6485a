"""What we cannot size, and what in a config gives it away: one line that says why and what is known instead.

A `model_type` that is neither a family nor here is read as llama-like, unless a key tells of layers that Llama lacks.
"""

from collections.abc import Iterator

from .families import FAMILIES, Family
from .keys import Keys

_ENCODERS = "an encoder"
_ENCODER_DECODERS = "encoder and decoder"
_STATE_SPACE = "state-space or recurrent layers"
_SEVERAL_MEDIA = "towers for other media than text"
_OTHER_ATTENTION = "another kind of attention"
_OTHER_DECODERS = "a decoder whose norms, biases or layers differ from Llama's"

TYPES = {
    _ENCODERS: (
        *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra", "mpnet", "nomic_bert"),
        *("deberta", "deberta-v2", "modernbert", "longformer", "big_bird", "esm", "vit", "dinov2", "wav2vec2"),
    ),
    _ENCODER_DECODERS: ("t5", "mt5", "umt5", "t5gemma", "longt5", "bart", "mbart", "pegasus", "marian", "whisper"),
    _STATE_SPACE: (
        *("mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm", "retnet", "hyena"),
        *("recurrent_gemma", "jamba", "zamba", "zamba2", "bamba", "nemotron_h", "granitemoehybrid", "falcon_h1"),
        *("plamo2", "lfm2", "minimax", "qwen3_next", "kimi_linear"),
    ),
    _OTHER_DECODERS: (
        *("phi", "phimoe", "gptj", "gpt_neo", "gpt_bigcode", "codegen", "openai-gpt", "xlnet", "ctrl", "xglm"),
        *("stablelm", "persimmon", "cohere", "cohere2", "olmo", "olmo2", "olmo3", "olmoe", "dbrx", "arctic"),
        *("gemma3_text", "gemma3n_text", "llama4_text", "minicpm3"),
    ),
}
KEYS = {
    _SEVERAL_MEDIA: ("text_config", "vision_config"),
    _ENCODER_DECODERS: ("is_encoder_decoder", "encoder_layers", "num_decoder_layers", "relative_attention_num_buckets"),
    _ENCODERS: ("type_vocab_size",),
    _STATE_SPACE: (
        *("hybrid_override_pattern", "layers_block_type", "block_types", "attn_layer_period", "ssm_cfg", "lru_width"),
        *("mamba_d_state", "mamba_d_conv", "ssm_state_size", "state_size", "attention_hidden_size"),
    ),
    _OTHER_ATTENTION: ("linear_attn_config", "compress_ratios", "o_lora_rank"),
}
KEY_OF_INDEXER, KEY_OF_LINEAR_ATTENTION = "index_topk", "linear_num_value_heads"  # refused outside their families


def refuse(keys: Keys, family: Family, model_type: str) -> None:
    """Note why the model cannot be sized, if it cannot; the first sign is enough."""
    for key, why in _signs(keys, family, model_type):
        known = f"known are {', '.join(sorted(FAMILIES))}, and others that are built like Llama"
        keys.fault(key, f"not modelled: {why}; {known}")
        return
    for key, values in family.only.items():
        if keys.has(key) and keys.get(key) not in values:
            keys.fault(key, f"not modelled; {' or '.join(map(repr, values))}")


def _signs(keys: Keys, family: Family, model_type: str) -> Iterator[tuple[str, str]]:
    yield from (("model_type", why) for why, types in TYPES.items() if model_type in types)
    yield from ((key, why) for why, signs in KEYS.items() for key in signs if keys.get(key))
    foreign = [] if family.indexer else [KEY_OF_INDEXER]
    foreign += [] if family.linear_attention else [KEY_OF_LINEAR_ATTENTION]
    yield from ((key, _OTHER_ATTENTION) for key in foreign if keys.get(key))
