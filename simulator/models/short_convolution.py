"""The gated short convolution of LFM2 (arXiv 2511.23404): its parameters, and its kernels on one rank."""

from .kernels import Kernels
from .mixers import ShortConvolution
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix
from .shard import Shard, gemm, memory_bound


def parameters(spec: ModelSpec, of: ShortConvolution) -> Parameters:
    """One GEMM gives two gates and x, as wide as the model; all channels are apart, so any split of them will do."""
    hidden, bias = spec.hidden_size, of.bias
    table: Parameters = []
    for _ in ("gate before", "gate behind", "x"):
        table += linear("conv.in_proj", hidden, hidden, "in_proj", cut=0, bias=bias)
    table += [Parameter("conv.conv.weight", (hidden, 1, of.conv_kernel), 0)]
    table += [Parameter("conv.conv.bias", (hidden,), 0)] * bias
    return table + linear("conv.out_proj", hidden, hidden, "out_proj", cut=1, bias=bias)


def kernels(spec: ModelSpec, of: ShortConvolution, shard: Shard) -> Kernels:
    """The kernels from the input projection to the output projection, on the tokens of a tensor-parallel group.

    A gate reads two tensors and writes one. The backward keeps what each kernel reads.
    """
    table, tokens, wide = parameters(spec, of), shard.tokens, shard.wide
    _, width = matrix(table, "out_proj", shard.tp)
    elements = tokens * width
    read = elements * shard.stored_bytes("attn_proj", shard.narrow)
    return (
        *gemm(shard, table, "in_proj", "qkv", tokens, "qkv", keeps=wide),
        memory_bound("gate", "gate_before", "scan", width, elements, 3, shard, elements * wide),
        memory_bound("scan", "convolution", "scan", width, elements, 2, shard, elements * wide),
        memory_bound("gate", "gate_behind", "scan", width, elements, 3, shard, read),
        *gemm(shard, table, "out_proj", "proj", tokens, "proj"),
    )
