"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): its parameters, and its kernels on one rank.

See `sparse_mla` for the kernels of its sparse form (DeepSeek-V3.2), whose indexer's parameters are here.
"""

from .attention import output, scores
from .kernels import Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, split
from .parts import Indexer, Mla
from .shard import Shard, gemm, memory_bound, rope


def parameters(spec: ModelSpec, mla: Mla, indexer: Indexer | None) -> Parameters:
    """Projections to the latents are on every rank; those from latents to heads are cut by heads."""
    heads, hidden, latent, bias = spec.num_attention_heads, spec.hidden_size, mla.kv_lora_rank, spec.attention_bias
    up = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    down = latent + mla.qk_rope_head_dim
    return [
        *_query(spec, mla.q_lora_rank),
        *linear("self_attn.kv_a_proj_with_mqa", down, hidden, "kv_down", bias=bias),
        Parameter("self_attn.kv_a_layernorm.weight", (latent,)),
        *linear("self_attn.kv_b_proj", up, latent, "kv_up", cut=0, units=heads),
        *_gate(spec),
        *output(spec),
        *(_indexer(spec, indexer, mla.q_lora_rank or 0) if indexer else []),
    ]


def _query(spec: ModelSpec, rank: int | None) -> Parameters:
    heads, hidden = spec.num_attention_heads, spec.hidden_size
    gated = spec.output_gate and spec.gate_from_latents
    width, read = heads * (spec.qk_head_dim + gated * spec.v_head_dim), 2 if gated else 1
    if rank is None:
        return linear("self_attn.q_proj", width, hidden, "q_up", cut=0, units=heads)
    return [
        *linear("self_attn.q_a_proj", rank, hidden, "q_down", bias=spec.attention_bias),
        Parameter("self_attn.q_a_layernorm.weight", (rank,)),
        *linear("self_attn.q_b_proj", width, read * rank, "q_up", cut=0, units=heads),
    ]


def _gate(spec: ModelSpec) -> Parameters:
    """A gate on the output of each head, or on each value of it. It reads what latents read, and is not cut either."""
    width = spec.num_attention_heads * (1 if spec.gate_per_head else spec.v_head_dim)
    own = spec.output_gate and not spec.gate_from_latents
    return linear("self_attn.gate_proj", width, spec.hidden_size, "gate_down") if own else []


def _indexer(spec: ModelSpec, indexer: Indexer, rank: int) -> Parameters:
    """The indexer reads the compressed query and the layer's input; its norm has a bias."""
    name, dim = "self_attn.indexer", indexer.head_dim
    return [
        *linear(f"{name}.wq_b", indexer.num_heads * dim, rank, "index_queries"),
        *linear(f"{name}.wk", dim, spec.hidden_size, "index_keys"),
        Parameter(f"{name}.k_norm.weight", (dim,)),
        Parameter(f"{name}.k_norm.bias", (dim,)),
        Parameter(f"{name}.weights_proj.weight", (indexer.num_heads, spec.hidden_size), gemm="index_weights"),
    ]


def latents(spec: ModelSpec, mla: Mla, shard: Shard) -> Kernels:
    """Latents of queries and keys: tensor parallelism does not cut them, each rank computes those of its tokens."""
    table, tokens, wide = parameters(spec, mla, None), shard.own_tokens, shard.wide
    norms = [
        memory_bound("rms_norm", f"{name}_norm", "qkv", rank, tokens * rank, 2, shard, tokens * rank * shard.narrow)
        for name, rank in (("q", mla.q_lora_rank), ("kv", mla.kv_lora_rank))
        if rank
    ]
    return (
        *gemm(shard, table, "q_down", "qkv", tokens, "qkv", keeps=wide),
        *gemm(shard, table, "kv_down", "qkv", tokens, "qkv", keeps=wide),
        *gemm(shard, table, "gate_down", "qkv", tokens, keeps=wide),
        *norms,
    )


def kernels(spec: ModelSpec, mla: Mla, window: int, shard: Shard) -> Kernels:
    """Kernels from latents to the output, on a tensor-parallel group's tokens; kept keys include the rotary part."""
    table, heads, tokens = parameters(spec, mla, None), split(spec.num_attention_heads, shard.tp), shard.tokens
    up, wide, keys = "mla_up_proj", shard.wide, heads * (spec.qk_head_dim + mla.v_head_dim)
    turned, made = tokens * (heads + 1) * mla.qk_rope_head_dim, tokens * heads * mla.v_head_dim
    return (
        *gemm(shard, table, "q_up", up, tokens, "qkv", keeps=wide),
        *gemm(shard, table, "kv_up", up, tokens, "qkv", keeps=wide, kept_width=keys),
        rope(up, mla.qk_rope_head_dim, turned, shard),
        *scores(spec, window, shard, heads, heads),
        *output_gate(spec, mla, shard, made),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )


def output_gate(spec: ModelSpec, mla: Mla, shard: Shard, made: int) -> Kernels:
    """The gate on the `made` values of the heads' outputs, if there is one."""
    read, moved = made * shard.stored_bytes("attn_proj", shard.narrow), 2 if spec.gate_per_head else 3
    gate = memory_bound("gate", "output_gate", "activation", mla.v_head_dim, made, moved, shard, read)
    return (gate,) if spec.output_gate else ()
