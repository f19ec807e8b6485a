"""The feed-forward network (MLP), dense or a mixture of experts: its parameters, and its kernels on one rank.

Dense layers have one network, MoE layers one per expert and one for all shared experts, and a router before them.
"""

from functools import partial
from itertools import chain

from .kernels import Kept, Kernel, Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix, n_elements, norm, norm_of, split
from .parts import Moe
from .shard import Shard, gemm, memory_bound


def parameters(spec: ModelSpec, prefix: str, width: int, experts: int = 0, stacked: bool = False) -> Parameters:
    """Matrices into and out of `width`, of one expert if there are `experts`.

    Every rank has the whole last bias, as it is added to a sum over ranks. `stacked` names have no suffix.
    """
    gate, up, down = spec.matrix_names
    hidden = spec.expert_hidden if experts else spec.hidden_size
    fused = spec.fused_gate_up or stacked
    ups = [up] if not spec.gated_ffn else ["gate_up_proj"] * 2 if fused else [gate, up]
    gemms = ("experts", "experts") if experts else ("up", "down")
    suffixes = ("", "_bias") if stacked else (".weight", ".bias")
    matrix_of = partial(linear, bias=spec.mlp_bias, experts=experts, suffixes=suffixes)
    into = [matrix_of(f"{prefix}.{name}", width, hidden, gemms[0], cut=0) for name in ups]
    between = [] if experts else _between_matrices(spec, prefix, width)
    return [*chain(*into), *between, *matrix_of(f"{prefix}.{down}", hidden, width, gemms[1], cut=1)]


def _between_matrices(spec: ModelSpec, prefix: str, width: int) -> Parameters:
    """Between the matrices: the two learned slopes of xIELU, and a norm."""
    slopes = [Parameter(f"{prefix}.act_fn.alpha_{sign}", (1,)) for sign in "pn"] * (spec.hidden_act == "xielu")
    return slopes + norm_of(f"{prefix}.ffn_sub_norm", (width,), cut=0) * spec.sub_norms


def moe_parameters(spec: ModelSpec, moe: Moe) -> Parameters:
    """Router, routed experts, shared experts, and norms that dense layers lack."""
    norms = [parameter for name in moe.norms for parameter in norm(spec, name)]
    return _router(spec, moe) + _latents(spec, moe) + _experts(spec, moe) + _shared(spec, moe) + norms


def _latents(spec: ModelSpec, moe: Moe) -> Parameters:
    """Projections of a token to what experts read, and back; every rank has them (Megatron-LM, moe_layer.py)."""
    if not moe.latent_size:
        return []
    latent, hidden, name, bias = moe.latent_size, spec.hidden_size, spec.moe_name, spec.mlp_bias
    down = linear(f"{name}.fc1_latent_proj", latent, hidden, "latent_down", bias=bias)
    return down + linear(f"{name}.fc2_latent_proj", hidden, latent, "latent_up", bias=bias)


def _router(spec: ModelSpec, moe: Moe) -> Parameters:
    name = f"{spec.moe_name}.{'router' if moe.router_bias else 'gate'}"
    experts = moe.n_routed_experts + moe.idle_experts
    correction = Parameter(f"{name}.e_score_correction_bias", (experts,), dtype="float32", learned=False)
    return [
        *_router_network(spec, name, moe.router_width),
        Parameter(f"{name}.weight", (experts, moe.router_width or spec.hidden_size), gemm="router"),
        *[Parameter(f"{name}.bias", (experts,))] * moe.router_bias,
        *[correction] * moe.correction_bias,
    ]


def _router_network(spec: ModelSpec, name: str, width: int) -> Parameters:
    """What comes before the scores, if the router is a network: three GEMMs, and a norm after the first (Zaya)."""
    if not width:
        return []
    return [
        *linear(f"{name}.down_proj", width, spec.hidden_size, "router_down", bias=True),
        *norm_of(f"{name}.router_mlp.norm", (width,)),
        *linear(f"{name}.router_mlp.fc1", width, width, "router_within", bias=True),
        *linear(f"{name}.router_mlp.fc2", width, width, "router_within", bias=True),
    ]


def _experts(spec: ModelSpec, moe: Moe) -> Parameters:
    place = f"{spec.moe_name}.experts" + ("" if moe.stacked_experts else ".{}")
    return parameters(spec, place, moe.moe_intermediate_size, moe.n_routed_experts, moe.stacked_experts)


def _shared(spec: ModelSpec, moe: Moe) -> Parameters:
    name, width = "mlp.shared_expert" if moe.shared_gate else "mlp.shared_experts", moe.shared_intermediate_size
    gate = Parameter("mlp.shared_expert_gate.weight", (1, spec.hidden_size), gemm="shared_gate")
    return (parameters(spec, name, width) if width else []) + [gate] * moe.shared_gate


