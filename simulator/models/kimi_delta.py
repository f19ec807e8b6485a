"""Kimi Delta Attention, a linear attention with a decay per channel (arXiv 2510.26692): parameters and kernels."""

from .kernels import Kernels
from .linear_attention import chunked
from .mixers import KimiDelta
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, split
from .shard import Shard, gemm, memory_bound


def parameters(spec: ModelSpec, of: KimiDelta) -> Parameters:
    """Projections of q, k and v, and of a step per head; decay and gate go through a rank of one head's width."""
    hidden, heads, dim, name = spec.hidden_size, of.num_heads, of.head_dim, "self_attn"
    table: Parameters = []
    for letter in "qkv":
        table += linear(f"{name}.{letter}_proj", of.width, hidden, "qkv", cut=0, units=heads)
        table += [Parameter(f"{name}.{letter}_conv1d.weight", (of.width, 1, of.conv_kernel), 0, heads)]
    for gate in "fg":
        table += linear(f"{name}.{gate}_a_proj", dim, hidden, f"{gate}_down")
        table += linear(f"{name}.{gate}_b_proj", of.width, dim, f"{gate}_up", cut=0, units=heads)
    return [
        *table,
        Parameter(f"{name}.b_proj.weight", (heads, hidden), 0, heads, gemm="qkv"),
        Parameter(f"{name}.A_log", (heads,), 0, heads, dtype="float32"),
        Parameter(f"{name}.dt_bias", (of.width,), 0, heads, dtype="float32"),
        Parameter(f"{name}.o_norm.weight", (dim,)),
        *linear(f"{name}.o_proj", hidden, of.width, "proj", cut=1, units=heads),
    ]


def kernels(spec: ModelSpec, of: KimiDelta, shard: Shard) -> Kernels:
    """The kernels from the projections to the output projection; chunks are those of Gated DeltaNet.

    Each rank of tensor parallelism computes the low ranks of decay and gate for all tokens.
    """
    table, tokens, wide = parameters(spec, of), shard.tokens, shard.wide
    heads = split(of.num_heads, shard.tp)
    width = heads * of.head_dim
    low = [
        kernel
        for gate in "fg"
        for part in ("down", "up")
        for kernel in gemm(shard, table, f"{gate}_{part}", "qkv", tokens, keeps=wide)
    ]
    mixed, read = tokens * 3 * width, tokens * width * shard.stored_bytes("attn_proj", shard.narrow)
    return (
        *gemm(shard, table, "qkv", "qkv", tokens, "qkv", keeps=wide),
        *low,
        memory_bound("scan", "convolution", "core_attn", 3 * width, mixed, 2, shard, mixed * wide),
        *chunked(shard, heads, of.head_dim, of.head_dim),
        memory_bound("gate", "output_gate", "activation", width, tokens * width, 3, shard, read),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )
