"""What kernels compute: functions of tensors, and their gradients by autograd of that kernel alone.

Tokens are rows. Rows of q, k and v are those of one product: all heads of q, then of k, then of v.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]


class Heads(NamedTuple):
    """The attention of a rank: heads of q and of k, v, the size of one, and the base of rotary positions."""

    q: int
    kv: int
    size: int
    theta: float


@dataclass(frozen=True)
class Graph:
    """A kernel that has run, ready for its gradients: autograd's record between what it read and what it gave.

    `kept` are the tensors that the record keeps, or stand for them while they are elsewhere. `leaves` are what the
    kernel read.
    """

    inputs: tuple[GradientEdge, ...]
    outputs: tuple[GradientEdge, ...]
    leaves: tuple[Tensor, ...]
    kept: list[Any]

    def gradients(self, *of_outputs: Tensor, of: range | None = None) -> tuple[Tensor, ...]:
        """Gradients of the inputs (or of some), for those of the outputs. May be asked again, for other inputs."""
        inputs = self.inputs if of is None else tuple(self.inputs[i] for i in of)
        return torch.autograd.grad(self.outputs, inputs, of_outputs, retain_graph=True)

    def with_kept(self, kept: Sequence[Any]) -> "Graph":
        """This record, once what it keeps is elsewhere: it lets go of what it kept."""
        for leaf in self.leaves:
            leaf.data = leaf.data.new_empty(0)
        self.kept[:] = kept
        return self


def run(kernel: Callable[..., Any], *inputs: Any) -> tuple[Graph, tuple[Any, ...]]:
    """Run a kernel with a record for its backward. Returns the record, which knows floating-point tensors alone, and
    the outputs.
    """
    own = tuple(each.detach().requires_grad_() if _learns(each) else each for each in inputs)
    kept: list[Any] = []

    def keep(tensor: Tensor) -> int:
        kept.append(tensor.detach())
        return len(kept) - 1

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, kept.__getitem__):
        found = kernel(*own)
    outputs = found if isinstance(found, tuple) else (found,)
    leaves = tuple(filter(_learns, own))
    graph = Graph(tuple(map(get_gradient_edge, leaves)), tuple(map(get_gradient_edge, filter(_learns, outputs))),
                  leaves, kept)  # fmt: skip
    return graph, tuple(each.detach() if _learns(each) else each for each in outputs)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in a value: itself, those that a record keeps, or those of a tuple or list."""
    parts = value.kept if isinstance(value, Graph) else value if isinstance(value, tuple | list) else ()
    if isinstance(value, Tensor):
        yield value
    for part in parts:
        yield from tensors_of(part)


