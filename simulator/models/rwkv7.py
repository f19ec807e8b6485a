"""RWKV-7 (arXiv 2503.14456): the parameters of its time mixing, and its kernels on one rank."""

from .kernels import Kernels
from .linear_attention import chunked
from .mixers import Rwkv7
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, split
from .shard import Shard, gemm, memory_bound

_SHIFTED = 6  # mixtures of a token with the one before: for r, w, k, v, a and g


def parameters(spec: ModelSpec, of: Rwkv7) -> Parameters:
    """Matrices of r, k, v and the output; decay, step, value and gate go through low ranks; the rest are vectors.

    The first layer has no rank for values, which here every layer has (0.03 % of the parameters of the smallest model).
    The mixture of the FFN's input is counted here.
    """
    hidden, heads, name = spec.hidden_size, of.num_heads, "attn"
    table: Parameters = [Parameter(f"{name}.x_{letter}", (hidden,)) for letter in "rwkvag"]
    table += [Parameter("ffn.x_k", (hidden,))]
    for letter in "rkv":
        table += linear(f"{name}.{letter}_proj", hidden, hidden, "qkv", cut=0, units=heads)
    for letter, rank in of.ranks:
        table += linear(f"{name}.{letter}_lora.down", rank, hidden, f"{letter}_down")
        table += linear(
            f"{name}.{letter}_lora.up", hidden, rank, f"{letter}_up", cut=0, units=heads, bias=letter != "g"
        )
    for vector in ("k_k", "k_a", "r_k", "g_norm.weight", "g_norm.bias"):
        table += [Parameter(f"{name}.{vector}", (hidden,), 0, heads)]
    return table + linear(f"{name}.o_proj", hidden, hidden, "proj", cut=1, units=heads)


def kernels(spec: ModelSpec, of: Rwkv7, shard: Shard) -> Kernels:
    """The kernels of time mixing; its state follows a delta rule, and forgets along vectors of their own.

    The backward keeps mixtures, projections, what the chunks give, and what the output projection reads.
    """
    table, tokens, wide = parameters(spec, of), shard.tokens, shard.wide
    heads = split(of.num_heads, shard.tp)
    whole, own = tokens * spec.hidden_size, tokens * heads * of.head_dim
    ranks = [
        kernel
        for letter, _ in of.ranks
        for part in ("down", "up")
        for kernel in gemm(shard, table, f"{letter}_{part}", "qkv", tokens, keeps=wide)
    ]
    read = own * shard.stored_bytes("attn_proj", shard.narrow)
    mixed = _SHIFTED * whole * wide
    return (
        memory_bound("scan", "token_shift", "qkv", spec.hidden_size, whole, 1 + _SHIFTED, shard, mixed),
        *gemm(shard, table, "qkv", "qkv", tokens, "qkv", keeps=wide),
        *ranks,
        *chunked(shard, heads, of.head_dim, of.head_dim, pairs=2),
        memory_bound("gate", "output_gate", "activation", heads * of.head_dim, own, 3, shard, read),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )
