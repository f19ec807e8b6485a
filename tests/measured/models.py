"""Dense decoders as Llama's, in plain PyTorch: what `steps` times."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    ffn_hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool


def rope(seq: int, head_dim: int, device: str) -> tuple[Tensor, Tensor]:
    """Cosines and sines [seq, head_dim] of rotary embeddings."""
    frequencies = 5e5 ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angles = torch.outer(torch.arange(seq, device=device).float(), frequencies).repeat(1, 2)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)  # noqa: E731
        wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.head_dim, self.shared = shape.head_dim, shape.heads // shape.kv_heads
        self.norm1, self.norm2 = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
        self.q, self.k, self.v = (linear(shape.hidden, size) for size in (wide, narrow, narrow))
        self.o = linear(wide, shape.hidden)
        self.gate, self.up = linear(shape.hidden, shape.ffn_hidden), linear(shape.hidden, shape.ffn_hidden)
        self.down = linear(shape.ffn_hidden, shape.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.o(self.attend(self.norm1(x), cos, sin))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def attend(self, y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, seq, _ = y.shape
        q, k, v = (w(y).view(batch, seq, -1, self.head_dim).transpose(1, 2) for w in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (one.repeat_interleave(self.shared, 1) for one in (k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return attended.transpose(1, 2).reshape(batch, seq, -1)


class Model(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.embed, self.head = (
            nn.Embedding(shape.vocab, shape.hidden),
            nn.Linear(shape.hidden, shape.vocab, bias=False),
        )
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        if shape.tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, targets: Tensor, rotary: tuple[Tensor, Tensor], recompute: bool) -> Tensor:
        """The loss, in fp32; with `recompute` each layer keeps its input alone."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, *rotary, use_reentrant=False) if recompute else layer(x, *rotary)
        return functional.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())
