"""A model's shape as Megatron-LM's arguments, or what of it they cannot say; `shapes` reads them again."""

from collections.abc import Sequence
from itertools import groupby

from ...base.errors import UserError
from ...models import ModelSpec
from ...models.model import unusual
from ...models.parts import Moe
from .picks import indexer_flags, period_of
from .shapes import LATENTS, NO_SIZES, POSITIONS

Flag = str | int | bool | None
"""The value of an argument: True for a switch alone; without it where it is False or None."""
_POSITION_TYPES = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}


def flags_of(spec: ModelSpec, seq_len: int, where: str = "scenario") -> dict[str, Flag]:
    """The model's shape as arguments; without a limit of its own it sees `seq_len` tokens.

    A UserError if the model has what these arguments do not say; one line each.
    """
    if unsaid := _not_said(spec):
        raise UserError(*(f"{where}: model: {spec.name} has {what}, which no argument says" for what in unsaid))
    layer_norm, gelu = spec.norm == "layer", spec.hidden_act.startswith("gelu")
    return {
        "--num-layers": spec.num_hidden_layers,
        "--hidden-size": spec.hidden_size,
        "--ffn-hidden-size": spec.intermediate_size,
        "--num-attention-heads": spec.num_attention_heads,
        "--vocab-size": spec.vocab_size,
        "--max-position-embeddings": spec.position_embeddings or spec.max_position_embeddings or seq_len,
        "--quick-geglu": spec.gated_ffn and gelu,
        "--swiglu": spec.gated_ffn and not gelu,
        "--squared-relu": not spec.gated_ffn and spec.hidden_act == "relu2",
        "--disable-bias-linear": not spec.mlp_bias,
        "--add-qkv-bias": spec.attention_bias and not spec.mlp_bias,
        "--normalization": "LayerNorm" if layer_norm else "RMSNorm",
        "--position-embedding-type": _POSITION_TYPES[spec.positions],
        "--untie-embeddings-and-output-weights": not spec.tie_word_embeddings,
        "--mtp-num-layers": spec.num_nextn_predict_layers or None,
        **_attention_flags(spec),
        **_window_flags(spec),
        **(_expert_flags(spec, spec.moe) if spec.moe else {}),
    }


_RARE = {
    "norm_weights": "norms without weights", "pre_norms": "no norms before attention and feed-forward network",
    "sub_norms": "norms before the last matrices", "final_norm": "no norm behind its layers",
    "head_bias": "a bias on its logits", "head_transform": "a matrix before its output matrix",
    "qk_norm_weights": "norms of heads with other weights", "qk_norm_bias": "norms of heads with biases",
    "value_head_dim": "values of another width than keys", "window_is_chunk": "attention within chunks",
    "streams": "several residual streams", "per_layer_width": "embeddings of each layer's own",
    "variants": "layers that differ in size", "compressed": "compressed attention", "convolved": "convolutions",
    "relative_dim": "relative positions", "norm_gate_rank": "gates of norms",
    "norms": "norms beside its experts", "idle_experts": "experts that compute nothing",
    "router_width": "a network as router", "towers": "towers", "cross": "attention to an encoder",
    "causal": "attention to later tokens", "approximate": "layers that are not modelled",
    "unknown": "a model_type that is not known",
    "modulation": "vectors that scale and shift", "weight_sets": "two sets of weights",
}  # fmt: skip
_SAID = {
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "mla", "gated_ffn"),
    *("attention_bias", "attention_out_bias", "mlp_bias", "norm", "norm_bias", "positions", "position_embeddings"),
    *("tie_word_embeddings", "attention_sinks", "qk_norm", "sliding_layers", "indexer", "linear_attention"),
    *("network_layers", "output_gate", "sandwich_norms", "parallel_residual", "shared_norm", "embedding_norm"),
    *("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "layers", "shared_intermediate_size"),
    *("shared_gate", "latent_size", "gate_per_head", "gate_from_latents"),
}
"""Fields that arguments say, or that `_not_said` looks at; a field that is none of these is refused."""


