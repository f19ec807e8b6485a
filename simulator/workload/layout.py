"""Which tensors each part of a model has: names as in the Hugging Face checkpoint, shapes, and what is quantized.

Families with names of their own (GPT-2, BLOOM, MPT and the like) get Llama's for the same tensors.
One function per part, each returning the tensors of one layer without the layer's prefix. Tiling them over layers, and
turning quantized ones into bytes and scales, lives in `tensors`.
"""

from itertools import chain
from typing import NamedTuple

from .model import Indexer, LayerKind, LinearAttention, Mla, ModelSpec, Moe

_SECOND_NORMS = {"gemma2": ("pre_feedforward_layernorm", "post_feedforward_layernorm")}


class Tensor(NamedTuple):
    """A tensor before quantization; `linear` marks what FP8 checkpoints quantize, `dtype` overrides the model's."""

    name: str
    shape: tuple[int, ...]
    linear: bool = False
    expert: bool = False
    dtype: str | None = None


def head(spec: ModelSpec) -> list[Tensor]:
    """What comes before the layers."""
    tokens = [Tensor(f"{spec.trunk}.embed_tokens.weight", (spec.vocab_size, spec.hidden_size))]
    positions = Tensor(f"{spec.trunk}.embed_positions.weight", (spec.position_embeddings, spec.hidden_size))
    norm = _norm(spec, f"{spec.trunk}.embed_layernorm") if spec.embedding_norm else []
    return tokens + [positions] * bool(spec.position_embeddings) + norm


def tail(spec: ModelSpec) -> list[Tensor]:
    """What comes after the layers; a tied output head is not stored."""
    output = Tensor("lm_head.weight", (spec.vocab_size, spec.hidden_size))
    return _norm(spec, f"{spec.trunk}.norm") + [output] * (not spec.tie_word_embeddings)


def layer(spec: ModelSpec, kind: LayerKind) -> list[Tensor]:
    """One decoder layer of a kind that the model has."""
    ffn = _moe(spec, spec.moe) if spec.moe and kind.moe else _ffn(spec, "mlp", spec.intermediate_size)
    return _layer_norms(spec) + _mixer(spec, kind) + ffn


def mtp(spec: ModelSpec) -> list[Tensor]:
    """What MTP holds beside a decoder layer: an unquantized projection, norms, and copies of embedding and head."""
    vocab, hidden, copies = spec.vocab_size, spec.hidden_size, spec.mtp_copies
    names = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
    apart = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
    embedding_norm, hidden_norm, projection, head_norm = apart if spec.mtp_apart else names
    return [
        *[Tensor("embed_tokens.weight", (vocab, hidden))] * copies,
        *_norm(spec, embedding_norm),
        *_norm(spec, hidden_norm),
        Tensor(f"{projection}.weight", (hidden, 2 * hidden)),
        *_norm(spec, head_norm),
        *[Tensor("shared_head.head.weight", (vocab, hidden))] * copies,
    ]


def _norm(spec: ModelSpec, name: str) -> list[Tensor]:
    weight = [Tensor(f"{name}.weight", (spec.hidden_size,))]
    return weight + [Tensor(f"{name}.bias", (spec.hidden_size,))] * spec.norm_bias


def _layer_norms(spec: ModelSpec) -> list[Tensor]:
    names = ["input_layernorm"] + ["post_attention_layernorm"] * (not spec.shared_norm)
    if spec.sandwich_norms:
        names += _SECOND_NORMS.get(spec.model_type, ("post_self_attn_layernorm", "post_mlp_layernorm"))
    return [tensor for name in names for tensor in _norm(spec, name)]


def _linear(name: str, out: int, into: int, bias: bool = False, expert: bool = False) -> list[Tensor]:
    weight = [Tensor(f"{name}.weight", (out, into), linear=True, expert=expert)]
    return weight + [Tensor(f"{name}.bias", (out,), expert=expert)] * bias


