"""The feed-forward network (MLP), gated or not: its parameters, and its kernels on one rank.

Dense layers have one, MoE layers one per expert and one for all shared experts (`moe`).
"""

from functools import partial
from itertools import chain

from .build import gemm, memory_bound
from .kernels import Kernels
from .model import ModelSpec
from .parameters import Parameters, linear, matrix
from .shard import Shard


def parameters(spec: ModelSpec, prefix: str, width: int, experts: int = 0, stacked: bool = False) -> Parameters:
    """Matrices into and out of `width`, of one expert if there are `experts`; Mixtral has its own names.

    The last bias is added to a sum over ranks, so every rank has all of it. `stacked` names have no suffix.
    """
    mixtral = prefix.startswith("block_sparse_moe")
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    fused = spec.fused_gate_up or stacked
    ups = [up] if not spec.gated_ffn else ["gate_up_proj"] * 2 if fused else [gate, up]
    gemms = ("experts", "experts") if experts else ("up", "down")
    suffixes = ("", "_bias") if stacked else (".weight", ".bias")
    matrix_of = partial(linear, bias=spec.mlp_bias, experts=experts, suffixes=suffixes)
    into = [matrix_of(f"{prefix}.{name}", width, spec.hidden_size, gemms[0], cut=0) for name in ups]
    return [*chain(*into), *matrix_of(f"{prefix}.{down}", spec.hidden_size, width, gemms[1], cut=1)]


def kernels(spec: ModelSpec, shard: Shard, table: Parameters, part: str) -> Kernels:
    """A network on the tokens of a tensor-parallel group; none where the table has none."""
    _, inter = matrix(table, "down", shard.tp)
    if not inter:
        return ()
    kind, tokens = "swiglu" if spec.gated_ffn else "gelu", shard.tokens
    activated = tokens * inter
    kept = activated * (shard.narrow + shard.wide * (shard.keeps_gate and spec.gated_ffn))
    stored = shard.stored_bytes("mlp_act" if part == "mlp" else "moe_act", shard.wide)
    moved = 3 if spec.gated_ffn else 2
    return (
        *gemm(shard, table, "up", part, tokens, "up", keeps=stored),
        memory_bound(kind, "activation", "activation", inter, activated, moved, shard, kept),
        *gemm(shard, table, "down", part, tokens, "down"),
    )
