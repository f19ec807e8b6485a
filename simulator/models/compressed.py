"""Compressed attention (DeepSeek-V4): near tokens one by one, far ones in groups; one head of keys, also the values.

Queries come from a latent, and outputs go through one latent per group of heads. A layer attends to a window of tokens.
It may also attend to entries that each stand for `ratio` tokens: to all of them, or to those that an indexer picks.
The near and the far attention are two kernels here. Source: `modeling_deepseek_v4.py` of transformers 5.
"""

from dataclasses import replace

from .kernels import Kept, Kernel, Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, norm_of, split
from .parts import Compressed
from .shard import Shard, gemm, memory_bound, product, rope

_NAME = "self_attn"


def parameters(spec: ModelSpec, of: Compressed) -> Parameters:
    """What reads hidden states is on every rank; what makes queries and reads heads is cut by heads."""
    heads, hidden, dim = spec.num_attention_heads, spec.hidden_size, spec.head_dim
    return [
        *linear(f"{_NAME}.q_a_proj", of.q_lora_rank, hidden, "q_down"),
        *norm_of(f"{_NAME}.q_a_norm", (of.q_lora_rank,)),
        *linear(f"{_NAME}.q_b_proj", heads * dim, of.q_lora_rank, "q_up", cut=0, units=heads),
        *linear(f"{_NAME}.kv_proj", dim, hidden, "kv_down"),
        *norm_of(f"{_NAME}.kv_norm", (dim,)),
        *linear(f"{_NAME}.o_a_proj", of.o_groups * of.o_lora_rank, heads * dim // of.o_groups, "out_latent", cut=0,
                units=of.o_groups),
        *linear(f"{_NAME}.o_b_proj", hidden, of.o_groups * of.o_lora_rank, "proj", cut=1, units=of.o_groups),
        Parameter(f"{_NAME}.sinks", (heads,), cut=0, dtype="float32"),
        *(_compressor(f"{_NAME}.compressor", spec, of, dim) if of.ratio else []),
        *(_indexer(f"{_NAME}.compressor.indexer", spec, of) if of.index_topk else []),
    ]  # fmt: skip


def _compressor(name: str, spec: ModelSpec, of: Compressed, dim: int) -> Parameters:
    """Entries and the weights of their tokens; entries that are picked overlap, which doubles both."""
    width = dim * (2 if of.index_topk else 1)
    return [
        *linear(f"{name}.kv_proj", width, spec.hidden_size, "compress"),
        *linear(f"{name}.gate_proj", width, spec.hidden_size, "compress"),
        Parameter(f"{name}.position_bias", (of.ratio, width), dtype="float32"),
        *norm_of(f"{name}.kv_norm", (dim,)),
    ]


def _indexer(name: str, spec: ModelSpec, of: Compressed) -> Parameters:
    return [
        *_compressor(name, spec, of, of.index_dim),
        *linear(f"{name}.q_b_proj", of.index_heads * of.index_dim, of.q_lora_rank, "index_queries"),
        Parameter(f"{name}.scorer.weights_proj.weight", (of.index_heads, spec.hidden_size), gemm="index_weights"),
    ]


def latents(spec: ModelSpec, of: Compressed, shard: Shard) -> Kernels:
    """Kernels of a rank's own tokens: latents of queries, keys, entries, and what the indexer reads."""
    table, tokens, wide, dim = parameters(spec, of), shard.own_tokens, shard.wide, spec.head_dim
    norms = [
        memory_bound("rms_norm", name, "qkv", width, tokens * width, 2, shard, tokens * width * shard.narrow)
        for name, width in (("q_norm", of.q_lora_rank), ("kv_norm", dim))
    ]
    names = ("q_down", "kv_down", "compress", "index_weights")
    downs = [kernel for name in names for kernel in gemm(shard, table, name, "qkv", tokens, keeps=wide)]
    sums = memory_bound("scan", "compress_sum", "qkv", dim, 2 * tokens * dim, 1, shard)
    return (*downs, *norms, *(sums,) * (of.ratio > 0), *gemm(shard, table, "index_queries", "qkv", tokens, keeps=wide))


def kernels(spec: ModelSpec, of: Compressed, window: int, shard: Shard) -> Kernels:
    """Kernels from latents to the output, on a tensor-parallel group's tokens."""
    table, tokens, dim = parameters(spec, of), shard.tokens, spec.head_dim
    made = tokens * split(spec.num_attention_heads, shard.tp) * dim
    return (
        *gemm(shard, table, "q_up", "qkv", tokens, "qkv", keeps=shard.wide),
        memory_bound("rms_norm", "q_head_norm", "qkv", dim, made, 2, shard, made * shard.wide),
        rope("qkv", of.rope_dim, made * of.rope_dim // dim, shard),
        *_scores(spec, of, window, shard),
        *gemm(shard, table, "out_latent", "proj", tokens, keeps=shard.narrow),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )


def _scores(spec: ModelSpec, of: Compressed, window: int, shard: Shard) -> Kernels:
    """Attention to the window, and to entries: as many as a token has before it, or at most `index_topk` of them.

    One kernel gathers both by their indices, whether they were picked or are all there is (sparse_attn in
    inference/model.py of DeepSeek-V4's repositories).

    Of every `ratio` tokens in a window of `ratio` x `index_topk` there is one entry. The indexer scores all entries,
    which are rows of its GEMM: how many a token has before it on average is the width of no matrix.
    """
    heads, dim, rows = split(spec.num_attention_heads, shard.tp), spec.head_dim, shard.tokens
    kept = (Kept("core_attn", rows * heads * (4 + dim * shard.wide)), Kept("proj", rows * heads * dim * shard.wide))
    shape = (shard.batch, shard.seq, heads, 1, dim, dim, 1)
    near = Kernel("sparse_attention", "attention", "core_attn", (*shape, window, shard.cp), shard.plain)
    entries = (*shape, of.ratio * of.index_topk, of.ratio * shard.cp)
    far = Kernel("sparse_attention", "attention_entries", "core_attn", entries, shard.plain, keeps=kept)
    scored = (max(shard.seq // (2 * max(of.ratio, 1)), 1), shard.own_tokens * of.index_heads, of.index_dim)
    index = product(shard, "core_attn", "index_scores", *scored)
    return (*(index,) * (of.index_topk > 0), near, far) if of.ratio else (replace(near, keeps=kept),)