def kernels(spec: ModelSpec, shard: Shard, table: Parameters, part: str) -> Kernels:
    """A network on the tokens of a tensor-parallel group; no kernels if the table has no network."""
    _, inter = matrix(table, "down", shard.tp)
    if not inter:
        return ()
    kind, tokens = "swiglu" if spec.gated_ffn else "gelu", shard.tokens
    activated = tokens * inter
    kept, gate = activated * shard.narrow, activated * shard.wide * (shard.eager and spec.gated_ffn)
    stored = shard.stored_bytes("mlp_act" if part == "mlp" else "moe_act", shard.wide)
    moved = 2 + spec.gated_ffn * (3 if shard.eager else 1)  # PyTorch's own ops also write and read act(gate)
    sub_norm = (memory_bound("rms_norm", "ffn_sub_norm", "activation", inter, activated, 2, shard, kept),)
    return (
        *gemm(shard, table, "up", part, tokens, "up", keeps=stored),
        memory_bound(kind, "activation", "activation", inter, activated, moved, shard, kept, gate),
        *(sub_norm if spec.sub_norms else ()),
        *gemm(shard, table, "down", part, tokens, "down"),
    )


def routing(spec: ModelSpec, moe: Moe, shard: Shard, table: Parameters) -> Kernels:
    """The router on a rank's own tokens, and their permutation by expert."""
    tokens, experts, chosen = shard.own_tokens, moe.n_routed_experts, moe.num_experts_per_tok
    hidden = spec.expert_hidden
    plain, moved = shard.plain, tokens * (1 + chosen) * hidden
    return (
        *gemm(shard, table, "shared_gate", "shared_experts", tokens, keeps=shard.wide, dtype=plain),
        *gemm(shard, table, "router_down", "router", tokens, keeps=shard.wide, dtype=plain),
        *gemm(shard, table, "router_within", "router", tokens, keeps=shard.wide, dtype=plain),
        *gemm(shard, table, "router", "router", tokens, keeps=4, dtype=plain),
        memory_bound("route", "topk", "router", experts, tokens * experts, 4, shard, tokens * chosen * 12),
        *gemm(shard, table, "latent_down", "moe", tokens),
        memory_bound("permute", "permute", "moe", hidden, moved, 1, shard),
    )


def _rows(moe: Moe, shard: Shard) -> int:
    """Rows that the experts of one rank compute, those of its expert-tensor-parallel group included."""
    return round(split(shard.tokens, shard.tp) * moe.num_experts_per_tok * shard.etp * shard.load)


def experts(spec: ModelSpec, moe: Moe, shard: Shard, table: Parameters) -> Kernels:
    """All GEMMs of the experts of one rank, with the activation between them."""
    rows, hidden, inter, count = _rows(moe, shard), spec.expert_hidden, moe.moe_intermediate_size, moe.n_routed_experts
    matrices = n_elements(each for each in table if each.gemm == "experts") // (count * hidden * inter)
    shape = (rows, hidden, inter, moe.num_experts_per_tok, count, shard.etp, shard.ep, matrices)
    made = rows * inter / shard.etp
    stored, activated = shard.stored_bytes("expert_fc1", shard.narrow), shard.stored_bytes("moe_act", shard.wide)
    sorts = count > shard.ep  # rows of one expert are in order
    trained = shard.trains  # else the backward reads what the activation needs, and no input of a GEMM
    keeps = (
        Kept("moe", round(trained * rows * hidden * stored + (matrices - 1) * made * activated)),
        *(Kept("activation", round(made * shard.narrow)),) * trained,
    )
    return (
        *(memory_bound("permute", "sort", "moe", hidden, rows * hidden, 2, shard),) * sorts,
        Kernel("experts", "experts", "moe", shape, shard.base or shard.linear, keeps=keeps, trained=trained),
        *(memory_bound("permute", "unsort", "moe", hidden, rows * hidden, 2, shard),) * sorts,
    )


def combine(spec: ModelSpec, moe: Moe, shard: Shard, table: Parameters) -> Kernels:
    """The sum of each token's experts, shared ones included.

    As in Megatron-Core the router's weights are applied before the experts' last GEMM, so the backward keeps nothing.
    """
    hidden, own, latent = spec.hidden_size, shard.own_tokens * spec.hidden_size, spec.expert_hidden
    moved = shard.own_tokens * latent * (1 + moe.num_experts_per_tok)
    summed = shard.own_tokens * latent * shard.narrow  # the last projection reads it
    gate = (memory_bound("gate", "shared_gate", "shared_experts", hidden, own, 2, shard, own * shard.wide),)
    both = (memory_bound("residual_add", "add_shared", "moe", hidden, own, 3, shard),)
    norm = memory_bound("rms_norm", "expert_norm", "moe", hidden, own, 2, shard, own * shard.wide)
    return (
        memory_bound("combine", "unpermute", "moe", latent, moved, 1, shard, summed if moe.latent_size else 0),
        *gemm(shard, table, "latent_up", "moe", shard.own_tokens),
        *(gate if moe.shared_gate else ()),
        *(both if moe.shared_intermediate_size else ()),
        *(norm,) * len(moe.norms),
    )