def _mixer(spec: ModelSpec, kind: LayerKind) -> list[Tensor]:
    """What mixes tokens: linear attention, or attention with its indexer if it has one."""
    if spec.linear_attention and kind.linear:
        return _linear_attention(spec, spec.linear_attention)
    indexer = _indexer(spec, spec.indexer) if spec.indexer and kind.indexer else []
    return _attention(spec) + indexer


def _attention(spec: ModelSpec) -> list[Tensor]:
    width = spec.num_attention_heads * spec.v_head_dim
    projections = _mla(spec, spec.mla) if spec.mla else _qkv(spec)
    out = _linear("self_attn.o_proj", spec.hidden_size, width, spec.attention_out_bias)
    return projections + out + [Tensor("self_attn.sinks", (spec.num_attention_heads,))] * spec.attention_sinks


def _qkv(spec: ModelSpec) -> list[Tensor]:
    hidden, bias, dim = spec.hidden_size, spec.attention_bias, spec.head_dim
    q, kv = spec.num_attention_heads * dim * (2 if spec.output_gate else 1), spec.num_key_value_heads * dim
    norms = [Tensor("self_attn.q_norm.weight", (dim,)), Tensor("self_attn.k_norm.weight", (dim,))]
    parts = {"qkv_proj": q + 2 * kv} if spec.fused_qkv else {"q_proj": q, "k_proj": kv, "v_proj": kv}
    projections = [_linear(f"self_attn.{name}", width, hidden, bias) for name, width in parts.items()]
    return [*chain(*projections), *norms * spec.qk_norm]


def _mla(spec: ModelSpec, mla: Mla) -> list[Tensor]:
    down = mla.kv_lora_rank + mla.qk_rope_head_dim
    up = spec.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return [
        *_mla_query(spec, mla.q_lora_rank),
        *_linear("self_attn.kv_a_proj_with_mqa", down, spec.hidden_size, spec.attention_bias),
        Tensor("self_attn.kv_a_layernorm.weight", (mla.kv_lora_rank,)),
        *_linear("self_attn.kv_b_proj", up, mla.kv_lora_rank),
    ]


def _mla_query(spec: ModelSpec, rank: int | None) -> list[Tensor]:
    width = spec.num_attention_heads * spec.qk_head_dim
    if rank is None:
        return _linear("self_attn.q_proj", width, spec.hidden_size)
    return [
        *_linear("self_attn.q_a_proj", rank, spec.hidden_size, spec.attention_bias),
        Tensor("self_attn.q_a_layernorm.weight", (rank,)),
        *_linear("self_attn.q_b_proj", width, rank),
    ]


def _indexer(spec: ModelSpec, indexer: Indexer) -> list[Tensor]:
    """Reads MLA's compressed query and the layer's input; its norm is a layer norm, with a bias."""
    name, dim, rank = "self_attn.indexer", indexer.head_dim, (spec.mla.q_lora_rank or 0) if spec.mla else 0
    return [
        *_linear(f"{name}.wq_b", indexer.num_heads * dim, rank),
        *_linear(f"{name}.wk", dim, spec.hidden_size),
        Tensor(f"{name}.k_norm.weight", (dim,)),
        Tensor(f"{name}.k_norm.bias", (dim,)),
        Tensor(f"{name}.weights_proj.weight", (indexer.num_heads, spec.hidden_size)),
    ]


def _linear_attention(spec: ModelSpec, linear: LinearAttention) -> list[Tensor]:
    """Gated DeltaNet; its decay and norm are kept in FP32, its two gates unquantized."""
    hidden, heads = spec.hidden_size, linear.num_value_heads
    return [
        Tensor("linear_attn.dt_bias", (heads,)),
        Tensor("linear_attn.A_log", (heads,), dtype="float32"),
        Tensor("linear_attn.conv1d.weight", (linear.qkv_width, 1, linear.conv_kernel)),
        Tensor("linear_attn.norm.weight", (linear.value_head_dim,), dtype="float32"),
        *_linear("linear_attn.in_proj_qkv", linear.qkv_width, hidden),
        *_linear("linear_attn.in_proj_z", linear.value_width, hidden),
        Tensor("linear_attn.in_proj_b.weight", (heads, hidden)),
        Tensor("linear_attn.in_proj_a.weight", (heads, hidden)),
        *_linear("linear_attn.out_proj", hidden, linear.value_width),
    ]


