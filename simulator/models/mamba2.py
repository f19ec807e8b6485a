"""Mamba-2 (arXiv 2405.21060): its parameters, and its kernels on one rank.

The scan is the state-space dual form: tokens in chunks, GEMMs inside each chunk, and a short recurrence between chunks.
Tensor parallelism splits heads and groups, so a rank scans its own heads and only the output projection adds up
(Megatron-LM, core/ssm/mamba_mixer.py).
"""

from dataclasses import replace
from functools import partial

from .kernels import Kept, Kernels
from .mixers import Mamba2
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix, split
from .shard import Shard, gemm, memory_bound, product

SCAN = ("convolution", "chunk_scores", "chunk_states", "pass_states", "chunk_output", "state_output")
"""The kernels that need all tokens of a sequence."""

_STATE_TRAFFIC = 4 + 2  # bytes per element of a chunk's state: read in fp32, written in 16 bits (mamba_ssm 2)


def parameters(spec: ModelSpec, of: Mamba2) -> Parameters:
    """One GEMM gives gate, x, B, C and the step of each head; the convolution runs over x, B and C."""
    hidden, heads, inner = spec.hidden_size, of.num_heads, of.inner_width
    gate, x, step = (inner, heads), (inner, heads), (heads, heads)
    groups = [(of.group_width, of.num_groups)] * 2
    table: Parameters = []
    for width, units in (gate, x, *groups, step):
        table += linear("mamba.in_proj", width, hidden, "in_proj", cut=0, units=units, bias=of.proj_bias)
    for width, units in (x, *groups):
        table += [Parameter("mamba.conv1d.weight", (width, 1, of.conv_kernel), 0, units)]
        table += [Parameter("mamba.conv1d.bias", (width,), 0, units)] * of.conv_bias
    table += [Parameter(f"mamba.{name}", (heads,), 0, heads) for name in ("A_log", "D", "dt_bias")]
    table += [Parameter("mamba.norm.weight", (inner,), 0, of.num_groups)] * of.gated_norm
    return table + linear("mamba.out_proj", hidden, inner, "out_proj", cut=1, units=heads, bias=of.proj_bias)


def kernels(spec: ModelSpec, of: Mamba2, shard: Shard) -> Kernels:
    """The kernels from the input projection to the output projection, on the tokens of a tensor-parallel group.

    The backward keeps what goes into the convolution, what the scan gives, and what the output projection reads; it
    runs all between them again but for the outputs of the scan (state-spaces/mamba, ops/triton/ssd_combined.py).
    """
    table, tokens = parameters(spec, of), shard.tokens
    _, inner = matrix(table, "out_proj", shard.tp)
    mixed = inner + 2 * split(of.num_groups, shard.tp) * of.state_size
    read = tokens * inner * shard.stored_bytes("attn_proj", shard.narrow)
    return (
        *gemm(shard, table, "in_proj", "qkv", tokens, "qkv", keeps=shard.wide),
        replace(memory_bound("scan", "convolution", "scan", mixed, tokens * mixed, 2, shard), again=True),
        *scan(of, shard),
        memory_bound("gate", "gated_norm", "scan", inner, tokens * inner, 3, shard, read),
        *gemm(shard, table, "out_proj", "proj", tokens, "proj"),
    )


def scan(of: Mamba2, shard: Shard) -> Kernels:
    """The four steps of the chunked scan on the heads of one rank (arXiv 2405.21060, section 6 and listing 1).

    With chunks of Q tokens, H heads of width P, G groups and states of N, a token takes 2 Q (G N + H P) operations
    inside its chunk (C B^T of each group, times x of each head), and 2 N P H each for the chunk's state and for the
    output from the state before. The GEMMs of all chunks are priced as one. The recurrence between chunks moves
    states only. As torch counts it, C B^T is a full square, of which a mask drops half.
    """
    heads, groups = split(of.num_heads, shard.tp), split(of.num_groups, shard.tp)
    chunk, state, dim = min(of.chunk_size, shard.seq), of.state_size, of.head_dim
    tokens = shard.tokens
    states = shard.chunks(chunk) * heads * state
    of_scan = partial(product, shard, "scan", kind="scan_gemm")
    passed = states * dim * _STATE_TRAFFIC / shard.wide
    return (
        of_scan("chunk_scores", tokens * groups, chunk, state, again=True),
        of_scan("chunk_states", states, dim, chunk, again=True),
        replace(memory_bound("scan", "pass_states", "scan", dim, passed, 1, shard), again=True),
        of_scan("chunk_output", tokens * heads, dim, chunk),
        of_scan("state_output", tokens * heads, dim, state, Kept("scan", tokens * heads * dim * shard.wide)),
    )
