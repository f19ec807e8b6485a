"""Awkward shapes: sizes of a model on one rank that no kernel is made for, and what to pad them to.

Rows of matrices should start at multiples of 32 bytes, and fused attention needs a kernel for the head size
(`costs/kernels` prices what happens otherwise). Widths are padded to multiples of 64 elements, 128 bytes in 16 bits, as
NVIDIA's guide "Matrix Multiplication Background" advises for A100, and arXiv 2401.14489.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .kernels import ALIGNED_BYTES, aligned_bytes
from .model import ModelSpec
from .shard import Shard, rank_view

PADDED, _PADDED_HEAD = 64, 32
"""Widths, and heads without fused attention, are padded to multiples of these."""


@dataclass(frozen=True)
class Awkward:
    """A size on one rank and the next larger one that kernels are made for.

    `key` is the Hugging Face key of the whole model's size (empty: of a tower's), and `value` its padded value.
    """

    of: str
    size: int
    padded: int
    key: str
    value: int

    @property
    def text(self) -> str:
        """The advice for a shape, such as `head size 180: pad to 192`."""
        return f"{self.of} {self.size:,}: pad to {self.padded:,}"


def awkward_shapes(spec: ModelSpec, shard: Shard, head_multiple: int) -> tuple[Awkward, ...]:
    """Awkward sizes of a model on one rank; fused attention takes head sizes that are a multiple of `head_multiple`."""
    own = _of_stack(spec, shard, head_multiple)
    of_towers = [(tower.name, each) for tower in spec.towers for each in _of_stack(tower, shard, head_multiple)]
    seen = [(name, each) for name, each in of_towers if each.key != "vocab_size"]
    return *own, *(replace(each, of=f"{name}'s {each.of}", key="") for name, each in seen)


def _of_stack(spec: ModelSpec, shard: Shard, head_multiple: int) -> tuple[Awkward, ...]:
    spec, shard = rank_view(spec, shard)
    return (*_heads(spec, shard, head_multiple), *_widths(spec, shard))


def _heads(spec: ModelSpec, shard: Shard, multiple: int) -> Iterator[Awkward]:
    if not spec.has_attention:
        sizes = []
    elif spec.mla is None:
        sizes = [("head size", "head_dim", spec.head_dim, 0)]
    else:
        rotary = spec.mla.qk_rope_head_dim
        sizes = [("head size of queries and keys", "qk_nope_head_dim", spec.qk_head_dim, rotary),
                 ("head size of values", "v_head_dim", spec.v_head_dim, 0)]  # fmt: skip
    step = _PADDED_HEAD if shard.unfused else multiple
    for of, key, size, besides in sizes:
        awkward = not _aligned(size, shard.plain) if shard.unfused else size % multiple
        if awkward:
            padded = -(-size // step) * step
            yield Awkward(of, size, padded, key, padded - besides)


def _widths(spec: ModelSpec, shard: Shard) -> Iterator[Awkward]:
    dense = spec.intermediate_size if spec.has_dense_layers else 0
    expert = spec.moe.moe_intermediate_size if spec.moe else 0
    linear, plain = shard.linear, shard.plain
    sizes = (
        ("hidden size", "hidden_size", spec.hidden_size, 1, linear),
        ("feed-forward width per rank", "intermediate_size", dense, shard.tp, linear),
        ("experts' width per rank", "moe_intermediate_size", expert, shard.etp, linear),
        ("vocabulary per rank", "vocab_size", spec.vocab_size, shard.tp, plain),
    )
    for of, key, whole, parts, dtype in sizes:
        size = -(-whole // parts)
        if size and not _aligned(size, dtype):
            padded = -(-size // PADDED) * PADDED
            yield Awkward(of, size, padded, key, padded * parts)


def _aligned(width: int, dtype: str) -> bool:
    return aligned_bytes(width, dtype) >= ALIGNED_BYTES
