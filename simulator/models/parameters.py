"""The table of parameters: one record per parameter, from which everything else follows.

Each part lists its parameters beside its kernels (`attention`, `mla`, `linear_attention`, `mlp`), and `blocks` puts a
layer together. Published counts and the checkpoint (`tensors`), what a rank holds and which gradients it reduces
(`states`), and the shapes of GEMMs (`gemm` in `shard`) follow from the table.
"""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from .model import ModelSpec


class Parameter(NamedTuple):
    """One parameter of a layer, or of embedding, head or MTP.

    `name` is that in the Hugging Face checkpoint, without the layer's prefix; `{}` is an expert's number. Parameters of
    one name (q, k, v, or gate and up) are stored as one tensor, joined along dimension 0. `shape` is (out, in) of the
    whole matrix, or of one expert's if there are `experts`. `cut` is the dimension that tensor parallelism splits, in
    `units` that stay whole (heads; 0: elements); None: every rank has a copy. Experts' parameters are cut over etp and
    spread over ep, all others cut over tp. `gemm` is the name of the GEMM that reads it. `quantized`: stored in FP8 by
    FP8 checkpoints. `dtype` overrides the model's. `learned`: has a gradient. A `copy` is stored in addition to the
    parameter itself, which belongs to another part.
    """

    name: str
    shape: tuple[int, ...]
    cut: int | None = None
    units: int = 0
    gemm: str = ""
    quantized: bool = False
    experts: int = 0
    dtype: str | None = None
    learned: bool = True
    copy: bool = False

    @property
    def module(self) -> str:
        """The last part of the name of the module that has it: q_proj of self_attn.q_proj.weight."""
        return self.name.removesuffix(".weight").rpartition(".")[2]

    @property
    def size(self) -> int:
        """Elements in a layer, over all experts."""
        return prod(self.shape) * (self.experts or 1)

    def rank_shape(self, ranks: int) -> tuple[int, ...]:
        """Shape on one of `ranks` ranks of tp (one expert: of etp); with fewer units than ranks, ranks share a unit."""
        if self.cut is None:
            return self.shape
        whole = self.shape[self.cut]
        unit = whole // self.units if self.units else 1
        return (*self.shape[: self.cut], split(whole // unit, ranks) * unit, *self.shape[self.cut + 1 :])

    def is_replicated(self, ranks: int) -> bool:
        """Whether ranks of tp (etp) hold copies, which see different tokens under sequence parallelism."""
        return self.cut is None or 0 < self.units < ranks


Parameters = list[Parameter]


def linear(
    name: str,
    out: int,
    into: int,
    gemm: str = "",
    *,
    cut: int | None = None,
    units: int = 0,
    bias: bool = False,
    experts: int = 0,
    suffixes: tuple[str, str] = (".weight", ".bias"),
) -> Parameters:
    """A matrix that FP8 checkpoints quantize, and its bias, which is cut like the output."""
    weight = Parameter(name + suffixes[0], (out, into), cut, units, gemm, quantized=True, experts=experts)
    beside = Parameter(name + suffixes[1], (out,), cut if cut == 0 else None, units if cut == 0 else 0, experts=experts)
    return [weight] + [beside] * bias


def norm(spec: ModelSpec, name: str) -> Parameters:
    """A norm over the hidden dimension: a weight per channel, and a bias, if the model's norms have them."""
    return norm_of(name, (spec.hidden_size,), weights=spec.norm_weights, bias=spec.norm_bias)


def norm_of(
    name: str, shape: tuple[int, ...], *, weights: bool = True, bias: bool = False, cut: int | None = None
) -> Parameters:
    """A norm with weights and biases of this shape."""
    parts = ["weight"] * weights + ["bias"] * bias
    return [Parameter(f"{name}.{part}", shape, cut) for part in parts]


def n_elements(table: Iterable[Parameter]) -> int:
    """Elements of all parameters of a table, without copies."""
    return sum(each.size for each in table if not each.copy)


def matrix(table: Iterable[Parameter], gemm: str, ranks: int) -> tuple[int, int]:
    """(n, k) of a GEMM on one of `ranks` ranks, over all parameters that it reads; (0, 0) if there are none."""
    shapes = [each.rank_shape(ranks) for each in table if each.gemm == gemm]
    return sum(shape[0] for shape in shapes), shapes[0][1] if shapes else 0


def split(elements: int, ranks: int) -> int:
    """Elements of the rank that has most of them."""
    return -(-elements // ranks)
