"""Several residual streams: hyper-connections (arXiv 2409.19606), as DeepSeek-V4 and Hunyuan 4 have them.

Between blocks a token has `streams` hidden states. Attention and FFN read one that is a sum of them, and what they give
is added to each, or, with `streams_mix`, to mixtures of all. A GEMM of all streams gives the weights of these sums.
Sources: `modeling_deepseek_v4.py` and `modeling_hy_v4.py` of transformers 5.
"""

from .kernels import Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters
from .shard import Shard, gemm, memory_bound


def layer_parameters(spec: ModelSpec) -> Parameters:
    """Those of the two blocks of a layer; every rank has them."""
    names = ("attn_hc.", "ffn_hc.") if has_streams(spec) else ()
    return [parameter for name in names for parameter in _weights(spec, name, _rows(spec))]


def head_parameters(spec: ModelSpec) -> Parameters:
    """Those of the sum that the last norm reads."""
    return _weights(spec, f"{spec.trunk}.hc_head.hc_", spec.streams, 1) if has_streams(spec) else []


def has_streams(spec: ModelSpec) -> bool:
    """Whether blocks read sums of streams; AltUp has streams of its own kind."""
    return spec.streams > 1 and not spec.altup


def _rows(spec: ModelSpec) -> int:
    """Weights of a token at a block: those of its input, those of its output, and those of mixtures."""
    return spec.streams * (2 + spec.streams * spec.streams_mix)


def _weights(spec: ModelSpec, prefix: str, rows: int, scales: int = 0) -> Parameters:
    scales = scales or 2 + spec.streams_mix
    return [
        Parameter(f"{prefix}fn", (rows, spec.streams * spec.hidden_size), gemm="streams", dtype="float32"),
        Parameter(f"{prefix}base", (rows,), dtype="float32"),
        Parameter(f"{prefix}scale", (scales,), dtype="float32"),
    ]


def collapse(spec: ModelSpec, shard: Shard, name: str, head: bool = False) -> Kernels:
    """The sum of the streams that a block, or the head, reads."""
    if not has_streams(spec):
        return ()
    rows, tokens, hidden = spec.streams if head else _rows(spec), shard.own_tokens, spec.hidden_size
    table = _weights(spec, "", rows)
    made = tokens * hidden
    return (
        *gemm(shard, table, "streams", "residual", tokens, keeps=4, dtype=shard.plain),
        memory_bound("residual_add", name, "residual", hidden, made, spec.streams + 1, shard, made * shard.wide),
    )
