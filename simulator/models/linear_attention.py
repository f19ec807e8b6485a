"""Gated DeltaNet, a linear attention (arXiv 2412.06464): its parameters, and its kernels on one rank."""

from functools import partial

from .kernels import Kept, Kernels
from .mixers import LinearAttention
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix, split
from .shard import Shard, gemm, memory_bound, product

_SCAN_CHUNK = 64  # tokens that are treated together (flash-linear-attention's chunk_size)


def parameters(spec: ModelSpec, of: LinearAttention) -> Parameters:
    """One GEMM computes all projections of the input. Decay and norm are in FP32; the two gates are not quantized."""
    hidden, heads, name = spec.hidden_size, of.num_value_heads, "linear_attn"
    return [
        Parameter(f"{name}.dt_bias", (heads,), cut=0),
        Parameter(f"{name}.A_log", (heads,), cut=0, dtype="float32"),
        Parameter(f"{name}.conv1d.weight", (of.qkv_width, 1, of.conv_kernel), cut=0),
        Parameter(f"{name}.norm.weight", (of.value_head_dim,), dtype="float32"),
        *linear(f"{name}.in_proj_qkv", of.qkv_width, hidden, "qkv", cut=0),
        *linear(f"{name}.in_proj_z", of.value_width, hidden, "qkv", cut=0),
        Parameter(f"{name}.in_proj_b.weight", (heads, hidden), 0, gemm="qkv"),
        Parameter(f"{name}.in_proj_a.weight", (heads, hidden), 0, gemm="qkv"),
        *linear(f"{name}.out_proj", hidden, of.value_width, "proj", cut=1),
    ]


def kernels(spec: ModelSpec, of: LinearAttention, shard: Shard) -> Kernels:
    """The kernels from the projections to the output projection: a convolution, a delta rule in chunks, a gate."""
    table, tokens = parameters(spec, of), shard.tokens
    qkv, (_, value) = split(of.qkv_width, shard.tp), matrix(table, "proj", shard.tp)
    heads, wide = split(of.num_value_heads, shard.tp), shard.wide
    read = tokens * value * shard.stored_bytes("attn_proj", shard.narrow)
    return (
        *gemm(shard, table, "qkv", "qkv", tokens, "qkv", keeps=wide),
        memory_bound("scan", "convolution", "core_attn", qkv, tokens * qkv, 2, shard, tokens * qkv * wide),
        *chunked(shard, heads, of.key_head_dim, of.value_head_dim),
        memory_bound("gate", "output_gate", "activation", value, tokens * value, 3, shard, read),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )


def chunked(shard: Shard, heads: int, key_dim: int, value_dim: int, pairs: int = 1) -> Kernels:
    """The GEMMs of a delta rule in chunks, on a rank's heads (arXiv 2412.06464, section 3.3).

    With chunks of C tokens, keys of K and values of V, a token and head takes 2 C (3 K + 2 V) operations in its chunk
    (k k^T, the two solved products w and u, q k^T, and scores times values) and 6 K V with the state (w S, k^T v, q S).
    The GEMMs of all chunks are priced as one. The inverse of a chunk's triangle is kept; the backward computes w, u,
    states and scores again (fla-org/flash-linear-attention, ops/gated_delta_rule/chunk.py).

    With two `pairs` of vectors, the state forgets along others than the keys that it learns by, as in RWKV-7: scores
    and states are of both pairs (there ops/generalized_delta_rule/dplr/chunk.py).
    """
    rows, wide = shard.tokens * heads, shard.wide
    chunk = min(_SCAN_CHUNK, shard.seq)
    both, of_rule = pairs * chunk, partial(product, shard, "core_attn", kind="scan_gemm")
    learned = (of_rule("chunk_values", rows, value_dim, chunk, again=True),) if pairs > 1 else ()
    return (
        of_rule("chunk_keys", rows, both, key_dim, Kept("core_attn", rows * chunk * wide)),
        *learned,
        of_rule("chunk_solved", rows, key_dim + value_dim, chunk, again=True),
        of_rule("state_values", rows, value_dim, key_dim, again=True),
        of_rule("chunk_states", shard.chunks(chunk) * heads * key_dim, value_dim, both, again=True),
        of_rule("chunk_scores", rows, both, key_dim, again=True),
        of_rule("chunk_output", rows, value_dim, both),
        of_rule("state_output", rows, value_dim, key_dim, Kept("proj", rows * value_dim * wide)),
    )