def _learns(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """x over its root mean square, times a weight per channel."""
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x without its mean, over its standard deviation, times a weight per channel, and a bias."""
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)


NORM_KINDS: Mapping[str, Callable[..., Tensor]] = {"rms": rms_norm, "layer": layer_norm}
"""The norms of models, by what a model's record calls them."""


def head_norms(qkv: Tensor, of_q: Tensor, of_k: Tensor, heads: Heads) -> Tensor:
    """The heads of q and of k, each normed by itself; v as it is."""
    q, k, v = split_heads(qkv, heads)
    return join_heads(rms_norm(q, of_q), rms_norm(k, of_k), v)


def split_heads(qkv: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v with shapes [tokens, heads, size]."""
    rows = qkv.view(len(qkv), -1, heads.size)
    q, k, v = rows.split((heads.q, heads.kv, heads.kv), dim=1)
    return q, k, v


def join_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The rows that `split_heads` splits."""
    return torch.cat((q, k, v), dim=1).flatten(1)


def rope(qkv: Tensor, positions: Tensor, heads: Heads) -> Tensor:
    """Rotary positions on q and k; `positions` has one number per token."""
    q, k, v = split_heads(qkv, heads)
    half = heads.size // 2
    turns = heads.theta ** (-torch.arange(half, dtype=torch.float32, device=qkv.device) / half)
    angle = positions[:, None].float() * turns
    cos, sin = angle.cos()[:, None].to(qkv.dtype), angle.sin()[:, None].to(qkv.dtype)

    def rotate(x: Tensor) -> Tensor:
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    return join_heads(rotate(q), rotate(k), v)


def attention(qkv: Tensor, batch: int, heads: Heads, window: int | None = None) -> Tensor:
    """Causal attention of whole sequences, `batch` of them one after another; each token sees `window` tokens."""
    q, k, v = (each.view(batch, -1, *each.shape[1:]).transpose(1, 2) for each in split_heads(qkv, heads))
    seq, mask = q.shape[2], None
    if window and window < seq:
        mask = torch.ones(seq, seq, dtype=torch.bool, device=q.device).tril().triu(1 - window)
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=heads.q != heads.kv
    )
    return out.transpose(1, 2).reshape(len(qkv), -1)


_TANH = partial(functional.gelu, approximate="tanh")
ACTIVATIONS: Mapping[str, Activation] = {
    "silu": functional.silu, "swish": functional.silu, "relu": functional.relu, "gelu": functional.gelu,
    "gelu_new": _TANH, "gelu_fast": _TANH, "gelu_pytorch_tanh": _TANH,
}  # fmt: skip
"""By their names in Hugging Face's configs."""


def gated(gate_up: Tensor, activation: Activation) -> Tensor:
    """activation(gate) * up, of rows that hold both."""
    gate, up = gate_up.chunk(2, dim=-1)
    return activation(gate) * up


def choose(logits: Tensor, chosen: int) -> tuple[Tensor, Tensor]:
    """The experts of each token and their weights, which add up to 1: shapes [tokens, chosen]."""
    values, experts = logits.topk(chosen, dim=-1)
    return values.float().softmax(dim=-1).to(logits.dtype), experts


def weighted_sum(rows: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """The outputs of each token's experts, added up; `order` says of which (token, choice) a row is."""
    tokens, chosen = weights.shape
    placed = torch.zeros_like(rows).index_copy(0, order, rows)
    return (placed.view(tokens, chosen, -1) * weights[..., None]).sum(dim=1)


def experts(rows: Tensor, gate: Tensor, up: Tensor, down: Tensor, counts: list[int], activation: Activation) -> Tensor:
    """The networks of experts, each on its rows; `counts` are the rows of each."""
    parts = zip(rows.split(counts), gate, up, down, strict=True)
    return torch.cat([(activation(x @ g.T) * (x @ u.T)) @ d.T for x, g, u, d in parts])


def loss_parts(logits: Tensor, targets: Tensor, first: int) -> Tensor:
    """By token, over a rank's words from `first` on: [sum of exponentials, the target's logit, 0].

    Added up over ranks these give the loss. Exponentials are of logits as they are: a model at its start has small
    ones.
    """
    logits = logits.float()
    at = targets - first
    mine = (at >= 0) & (at < logits.shape[1])
    own = logits.gather(1, at.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
    return torch.stack((logits.exp().sum(dim=1), own * mine, torch.zeros_like(own)))


def loss_gradient(logits: Tensor, targets: Tensor, first: int, total: Tensor, tokens: int) -> Tensor:
    """The gradient of the mean loss over `tokens` tokens; `total` are sums of exponentials over the vocabulary."""
    found = logits.float().exp() / total[:, None]
    at = targets - first
    mine = ((at >= 0) & (at < logits.shape[1])).nonzero()[:, 0]
    found[mine, at[mine]] -= 1
    return (found / tokens).to(logits.dtype)


class Adam(NamedTuple):
    """A step of Adam in the middle of a run: how large it is, and the squares of gradients before it, on average.

    The first step of a run would be as large for any gradient.
    """

    rate: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    variance: float = 1e-4


ADAM = Adam()


def adam(weights: Tensor, gradient: Tensor) -> Tensor:
    """The weights after a step of Adam; the first moments are zero before it."""
    first = gradient * (1 - ADAM.betas[0])
    second = ADAM.variance * ADAM.betas[1] + gradient.square() * (1 - ADAM.betas[1])
    return weights.addcdiv(first, second.sqrt().add_(ADAM.eps), value=-ADAM.rate)
