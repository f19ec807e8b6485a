"""Mamba-1, the selective scan (arXiv 2312.00752): its parameters, and its kernels on one rank."""

from dataclasses import replace

from .kernels import Kept, Kernel, Kernels
from .mixers import Mamba
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear
from .shard import Shard, gemm, memory_bound


def parameters(spec: ModelSpec, of: Mamba) -> Parameters:
    """One GEMM gives x and its gate; x gives the low-rank step, B and C; every channel has a state of its own."""
    inner, state, rank = of.inner_width, of.state_size, of.step_rank
    convolution = [Parameter("mamba.conv1d.weight", (inner, 1, of.conv_kernel))]
    convolution += [Parameter("mamba.conv1d.bias", (inner,))] * of.conv_bias
    widths = {"dt": rank, "b": state, "c": state}
    norms = [Parameter(f"mamba.{name}_layernorm.weight", (width,)) for name, width in widths.items()]
    return [
        *linear("mamba.in_proj", 2 * inner, spec.hidden_size, "in_proj", bias=of.proj_bias),
        *convolution,
        *linear("mamba.x_proj", rank + 2 * state, inner, "x_proj"),
        *linear("mamba.dt_proj", inner, rank, "dt_proj", bias=True),
        *norms * of.inner_norms,
        Parameter("mamba.A_log", (inner, state)),
        Parameter("mamba.D", (inner,)),
        *linear("mamba.out_proj", spec.hidden_size, inner, "out_proj", bias=of.proj_bias),
    ]


def kernels(spec: ModelSpec, of: Mamba, shard: Shard) -> Kernels:
    """The kernels from the input projection to the output projection.

    The backward keeps x and its gate, the low-rank step with B and C, the scan's output, and what the output projection
    reads. It runs the convolution and the step's projection again, and states inside its kernel (arXiv 2312.00752,
    section 3.3.2; state-spaces/mamba, ops/selective_scan_interface.py).
    """
    table, tokens, wide = parameters(spec, of), shard.tokens, shard.wide
    elements = tokens * of.inner_width
    return (
        *gemm(shard, table, "in_proj", "qkv", tokens, "qkv", keeps=wide),
        replace(memory_bound("scan", "convolution", "scan", of.inner_width, elements, 2, shard), again=True),
        *gemm(shard, table, "x_proj", "qkv", tokens, keeps=wide),
        *(replace(kernel, again=True) for kernel in gemm(shard, table, "dt_proj", "qkv", tokens)),
        selective_scan(of, shard),
        *gemm(shard, table, "out_proj", "proj", tokens, "proj"),
    )


def selective_scan(of: Mamba, shard: Shard) -> Kernel:
    """The scan with its gate: it reads x, gate and step and writes its output, once per channel and token.

    It takes an exponential for each element of a state, which is the second entry of its shape.
    """
    elements = shard.tokens * of.inner_width
    kept = (
        Kept("scan", elements * shard.wide),
        Kept("scan", round(elements * shard.stored_bytes("attn_proj", shard.narrow))),
    )
    scan = memory_bound("selective_scan", "selective_scan", "scan", of.inner_width, elements, 4, shard)
    return replace(scan, shape=(of.inner_width, elements * of.state_size), keeps=kept)
