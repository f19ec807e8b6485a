"""Cross-attention: queries of a layer's tokens to keys and values of what a tower gives (Attention Is All You Need).

T5 and BART have it in each layer of the decoder. Ranks of tensor parallelism have the tower's tokens whole; context
parallelism is not modelled.
"""

from dataclasses import replace

from . import attention
from .kernels import Kept, Kernel, Kernels
from .model import ModelSpec
from .parameters import Parameters, linear, split
from .parts import Cross
from .shard import Shard, gemm, memory_bound


def parameters(spec: ModelSpec, of: Cross) -> Parameters:
    """Projections, cut by heads: q of the layer's tokens, k and v of the tower's."""
    heads, kv_heads, dim, bias = spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim, spec.attention_bias
    table = linear("cross_attn.q_proj", heads * dim, spec.hidden_size, "cross_q", cut=0, units=heads, bias=bias)
    for letter, width in (("k", dim), ("v", spec.v_head_dim)):
        name, biased = f"cross_attn.{letter}_proj", bias and (spec.key_bias or letter != "k")
        table += linear(name, kv_heads * width, of.source, "cross_kv", cut=0, units=kv_heads, bias=biased)
    # Keys are always its own, also in layers whose self-attention uses those of earlier ones.
    norms = attention.head_norms(replace(spec, shares_kv=False)) * spec.qk_norm
    return table + norms + attention.output(spec)


def kernels(spec: ModelSpec, of: Cross, shard: Shard) -> Kernels:
    """The kernels from the projections to the output projection, on the tokens of a tensor-parallel group."""
    table, tokens, sources = parameters(spec, of), shard.tokens, source_tokens(spec, shard)
    heads, kv_heads = split(spec.num_attention_heads, shard.tp), split(spec.num_key_value_heads, shard.tp)
    dim, v_dim, made = spec.head_dim, spec.v_head_dim, shard.tokens * heads
    seen = sources // shard.batch  # by each token
    shape = (shard.batch, shard.seq, heads, kv_heads, dim, v_dim, 0, seen, 1)
    kept = (Kept("core_attn", made * 4), Kept("proj", made * v_dim * shard.wide))
    turned = (tokens * heads + sources * kv_heads) * dim
    norm = (memory_bound("rms_norm", "cross_qk_norm", "qkv", dim, turned, 2, shard, turned * shard.wide),)
    trained = any(tower.inputs and tower.inputs.is_trained(shard.lora_rank > 0) for tower in spec.towers)
    keys = gemm(shard, table, "cross_kv", "qkv", sources, "qkv", keeps=shard.wide)
    keys = tuple(replace(key, passes=trained) for key in keys)
    return (
        *gemm(shard, table, "cross_q", "qkv", tokens, "qkv", keeps=shard.wide),
        *keys,
        *norm * spec.qk_norm,
        Kernel("attention", "cross_attention", "core_attn", shape, shard.plain, keeps=kept),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )


def source_tokens(spec: ModelSpec, shard: Shard) -> int:
    """Tokens that towers give a micro-batch."""
    inputs = [tower.inputs for tower in spec.towers if tower.inputs is not None]
    merged = [(of.items * (of.span or shard.seq), of.projector.merge if of.projector else 1) for of in inputs]
    return shard.batch * sum(tokens // merge for tokens, merge in merged)
