"""The same step in one process: the model in plain torch, its loss over the whole batch, gradients by autograd."""

from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional

from ....simulator.models import ModelSpec
from ....simulator.models.parameters import Parameter
from ....simulator.systems.train_step.lower import TrainPlan
from .kernels import ACTIVATIONS, ADAM, NORM_KINDS, Heads, attention, choose, gated, head_norms, rope
from .weights import EMBEDDING, POSITIONS, of_embedding, of_head, of_layer, owner, whole

Weights = Mapping[tuple[int, str], torch.Tensor]


def parameters(plan: TrainPlan) -> dict[tuple[int, str], Parameter]:
    """All parameters of the model, by (layer or -1, name)."""
    tables = [(-1, of_embedding(plan)), (-1, of_head(plan, plan.spec.tie_word_embeddings))]
    tables += [(number, of_layer(plan, number)) for number in range(plan.spec.n_layers)]
    return {(owner(each, number), each.name): each for number, table in tables for each in table}


def make_weights(plan: TrainPlan, seed: int) -> dict[tuple[int, str], torch.Tensor]:
    """The values of all parameters before the step, whole, by (layer or -1, name)."""
    return {(number, name): whole(each, number, seed) for (number, name), each in parameters(plan).items()}


def gradients(plan: TrainPlan, seed: int, tokens: torch.Tensor) -> dict[tuple[int, str], torch.Tensor]:
    """Gradients of the mean loss over all tokens; `tokens` has shape [sequences, tokens + 1]."""
    weights = {key: value.requires_grad_() for key, value in make_weights(plan, seed).items()}
    for sequence in tokens:
        loss(plan, weights, sequence).div(len(tokens)).backward()
    return {key: torch.zeros_like(value) if value.grad is None else value.grad for key, value in weights.items()}


def updated(weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The weights after Adam (Kingma and Ba 2015, algorithm 1) in double precision, far from a run's first steps."""
    (beta_1, beta_2), g = ADAM.betas, gradient.double()
    m, v = (1 - beta_1) * g, beta_2 * ADAM.variance + (1 - beta_2) * g**2
    return weights.double() - ADAM.rate * m / (v.sqrt() + ADAM.eps)


def loss(plan: TrainPlan, weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """The mean loss of one sequence."""
    spec = plan.spec
    x = weights[-1, EMBEDDING][tokens[:-1]]
    if (-1, POSITIONS) in weights:
        x = x + weights[-1, POSITIONS][: len(x)]
    for number in range(spec.n_layers):
        x = _layer(spec, number, _by_role(of_layer(plan, number), number, weights), x)
    ends = {name: weights[-1, name] for number, name in weights if number == -1}
    x = _norm(spec, ends, "model.norm", x)
    return functional.cross_entropy(x @ ends.get("lm_head.weight", ends[EMBEDDING]).T, tokens[1:])


THETA = 10_000.0
"""The base of rotary positions: any will do, as gradients are compared and not losses."""

Roles = Mapping[str, torch.Tensor]


def _by_role(table: Sequence[Parameter], number: int, weights: Weights) -> Roles:
    """The parameters of a layer by name; those of one GEMM, but experts', joined under its name."""
    found: dict[str, torch.Tensor] = {}
    for each in table:
        role, value = each.gemm if each.gemm not in ("", "experts") else each.name, weights[number, each.name]
        found[role] = torch.cat([found[role], value]) if role in found else value
    return found


def _norm(spec: ModelSpec, w: Roles, name: str, x: torch.Tensor) -> torch.Tensor:
    own = [w[f"{name}.{each}"] for each in ("weight", "bias") if f"{name}.{each}" in w]
    return NORM_KINDS[spec.norm](x, *own)


def _linear(w: Roles, gemm: str, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w[gemm], w.get(f"{gemm} bias"))


def _layer(spec: ModelSpec, number: int, w: Roles, x: torch.Tensor) -> torch.Tensor:
    heads = Heads(spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim, THETA)
    qkv = _linear(w, "qkv", _norm(spec, w, "input_layernorm", x))
    if spec.qk_norm:
        qkv = head_norms(qkv, w["self_attn.q_norm.weight"], w["self_attn.k_norm.weight"], heads)
    if spec.positions == "rotary":
        qkv = rope(qkv, torch.arange(len(x)), heads)
    x = x + _linear(w, "proj", attention(qkv, 1, heads, spec.window(number)))
    h = _norm(spec, w, "post_attention_layernorm", x)
    if "router" in w:
        x = x + _experts(spec, w, h)
    return x + _network(spec, w, h) if "up" in w else x


def _network(spec: ModelSpec, w: Roles, h: torch.Tensor) -> torch.Tensor:
    """A dense network, or that of shared experts."""
    activation, up = ACTIVATIONS[spec.hidden_act], _linear(w, "up", h)
    return _linear(w, "down", gated(up, activation) if spec.gated_ffn else activation(up))


def _experts(spec: ModelSpec, w: Roles, h: torch.Tensor) -> torch.Tensor:
    """Every expert on the tokens that chose it."""
    assert spec.moe is not None
    activation, names = (
        ACTIVATIONS[spec.hidden_act],
        [f"{spec.moe_name}.experts.{{}}.{each}" for each in spec.matrix_names],
    )
    weights, chosen = choose(_linear(w, "router", h), spec.moe.num_experts_per_tok)
    out = torch.zeros_like(h)
    for expert in range(spec.moe.n_routed_experts):
        token, place = (chosen == expert).nonzero(as_tuple=True)
        rows, (gate, up, down) = h[token], (w[f"{name}.weight"][expert] for name in names)
        made = (activation(rows @ gate.T) * (rows @ up.T)) @ down.T
        out = out.index_add(0, token, made * weights[token, place, None])
    return out
