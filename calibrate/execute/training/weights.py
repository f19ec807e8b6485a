"""The parameters of a rank: drawn from a seed, cut for tensor and expert parallelism, and laid out as flat vectors.

What is reduced and gathered together is a *unit*, as in the Program (`Holdings.units`): a layer, with the embedding or
the head beside it. A unit has one flat vector of dense parameters and one of experts'.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from ....simulator.models.blocks import embedding_parameters, head_parameters, layer_parameters
from ....simulator.models.parameters import Parameter
from ....simulator.systems.train_step.lower import Stage, TrainPlan

DENSE, EXPERT = "dense", "expert"
_SCALE = (
    0.3  # of weights, times the inverse root of their inputs: small enough for logits whose exponentials are finite
)

Tensors = Mapping[str, torch.Tensor]

EMBEDDING, OUTPUT = "model.embed_tokens.weight", "logits"
NORMS = {
    "input_norm": ("input_layernorm.weight",), "mlp_norm": ("post_attention_layernorm.weight",),
    "final_norm": ("model.norm.weight",), "qk_norm": ("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
}  # fmt: skip
POSITIONS = "model.embed_positions.weight"


class Place(NamedTuple):
    """The position of a rank among those that split parameters: tensor-parallel, and of experts."""

    tp: int
    tps: int
    ep: int
    eps: int
    etp: int
    etps: int


def of_layer(plan: TrainPlan, number: int) -> list[Parameter]:
    """The parameters of a decoder layer."""
    return _named(layer_parameters(plan.spec, plan.spec.kind(number)))


def of_embedding(plan: TrainPlan) -> list[Parameter]:
    """The token embedding, and what else stands before the layers."""
    return _named(embedding_parameters(plan.spec))


def of_head(plan: TrainPlan, tied_here: bool) -> list[Parameter]:
    """The last norm and the output matrix; a tied one is the embedding itself where that is on the same rank."""
    return _named(head_parameters(plan.spec, tied_here and plan.spec.tie_word_embeddings))


def _named(table: Sequence[Parameter]) -> list[Parameter]:
    """Each with a name of its own: q, k and v may share one. The biases of a GEMM, such as `up`, are `up bias`.

    What no gradient changes (the correction of a router) is left out: it is zero.
    """
    table = [each for each in table if each.learned]
    gemms = {each.name.replace(".weight", ".bias"): each.gemm for each in table if each.gemm}
    counts, found = Counter[str](), []
    for each in table:
        gemm = each.gemm or (f"{gemms[each.name]} bias" if each.name in gemms else "")
        number = counts[each.name]
        counts[each.name] += 1
        found.append(each._replace(name=f"{each.name}#{number}" if number else each.name, gemm=gemm))
    return found


def tables_of(plan: TrainPlan) -> list[list[Parameter]]:
    """All parameters of the model: of the embedding, the head, and each layer."""
    ends = [of_embedding(plan), of_head(plan, tied_here=True)]
    return [*ends, *(of_layer(plan, number) for number in range(plan.spec.n_layers))]


def whole_shape(parameter: Parameter) -> tuple[int, ...]:
    """The shape of a whole parameter, all experts included."""
    return (parameter.experts, *parameter.shape) if parameter.experts else parameter.shape


def whole(parameter: Parameter, unit: int, seed: int) -> torch.Tensor:
    """The values of a whole parameter, all experts included: norms around 1, biases and matrices around 0."""
    shape = whole_shape(parameter)
    name = np.frombuffer(parameter.name.encode(), np.uint8).tolist()
    rng = np.random.default_rng((seed, unit + 1, *name))
    values = rng.standard_normal(shape, np.float32)
    if len(parameter.shape) == 1:
        return torch.from_numpy(0.1 * values + (0 if ".bias" in parameter.name else 1))
    return torch.from_numpy(values * np.float32(_SCALE / parameter.shape[-1] ** 0.5))


def cut(parameter: Parameter, values: torch.Tensor, at: Place) -> torch.Tensor:
    """A rank's part of a whole parameter, or of its gradient."""
    part, parts = (at.etp, at.etps) if parameter.experts else (at.tp, at.tps)
    if parameter.experts:
        own = parameter.experts // at.eps
        values = values[own * at.ep :][:own]
    if parameter.cut is None:
        return values
    dim = parameter.cut + bool(parameter.experts)
    return values.chunk(parts, dim)[part]


