"""Lightning Attention, MiniMax's linear attention with a fixed decay per head (arXiv 2501.08313, section 2.2)."""

from .kernels import Kept, Kernels
from .mixers import Lightning
from .model import ModelSpec
from .parameters import Parameters, linear, norm_of, split
from .shard import Shard, gemm, memory_bound, product


def parameters(spec: ModelSpec, of: Lightning) -> Parameters:
    """One GEMM for q, k and v, another for the gate of the output, which has a norm over all heads."""
    hidden, heads, width, name = spec.hidden_size, of.num_heads, of.width, "self_attn"
    return [
        *linear(f"{name}.qkv_proj", 3 * width, hidden, "qkv", cut=0, units=heads),
        *linear(f"{name}.output_gate", width, hidden, "qkv", cut=0, units=heads),
        *norm_of(f"{name}.norm", (width,), cut=0),
        *linear(f"{name}.out_proj", hidden, width, "proj", cut=1, units=heads),
    ]


def kernels(spec: ModelSpec, of: Lightning, shard: Shard) -> Kernels:
    """The kernels from the projections to the output projection.

    Within a block of tokens each head multiplies as attention does; what came before the block is in a state of
    `head_dim` x `head_dim`, which each block reads and adds to.
    """
    table, tokens, wide = parameters(spec, of), shard.tokens, shard.wide
    heads, dim = split(of.num_heads, shard.tp), of.head_dim
    rows, made = tokens * heads, tokens * heads * dim
    read = made * shard.stored_bytes("attn_proj", shard.narrow)
    blocks, state = Kept("core_attn", rows * of.block_size * wide), Kept("core_attn", made * wide)
    return (
        *gemm(shard, table, "qkv", "qkv", tokens, "qkv", keeps=wide),
        product(shard, "core_attn", "blocks", rows, of.block_size, 2 * dim, blocks, kind="scan_gemm"),
        product(shard, "core_attn", "state", rows, dim, 2 * dim, state, kind="scan_gemm"),
        memory_bound("rms_norm", "out_norm", "core_attn", heads * dim, made, 2, shard, made * wide),
        memory_bound("gate", "output_gate", "activation", heads * dim, made, 3, shard, read),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )
