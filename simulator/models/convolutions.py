"""Short causal convolutions around attention: of keys and values and of outputs (Inkling), of queries and keys (Zaya).

A convolution of `conv_kernel` tokens runs over each channel alone; Zaya's second one mixes the channels of each head.
Sources: `modeling_inkling.py` and `modeling_zaya.py` of transformers 5; arXiv 2510.04476.
"""

from .kernels import Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, split
from .shard import Shard, gemm, memory_bound


def _heads(spec: ModelSpec) -> dict[str, int]:
    """The heads of each projection whose outputs a convolution reads, by the projection's letter."""
    heads = {"q": spec.num_attention_heads}
    if not spec.shares_kv:
        heads |= {"k": spec.num_key_value_heads, "v": spec.num_key_value_heads}
    return {letter: heads[letter] for letter in spec.convolved if letter in heads}


def head_parameters(spec: ModelSpec) -> Parameters:
    """Convolutions of projections, cut by heads. Where heads are mixed, both convolutions have a bias."""
    dim, width, table = spec.head_dim, spec.conv_kernel, Parameters()
    for letter, heads in _heads(spec).items():
        name, channels = f"self_attn.{letter}_sconv", heads * dim
        table += [Parameter(f"{name}.conv1d.weight", (channels, 1, width), 0, heads)]
        if spec.conv_mixes_heads:
            table += [Parameter(f"{name}.conv1d.bias", (channels,), 0, heads)]
            table += [Parameter(f"{name}.mix.weight", (channels, dim, width), 0, heads)]
            table += [Parameter(f"{name}.mix.bias", (channels,), 0, heads)]
    return table


def branch_parameters(spec: ModelSpec) -> Parameters:
    """Convolutions of what attention and the network give."""
    names = ("attn_sconv", "mlp_sconv") if "o" in spec.convolved else ()
    return [Parameter(f"{name}.conv1d.weight", (spec.hidden_size, 1, spec.conv_kernel)) for name in names]


def head_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """A pass over the heads that are convolved, and a GEMM of each head with `conv_kernel` tokens of it."""
    heads, dim = sum(split(heads, shard.tp) for heads in _heads(spec).values()), spec.head_dim
    if not heads:
        return ()
    rows = shard.tokens * heads
    made = rows * dim
    table = [Parameter("", (dim, dim * spec.conv_kernel), gemm="mix_heads")] * spec.conv_mixes_heads
    return (
        memory_bound("scan", "convolution", "qkv", heads * dim, made, 2, shard, made * shard.wide),
        *gemm(shard, table, "mix_heads", "qkv", rows, keeps=shard.wide),
    )


def branch_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """A pass over the output of attention, or of the network."""
    made = shard.own_tokens * spec.hidden_size
    scan = memory_bound("scan", "branch_convolution", "residual", spec.hidden_size, made, 2, shard, made * shard.wide)
    return (scan,) if "o" in spec.convolved else ()