@dataclass(frozen=True)
class Layout:
    """Parameters one after another in a flat vector: those of one GEMM are neighbours, so that together they are one.

    `shapes` are those of a rank; `gemms` names the GEMM of each ("": none).
    """

    parameters: tuple[Parameter, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def build(cls, table: Sequence[Parameter], at: Place, *, experts: bool) -> "Layout":
        """The dense parameters of a table, or those of experts, as a rank has them."""
        own = [each for each in table if bool(each.experts) == experts and not each.copy]
        gemms = list(dict.fromkeys(each.gemm for each in own))
        own.sort(key=lambda each: gemms.index(each.gemm))
        shapes = []
        for each in own:
            shape = each.rank_shape(at.etps if experts else at.tps)
            shapes.append((each.experts // at.eps, *shape) if experts else shape)
        return cls(tuple(own), tuple(shapes))

    @property
    def size(self) -> int:
        """Elements in all."""
        return sum(map(prod, self.shapes))

    @cached_property
    def places(self) -> Mapping[str, slice]:
        """The place of each parameter, by name."""
        ends = np.cumsum([prod(shape) for shape in self.shapes]).tolist()
        return {
            each.name: slice(end - prod(shape), end)
            for each, shape, end in zip(self.parameters, self.shapes, ends, strict=True)
        }

    def view(self, flat: torch.Tensor, name: str) -> torch.Tensor:
        """One parameter in a flat vector, by name; or the matrix of a GEMM, by the GEMM's name."""
        found = [i for i, each in enumerate(self.parameters) if name in (each.name, each.gemm)]
        if not found:
            raise KeyError(f"no parameter or GEMM is called {name!r}")
        places = [self.places[self.parameters[i].name] for i in found]
        values = flat[places[0].start : places[-1].stop]
        first = self.shapes[found[0]]
        return values.view(first) if len(found) == 1 else values.view(-1, *first[1:])

    def has(self, name: str) -> bool:
        """Whether a parameter or a GEMM has this name."""
        return any(name in (each.name, each.gemm) for each in self.parameters)

    def flatten(self, values: Tensors, at: Place) -> torch.Tensor:
        """A rank's flat vector of whole parameters (or their gradients), by name."""
        parts = [cut(each, values[each.name], at).reshape(-1) for each in self.parameters]
        return torch.cat(parts) if parts else torch.zeros(0)

    def copies(self, names: Collection[str] | None = None) -> torch.Tensor:
        """A mask of the elements of which every tensor-parallel rank has a copy; with names, of these parameters."""
        parts = [
            torch.full((prod(shape),), each.cut is None and (names is None or each.name in names))
            for each, shape in zip(self.parameters, self.shapes, strict=True)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool)


@dataclass(frozen=True)
class Unit:
    """What is reduced and gathered together: a number (its layer's), its parameters, and their layouts on a rank."""

    number: int
    table: tuple[Parameter, ...]
    layouts: Mapping[str, Layout]

    def layout_of(self, name: str) -> str:
        """`dense` or `expert`: where a parameter or GEMM is."""
        return DENSE if self.layouts[DENSE].has(name) else EXPERT

    def whole(self, seed: int) -> Tensors:
        """All its parameters, whole, by name."""
        return {each.name: whole(each, owner(each, self.number), seed) for each in self.table}


def owner(parameter: Parameter, unit: int) -> int:
    """The number of a parameter: its layer's, or -1 of embedding and head, wherever they are."""
    return -1 if parameter.name.startswith(("model.", "lm_head.")) else unit


def units_of(plan: TrainPlan, stage: Stage, at: Place, tied_here: bool) -> list[Unit]:
    """The units of a stage, in model order."""
    numbers = list(stage.layers) or [-1]
    tables = [of_layer(plan, number) if number >= 0 else [] for number in numbers]
    if stage.embedding:
        tables[0] = [*of_embedding(plan), *tables[0]]
    if stage.head:
        tables[-1] = [*tables[-1], *of_head(plan, tied_here)]
    return [
        Unit(number, tuple(table), {DENSE: Layout.build(table, at, experts=False),
                                    EXPERT: Layout.build(table, at, experts=True)})
        for number, table in zip(numbers, tables, strict=True)
    ]  # fmt: skip
