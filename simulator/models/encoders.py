"""Families of encoders, whose tokens also attend to later ones: BERT and what descends from it.

With `is_decoder` a config is of a causal model. Tables of positions are read as `position_embeddings`.
"""

from dataclasses import replace

from .family import Family, built

_BERT = built(
    norm="layer", norm_bias=True, gated_ffn=False, hidden_act="gelu", attention_bias=True, attention_out_bias=True,
    mlp_bias=True, positions="learned", pre_norms=False, sandwich_norms=True, final_norm=False, embedding_norm=True,
    head_transform=True, transform_bias=True, head_bias=True, tie_word_embeddings=True, causal=False,
)  # fmt: skip
_NORMS_FIRST = replace(_BERT, pre_norms=True, sandwich_norms=False, final_norm=True)
_ONLY = {"position_embedding_type": ("absolute",), "add_cross_attention": (False,)}
_POSITIONS = {"position_embeddings": "max_position_embeddings"}
_DISTILBERT_KEYS = _POSITIONS | {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
_XLM_KEYS = _POSITIONS | {
    "hidden_size": "emb_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
}
_KEYS = _POSITIONS | {"token_types": "type_vocab_size"}
_BERT_FAMILY = Family(_BERT, _KEYS, _ONLY)

ENCODERS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "data2vec-text"), _BERT_FAMILY),
    "ernie": Family(_BERT, _KEYS | {"task_types": "task_type_vocab_size"}, _ONLY),
    "bert-generation": Family(replace(_BERT, head_transform=False), _KEYS, _ONLY),
    "megatron-bert": Family(replace(_NORMS_FIRST, embedding_norm=False), _KEYS, _ONLY),
    "roberta-prelayernorm": Family(_NORMS_FIRST, _KEYS, _ONLY),
    "xlm-roberta-xl": Family(replace(_NORMS_FIRST, embedding_norm=False), _KEYS, _ONLY),
    "electra": Family(
        replace(_BERT), _KEYS | {"embedding_width": "embedding_size", "head_width": "embedding_size"}, _ONLY
    ),
    "rembert": Family(
        replace(_BERT, tie_word_embeddings=False),
        _KEYS | {"embedding_width": "input_embedding_size", "head_width": "output_embedding_size"},
        _ONLY,
    ),
    "roformer": Family(
        replace(_BERT, positions="rotary"),
        {"token_types": "type_vocab_size", "embedding_width": "embedding_size", "head_width": "embedding_size"},
        {"rotary_value": (False,)},
    ),
    "big_bird": Family(replace(_BERT, pooler=True), _KEYS, _ONLY),
    "distilbert": Family(_BERT, _DISTILBERT_KEYS),
    "mpnet": Family(
        replace(_BERT, relative_buckets=32),
        _POSITIONS | {"relative_buckets": "relative_attention_num_buckets"},
    ),
    "xlm": Family(
        replace(_BERT, head_transform=False),
        _XLM_KEYS,
        {"asm": (False,), "n_langs": (1,), "sinusoidal_embeddings": (False,), "causal": (False,)},
        ffn_ratio=True,
    ),
    "esm": Family(
        replace(_NORMS_FIRST, embedding_norm=False, positions="rotary"),
        only={"position_embedding_type": ("rotary",), "emb_layer_norm_before": (False,)},
    ),
    "modernbert": Family(
        built(
            hidden_act="gelu", norm="layer", embedding_norm=True, head_transform=True, head_bias=True,
            tie_word_embeddings=True, causal=False,
        ),
        own={"head_bias": "decoder_bias", "sliding_window": "local_attention"},
        defaults={"sliding_window_pattern": 3},
        full_first=True,
    ),
    "eurobert": Family(built(causal=False)),
}  # fmt: skip