def _ffn(spec: ModelSpec, prefix: str, width: int, expert: bool = False) -> list[Tensor]:
    ups, down = _ffn_names(spec, prefix)
    into = [_linear(name, out * width, spec.hidden_size, spec.mlp_bias, expert) for name, out in ups]
    return [*chain(*into), *_linear(down, spec.hidden_size, width, spec.mlp_bias, expert)]


def _ffn_names(spec: ModelSpec, prefix: str) -> tuple[list[tuple[str, int]], str]:
    """Input matrices, each with its height in FFN widths, and the output matrix; Mixtral has its own names."""
    names = ("w1", "w3", "w2") if prefix.startswith("block_sparse_moe") else ("gate_proj", "up_proj", "down_proj")
    gate, up, down = (f"{prefix}.{name}" for name in names)
    if spec.fused_gate_up and spec.gated_ffn:
        return [(f"{prefix}.gate_up_proj", 2)], down
    return [(gate, 1)] * spec.gated_ffn + [(up, 1)], down


def _moe(spec: ModelSpec, moe: Moe) -> list[Tensor]:
    prefix = "block_sparse_moe" if spec.model_type == "mixtral" else "mlp"
    return _router(spec, moe, prefix) + _experts(spec, moe, prefix) + _shared(spec, moe)


def _router(spec: ModelSpec, moe: Moe, prefix: str) -> list[Tensor]:
    name, experts = f"{prefix}.{'router' if moe.router_bias else 'gate'}", moe.n_routed_experts
    return [
        Tensor(f"{name}.weight", (experts, spec.hidden_size)),
        *[Tensor(f"{name}.bias", (experts,))] * moe.router_bias,
        *[Tensor(f"{name}.e_score_correction_bias", (experts,), dtype="float32")] * moe.correction_bias,
    ]


def _experts(spec: ModelSpec, moe: Moe, prefix: str) -> list[Tensor]:
    width = moe.moe_intermediate_size
    if moe.stacked_experts:
        return _stacked(spec, moe.n_routed_experts, width)
    one = _ffn(spec, f"{prefix}.experts.%d", width, expert=True)
    return [tensor._replace(name=tensor.name % index) for index in range(moe.n_routed_experts) for tensor in one]


def _stacked(spec: ModelSpec, experts: int, width: int) -> list[Tensor]:
    hidden, inner = spec.hidden_size, width * (2 if spec.gated_ffn else 1)
    name = "gate_up_proj" if spec.gated_ffn else "up_proj"
    up = [Tensor(f"mlp.experts.{name}", (experts, hidden, inner), linear=True, expert=True)]
    down = [Tensor("mlp.experts.down_proj", (experts, width, hidden), linear=True, expert=True)]
    up += [Tensor(f"mlp.experts.{name}_bias", (experts, inner), expert=True)] * spec.mlp_bias
    down += [Tensor("mlp.experts.down_proj_bias", (experts, hidden), expert=True)] * spec.mlp_bias
    return up + down


def _shared(spec: ModelSpec, moe: Moe) -> list[Tensor]:
    name = "mlp.shared_expert" if moe.shared_gate else "mlp.shared_experts"
    ffn = _ffn(spec, name, moe.shared_intermediate_size) if moe.shared_intermediate_size else []
    return ffn + [Tensor("mlp.shared_expert_gate.weight", (1, spec.hidden_size))] * moe.shared_gate
