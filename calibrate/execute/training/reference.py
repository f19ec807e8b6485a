"""The same step in one process: the model in plain torch, its loss over the whole batch, gradients by autograd."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.nn import functional

from ....simulator.models import ModelSpec
from ....simulator.models.parameters import Parameter
from ....simulator.systems.train_step.lower import TrainPlan
from .kernels import Heads, attention, choose, head_norms, rms_norm, rope, swiglu
from .weights import of_embedding, of_head, of_layer, owner, whole

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
        loss(plan.spec, weights, sequence).div(len(tokens)).backward()
    return {key: torch.zeros_like(value) if value.grad is None else value.grad for key, value in weights.items()}


class Adam(NamedTuple):
    """A step of Adam in the middle of a run: how large it is, and the squares of gradients before it, on average.

    The first step of a run would be as large for any gradient.
    """

    rate: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    variance: float = 1e-4


ADAM = Adam()


def updated(weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The weights after Adam (Kingma and Ba 2015, algorithm 1) in double precision, far from a run's first steps."""
    (beta_1, beta_2), g = ADAM.betas, gradient.double()
    m, v = (1 - beta_1) * g, beta_2 * ADAM.variance + (1 - beta_2) * g**2
    return weights.double() - ADAM.rate * m / (v.sqrt() + ADAM.eps)


def loss(spec: ModelSpec, weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """The mean loss of one sequence."""
    heads = Heads(spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim, THETA)
    x = weights[-1, "model.embed_tokens.weight"][tokens[:-1]]
    for number in range(spec.n_layers):
        x = _layer(spec, {name: each for (of, name), each in weights.items() if of == number}, x, heads)
    x = rms_norm(x, weights[-1, "model.norm.weight"])
    output = weights.get((-1, "lm_head.weight"), weights[-1, "model.embed_tokens.weight"])
    return functional.cross_entropy(x @ output.T, tokens[1:])


THETA = 10_000.0
"""The base of rotary positions: any will do, as gradients are compared and not losses."""


def _layer(spec: ModelSpec, w: Mapping[str, torch.Tensor], x: torch.Tensor, heads: Heads) -> torch.Tensor:
    h = rms_norm(x, w["input_layernorm.weight"])
    qkv = h @ torch.cat([w[f"self_attn.{each}_proj.weight"] for each in "qkv"]).T
    if spec.qk_norm:
        qkv = head_norms(qkv, w["self_attn.q_norm.weight"], w["self_attn.k_norm.weight"], heads)
    qkv = rope(qkv, torch.arange(len(x)), heads)
    x = x + attention(qkv, 1, heads) @ w["self_attn.o_proj.weight"].T
    h = rms_norm(x, w["post_attention_layernorm.weight"])
    if spec.moe is None:
        up = torch.cat([w["mlp.gate_proj.weight"], w["mlp.up_proj.weight"]])
        return x + swiglu(h @ up.T) @ w["mlp.down_proj.weight"].T
    return x + _experts(spec, w, h)


def _experts(spec: ModelSpec, w: Mapping[str, torch.Tensor], h: torch.Tensor) -> torch.Tensor:
    """Every expert on the tokens that chose it."""
    assert spec.moe is not None
    weights, chosen = choose(h @ w["mlp.gate.weight"].T, spec.moe.num_experts_per_tok)
    out = torch.zeros_like(h)
    for expert in range(spec.moe.n_routed_experts):
        token, place = (chosen == expert).nonzero(as_tuple=True)
        rows, (gate, up, down) = (
            h[token],
            (w[f"mlp.experts.{{}}.{each}_proj.weight"][expert] for each in ("gate", "up", "down")),
        )
        made = (functional.silu(rows @ gate.T) * (rows @ up.T)) @ down.T
        out = out.index_add(0, token, made * weights[token, place, None])
    return out