def _not_said(spec: ModelSpec) -> list[str]:
    features = {
        "indexers in a list of layers": period_of(spec) is None,
        "linear attention or state-space layers": spec.linear_attention is not None,
        "layers of one part": spec.network_layers is not None,
        "attention sinks with multi-latent attention": spec.attention_sinks and spec.mla is not None,
        "gates from latents": spec.gate_from_latents,
        "norms behind each part": spec.sandwich_norms,
        "attention and feed-forward side by side": spec.parallel_residual,
        "a norm behind its embedding": spec.embedding_norm,
        f"positions by {spec.positions}": spec.positions not in POSITIONS.values(),
        f"activation {spec.hidden_act}": spec.hidden_act == "relu",
        "norms without bias": (spec.norm == "layer") != spec.norm_bias,
        "biases in attention that are not those in its feed-forward": spec.attention_out_bias != spec.mlp_bias,
    }
    fields = {*unusual(spec), *(unusual(spec.moe) if spec.moe else ())} - _SAID - NO_SIZES
    return [what for what, has in features.items() if has] + [_RARE.get(field, field) for field in sorted(fields)]


def _attention_flags(spec: ModelSpec) -> dict[str, Flag]:
    if spec.mla:
        sizes = {f"--{name.replace('_', '-')}": getattr(spec.mla, key) for name, (key, _) in LATENTS.items()}
        return {
            "--multi-latent-attention": True,
            **sizes,
            **(indexer_flags(spec, spec.indexer) if spec.indexer else {}),
            **_gate_flags(spec),
        }
    heads, groups = spec.num_attention_heads, spec.num_key_value_heads
    return {
        "--group-query-attention": groups != heads,
        "--num-query-groups": groups if groups != heads else None,
        "--kv-channels": spec.head_dim if spec.head_dim * heads != spec.hidden_size else None,
        "--qk-layernorm": spec.qk_norm,
        **_gate_flags(spec),
    }


def _gate_flags(spec: ModelSpec) -> dict[str, Flag]:
    """The gate of what attention gives, for each value unless one is for a head."""
    headwise = spec.output_gate and spec.gate_per_head
    return {
        "--attention-output-gate": spec.output_gate,
        "--gated-attention-proj-granularity": "headwise" if headwise else None,
    }


def _window_flags(spec: ModelSpec) -> dict[str, Flag]:
    pattern = [int(layer in spec.sliding_layers) for layer in range(spec.num_hidden_layers)]
    return {
        "--window-size": f"{spec.sliding_window - 1},0" if spec.sliding_window and any(pattern) else None,
        "--window-attn-skip-freq": _runs(pattern) if any(pattern) and not all(pattern) else None,
        "--softmax-type": "learnable" if spec.attention_sinks else None,
    }


def _runs(pattern: Sequence[int]) -> str:
    """A list such as '([0]*3+[1]*58)', quoted for a shell."""
    return "'(" + "+".join(f"[{value}]*{len(list(run))}" for value, run in groupby(pattern)) + ")'"


def _expert_flags(spec: ModelSpec, moe: Moe) -> dict[str, Flag]:
    pattern = [int(spec.is_moe(layer)) for layer in range(spec.num_hidden_layers)]
    return {
        "--num-experts": moe.n_routed_experts,
        "--moe-router-topk": moe.num_experts_per_tok,
        "--moe-ffn-hidden-size": moe.moe_intermediate_size,
        "--moe-shared-expert-intermediate-size": moe.shared_intermediate_size or None,
        "--moe-shared-expert-gate": moe.shared_gate,
        "--moe-latent-size": moe.latent_size or None,
        "--moe-router-enable-expert-bias": moe.correction_bias,
        "--moe-router-score-function": "sigmoid" if moe.correction_bias else None,  # the bias needs it
        "--moe-layer-freq": None if all(pattern) else _runs(pattern),
    }
