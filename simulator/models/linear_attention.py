"""Gated DeltaNet, a linear attention (arXiv 2412.06464): its parameters, and its kernels on one rank."""

from .kernels import Kept, Kernel, Kernels
from .mixers import LinearAttention
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix, split
from .shard import Shard, gemm, memory_bound

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
    """The kernels of chunked linear attention: projections, convolution, GEMMs in chunks and with the state, output."""
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


def chunked(shard: Shard, heads: int, key_dim: int, value_dim: int) -> Kernels:
    """The GEMMs of a rank's heads in chunks and with the state; the backward keeps what both give."""
    rows, wide = shard.tokens * heads, shard.wide
    chunk_kept, state_kept = Kept("core_attn", rows * _SCAN_CHUNK * wide), Kept("proj", rows * value_dim * wide)

    def product(name: str, n: int, k: int, kept: Kept) -> Kernel:
        return Kernel("gemm", name, "core_attn", (rows, n, k), shard.plain, keeps=(kept,), trained=False)

    return (
        product("chunks", _SCAN_CHUNK, 2 * key_dim + value_dim, chunk_kept),
        product("state", value_dim, 2 * key_dim, state_kept),
    )
