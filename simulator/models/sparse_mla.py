"""Sparse latent attention (DeepSeek-V3.2, arXiv 2512.02556): an indexer picks the tokens whose latents attention reads.

Its kernels on one rank; parameters and latents are those of `mla`. As Megatron-LM runs it (core/transformer/
experimental_attention_variant, absorbed_mla.py and dsa.py), keys are never made: queries go through the keys'
projection, attention has one head of latents as keys and as values, and its output goes through the values' projection.
"""

from dataclasses import replace

from .kernels import Kept, Kernel, Kernels
from .mla import output_gate, parameters
from .model import ModelSpec
from .parameters import split
from .parts import Indexer, Mla
from .shard import Shard, gemm, rope

LEARNING = ("index_teacher", "index_gradients")
"""Kernels by which an indexer learns, in training alone."""
_UP, _CORE = "mla_up_proj", "core_attn"
_SCORE_BYTES = 4  # scores of the indexer are in 32 bits


def kernels(spec: ModelSpec, mla: Mla, of: Indexer, own: Indexer | None, shard: Shard) -> Kernels:
    """Kernels from latents to the output, on a tensor-parallel group's tokens; `own` if the layer picks by itself.

    GEMMs of all heads with a matrix each are written as one, whose gradients have the right sizes.
    """
    table, heads, tokens = parameters(spec, mla, own), split(spec.num_attention_heads, shard.tp), shard.tokens
    wide, latent, trained = shard.wide, mla.kv_lora_rank, shard.trains
    width, made = latent + mla.qk_rope_head_dim, tokens * heads * mla.v_head_dim
    absorb, up = (tokens, heads * latent, mla.qk_nope_head_dim), (tokens, heads * mla.v_head_dim, latent)
    dtype, queries = shard.base or shard.plain, Kept(_UP, tokens * heads * width * wide)
    read = (Kept("proj", round(made * (wide if spec.output_gate else shard.stored_bytes("attn_proj", shard.narrow)))),)
    rotated = tokens * mla.qk_rope_head_dim * (heads + 1 + (own.num_heads + 1 if own else 0))
    return (
        *gemm(shard, table, "q_up", _UP, tokens, "qkv", keeps=wide * trained),
        *[kernel for kernel in gemm(shard, table, "kv_up", _UP, tokens, "qkv") if kernel.part == "lora"],
        Kernel("gemm", "k_absorb", _UP, absorb, dtype, keeps=(queries,), trained=trained),
        rope(_UP, mla.qk_rope_head_dim, rotated, shard, tokens * width * wide),
        *(_index(spec, mla, own, shard) if own else ()),
        _attention(mla, of, heads, shard),
        Kernel("gemm", "v_up", "proj", up, dtype, keeps=read, trained=trained),
        *output_gate(spec, mla, shard, made),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )


def _attention(mla: Mla, of: Indexer, heads: int, shard: Shard) -> Kernel:
    """Attention of each token to the latents of the tokens that were picked for it, or of all before it if fewer.

    Ranks that share a sequence gather latents; with Ulysses each has whole sequences of its heads.
    """
    (batch, seq), latent, rows = shard.texts(window=of.topk), mla.kv_lora_rank, shard.tokens * heads
    ulysses = shard.cp_type == "ulysses"
    heads, parts = (-(-heads // shard.cp), 1) if ulysses else (heads, shard.cp)
    shape = (batch, seq, heads, 1, latent + mla.qk_rope_head_dim, latent, 1, _window(of, seq), parts)
    kept = Kept(_CORE, rows * (4 + latent * shard.wide))
    return Kernel("sparse_attention", "attention", _CORE, shape, shard.plain, keeps=(kept,))


def _index(spec: ModelSpec, mla: Mla, own: Indexer, shard: Shard) -> Kernels:
    """The indexer's keys, weights and queries, its scores of all tokens before each one, and the pick; its learning.

    Every rank of a tensor-parallel group computes them for all tokens, and keeps what it gathered for that. No gradient
    passes to what they read. The tokens before each one are rows of GEMMs: their mean number is the width of no matrix.
    """
    tokens, before, table = shard.tokens, shard.mean_context(), parameters(spec, mla, own)
    learns = own.learns and shard.trains
    gathered, keeps = shard.tp > 1, shard.wide * learns
    made = [
        *gemm(shard, table, "index_keys", "qkv", tokens, keeps=keeps,
              kept_width=own.head_dim + gathered * spec.hidden_size),
        *gemm(shard, table, "index_weights", "qkv", tokens, keeps=keeps),
        *gemm(shard, table, "index_queries", "qkv", tokens, keeps=keeps,
              kept_width=own.num_heads * own.head_dim + gathered * (mla.q_lora_rank or 0)),
    ]  # fmt: skip
    scores = Kernel("gemm", "index_scores", _CORE, (before, tokens * own.num_heads, own.head_dim), shard.plain)
    moved = 2 * _SCORE_BYTES * tokens * before  # written, and read by the pick
    indices = Kept(_CORE, tokens * min(own.topk, round(shard.text)) * 4)
    pick = Kernel("route", "index_topk", _CORE, (before,), shard.dtype, moved, (indices,))
    rest = [replace(kernel, trained=False) for kernel in (scores, pick, *_learning(spec, mla, own, shard))]
    return tuple(replace(kernel, passes=False) for kernel in (*[replace(each, trained=learns) for each in made], *rest))


def _learning(spec: ModelSpec, mla: Mla, own: Indexer, shard: Shard) -> Kernels:
    """What an indexer learns by: to give the tokens that were picked the weights that attention gives them.

    Those are computed once more, for all heads, and scores have gradients there (the report's equation 4;
    `--dsa-indexer-use-sparse-loss`). Beside adapters there is a loss, and nothing that it could train.
    """
    heads, picked = split(spec.num_attention_heads, shard.tp), shard.mean_context(own.topk)
    teacher = picked, shard.tokens * heads, mla.kv_lora_rank + mla.qk_rope_head_dim
    gradients = picked, 2 * shard.tokens * own.num_heads, own.head_dim
    shapes = (teacher, gradients)[: 1 + shard.trains] if own.learns else ()
    return tuple(Kernel("gemm", name, _CORE, shape, shard.plain) for name, shape in zip(LEARNING, shapes, strict=False))


def _window(of: Indexer, seq: int) -> int:
    """How many tokens each one attends to at most; 0 for all."""
    return of.topk if of.topk < seq else 0
