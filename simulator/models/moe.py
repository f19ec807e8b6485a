"""Mixture of experts: router, routed and shared experts; their parameters, and their kernels on one rank."""

from . import mlp
from .build import gemm, memory_bound
from .kernels import Kept, Kernel, Kernels
from .model import ModelSpec, Moe
from .parameters import Parameter, Parameters, n_elements, split
from .shard import Shard


def parameters(spec: ModelSpec, moe: Moe) -> Parameters:
    """Router, routed experts, shared experts."""
    prefix = "block_sparse_moe" if spec.model_type == "mixtral" else "mlp"
    return _router(spec, moe, prefix) + _experts(spec, moe, prefix) + _shared(spec, moe)


def _router(spec: ModelSpec, moe: Moe, prefix: str) -> Parameters:
    name, experts = f"{prefix}.{'router' if moe.router_bias else 'gate'}", moe.n_routed_experts
    correction = Parameter(f"{name}.e_score_correction_bias", (experts,), dtype="float32", learned=False)
    return [
        Parameter(f"{name}.weight", (experts, spec.hidden_size), gemm="router"),
        *[Parameter(f"{name}.bias", (experts,))] * moe.router_bias,
        *[correction] * moe.correction_bias,
    ]


def _experts(spec: ModelSpec, moe: Moe, prefix: str) -> Parameters:
    stacked, count = moe.stacked_experts, moe.n_routed_experts
    place = "mlp.experts" if stacked else f"{prefix}.experts.{{}}"
    return mlp.parameters(spec, place, moe.moe_intermediate_size, count, stacked)


def _shared(spec: ModelSpec, moe: Moe) -> Parameters:
    name, width = "mlp.shared_expert" if moe.shared_gate else "mlp.shared_experts", moe.shared_intermediate_size
    gate = Parameter("mlp.shared_expert_gate.weight", (1, spec.hidden_size), gemm="shared_gate")
    return (mlp.parameters(spec, name, width) if width else []) + [gate] * moe.shared_gate


def routing(spec: ModelSpec, moe: Moe, shard: Shard, table: Parameters) -> Kernels:
    """The router on a rank's own tokens, and laying them out by expert."""
    tokens, hidden, experts, chosen = shard.own_tokens, spec.hidden_size, moe.n_routed_experts, moe.num_experts_per_tok
    plain, moved = shard.plain, tokens * (1 + chosen) * hidden
    return (
        *gemm(shard, table, "shared_gate", "shared_experts", tokens, keeps=shard.wide, dtype=plain),
        *gemm(shard, table, "router", "router", tokens, keeps=4, dtype=plain),
        memory_bound("route", "topk", "router", experts, tokens * experts, 4, shard, tokens * chosen * 12),
        memory_bound("permute", "permute", "moe", hidden, moved, 1, shard),
    )


def _rows(moe: Moe, shard: Shard) -> int:
    """Rows that the experts of one rank compute: what its peers' tokens choose, and those of its expert-tp group."""
    return round(split(shard.tokens, shard.tp) * moe.num_experts_per_tok * shard.etp * shard.load)


def experts(spec: ModelSpec, moe: Moe, shard: Shard, table: Parameters) -> Kernels:
    """All products of the experts of one rank, with the activation between them."""
    rows, hidden, inter, count = _rows(moe, shard), spec.hidden_size, moe.moe_intermediate_size, moe.n_routed_experts
    matrices = n_elements(each for each in table if each.gemm == "experts") // (count * hidden * inter)
    shape = (rows, hidden, inter, moe.num_experts_per_tok, count, shard.etp, shard.ep, matrices)
    made = rows * inter / shard.etp
    stored, activated = shard.stored_bytes("expert_fc1", shard.narrow), shard.stored_bytes("moe_act", shard.wide)
    keeps = (
        Kept("moe", round(rows * hidden * stored + (matrices - 1) * made * activated)),
        Kept("activation", round(made * shard.narrow)),
    )
    return (
        memory_bound("permute", "sort", "moe", hidden, rows * hidden, 2, shard),
        Kernel("experts", "experts", "moe", shape, shard.linear, keeps=keeps, trained=not shard.lora_rank),
        memory_bound("permute", "unsort", "moe", hidden, rows * hidden, 2, shard),
    )


def combine(spec: ModelSpec, moe: Moe, shard: Shard) -> Kernels:
    """Adding up what the experts of each token gave, the shared ones too.

    The router's weights were multiplied in before the last product of the experts, as Megatron-Core does it, so nothing
    of what came back is kept.
    """
    hidden, own = spec.hidden_size, shard.own_tokens * spec.hidden_size
    moved = own * (1 + moe.num_experts_per_tok)
    gate = (memory_bound("gate", "shared_gate", "shared_experts", hidden, own, 2, shard, own * shard.wide),)
    both = (memory_bound("residual_add", "add_shared", "moe", hidden, own, 3, shard),)
    return (
        memory_bound("combine", "unpermute", "moe", hidden, moved, 1, shard),
        *(gate if moe.shared_gate else ()),
        *(both if moe.shared_intermediate_size else ()),
    )
