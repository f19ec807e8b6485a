"""Families with an encoder and a decoder: the encoder is a tower, to whose states each layer of the decoder attends.

A layer of the decoder counts as two: its self-attention, and its attention to the encoder with the FFN.
"""

from collections.abc import Callable
from dataclasses import replace

from .family import Family, TowerFamily, built
from .keys import Keys
from .model import ModelSpec
from .parts import Inputs

_BART = built(
    norm="layer", norm_bias=True, gated_ffn=False, hidden_act="gelu", attention_bias=True, attention_out_bias=True,
    mlp_bias=True, positions="learned", pre_norms=False, sandwich_norms=True, final_norm=False, embedding_norm=True,
    tie_word_embeddings=True,
)  # fmt: skip
_NORMS_FIRST = replace(_BART, pre_norms=True, sandwich_norms=False, final_norm=True)
_PEGASUS = replace(_NORMS_FIRST, embedding_norm=False)
_T5 = built(positions="none", gated_ffn=False, hidden_act="relu", tie_word_embeddings=True, relative_buckets=32)


def _keys(stack: str, positions: str = "max_position_embeddings") -> dict[str, str]:
    """BART's names of the keys of its encoder or decoder."""
    return {
        "hidden_size": "d_model",
        "num_hidden_layers": f"{stack}_layers",
        "num_attention_heads": f"{stack}_attention_heads",
        "intermediate_size": f"{stack}_ffn_dim",
        "position_embeddings": positions,
    }


def _pair(encoder: Family, decoder: Family, read: Callable[[Keys, ModelSpec], ModelSpec]) -> Family:
    encoder = replace(encoder, design=replace(encoder.design, causal=False))
    return replace(decoder, towers=(TowerFamily("encoder", encoder, read),), cross=True, sublayers=2)


def _read_text(keys: Keys, spec: ModelSpec) -> ModelSpec:
    """The encoder reads one text, by default as long as the decoder's."""
    return replace(spec, inputs=Inputs(span=0))


def _read_text_apart(keys: Keys, spec: ModelSpec) -> ModelSpec:
    """BART's encoder has its own embedding unless it is tied; `model.shared` is left out, as nothing reads it then.

    Source: `_tied_weights_keys` of transformers' modeling_bart.py, and Marian's key.
    """
    shares = spec.tie_word_embeddings and keys.flag("share_encoder_decoder_embeddings", True)
    return replace(spec, inputs=Inputs(span=0, words=0 if shares else spec.vocab_size))


def read_sounds(keys: Keys, spec: ModelSpec) -> ModelSpec:
    """Whisper's encoder reads half a minute: two convolutions over three frames, the second with stride two."""
    span, bins = keys.whole("max_source_positions", default=1500), keys.whole("num_mel_bins", default=80)
    patches = ((3 * bins, 2), (3 * spec.hidden_size, 1))
    return replace(spec, inputs=Inputs(span, patches=patches, patch_bias=True))


def _bart(design: ModelSpec, offset: int = 0) -> Family:
    encoder, decoder = (Family(design, _keys(stack), position_offset=offset) for stack in ("encoder", "decoder"))
    return _pair(encoder, decoder, _read_text_apart)


_T5_KEYS = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "head_dim": "d_kv",
    "intermediate_size": "d_ff",
    "hidden_act": "dense_act_fn",
    "gated_ffn": "is_gated_act",
}
_T5_FAMILY = _pair(
    Family(_T5, _T5_KEYS | {"num_hidden_layers": "num_layers"}),
    Family(_T5, _T5_KEYS | {"num_hidden_layers": "num_decoder_layers"}),
    _read_text,
)
_WHISPER = replace(_PEGASUS, key_bias=False)
SOUNDS = Family(replace(_WHISPER, causal=False), _keys("encoder", "max_source_positions"), defaults={"vocab_size": 1})
"""Whisper's encoder, which other models have as a tower."""

ENCODER_DECODERS = {
    **dict.fromkeys(("bart", "mvp", "plbart"), _bart(_BART, offset=2)),
    "mbart": _bart(_NORMS_FIRST, offset=2),
    **dict.fromkeys(("pegasus", "blenderbot", "bigbird_pegasus"), _bart(_PEGASUS)),
    "blenderbot-small": _bart(_BART),
    "marian": _bart(replace(_BART, embedding_norm=False)),
    "m2m_100": _bart(replace(_PEGASUS, positions="none")),
    **dict.fromkeys(("t5", "mt5", "umt5"), _T5_FAMILY),
    "whisper": Family(
        _WHISPER, _keys("decoder", "max_target_positions"), towers=(TowerFamily("encoder", SOUNDS, read_sounds),),
        cross=True, sublayers=2,
    ),
}  # fmt: skip
