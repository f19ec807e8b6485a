"""Whole models: parameter counts as they are published, and every tensor of a checkpoint as columns.

The parameters of `blocks` are joined as checkpoints store them, quantized, and repeated for every layer; 140,000
tensors take some tens of milliseconds.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UserError, fault
from .blocks import embedding_parameters, head_parameters, layer_parameters, mtp_parameters
from .model import ModelSpec
from .modulation import ADDED
from .parameters import Parameter, n_elements
from .parts import Fp8, LayerKind

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "uint8": 1}
_MAX_TENSORS = 2_000_000


def total_params(spec: ModelSpec, mtp: bool = False) -> int:
    """All parameters as published totals count them: a tied matrix once, no MTP layers unless `mtp`."""
    return _params(spec, mtp, active=False)


def active_params(spec: ModelSpec, mtp: bool = False) -> int:
    """Parameters that one token passes through: its experts only, embedding and head whole.

    Published figures differ in whether they count the embedding; `vocab_size * hidden_size` is its size.
    """
    return _params(spec, mtp, active=True)


def trained_params(spec: ModelSpec, mtp: bool = False) -> int:
    """The parameters that have gradients, of a model of which a part may be frozen; no MTP layers unless `mtp`."""
    kinds = Counter(spec.kind(number) for number in range(spec.n_layers + spec.num_nextn_predict_layers * mtp))
    layers = sum(count * n_elements(each for each in layer_parameters(spec, kind) if each.learned)
                 for kind, count in kinds.items())  # fmt: skip
    embedding = n_elements(embedding_parameters(spec)) * (not spec.frozen.embedding)
    head = n_elements(head_parameters(spec, spec.tie_word_embeddings)) * (not spec.frozen.head)
    return layers + embedding + head + _mtp_extra(spec, mtp)


def layer_params(spec: ModelSpec, kind: LayerKind, active: bool = False) -> int:
    """A layer of one kind; with `active`, only what one token passes through."""
    table = layer_parameters(spec, kind)
    if active:
        table = [each for each in table if not each.name.startswith(ADDED)]
    if not active or spec.moe is None:
        return n_elements(table)
    chosen = spec.moe.num_experts_per_tok
    return sum(prod(each.shape) * (chosen if each.experts else 1) for each in table)


def _params(spec: ModelSpec, mtp: bool, active: bool) -> int:
    extra = spec.num_nextn_predict_layers * mtp
    kinds = Counter(spec.kind(number) for number in range(spec.n_layers + extra))
    layers = sum(count * layer_params(spec, kind, active) for kind, count in kinds.items())
    ends = n_elements(embedding_parameters(spec)) + n_elements(head_parameters(spec, spec.tie_word_embeddings))
    return layers + ends + _mtp_extra(spec, mtp)


def _mtp_extra(spec: ModelSpec, mtp: bool) -> int:
    """What MTP layers have beside a layer of the stack, which is always trained."""
    extra = spec.num_nextn_predict_layers * mtp
    return (min(extra, 1) if spec.mtp_apart else extra) * n_elements(mtp_parameters(spec))


@dataclass(frozen=True, eq=False)
class Weights:
    """A checkpoint in model order, one entry per tensor in every column.

    `nbytes` [tensor] is unpadded; `expert` [tensor] marks the tensors of routed experts and their scales, not those of
    shared experts; `layer` [tensor] is -1 outside the layers; MTP layers come after those of towers and stack.
    """

    names: list[str]
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    nbytes: NDArray[np.int64]
    expert: NDArray[np.bool_]
    layer: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def total_bytes(self) -> int:
        """Sum over all tensors, without padding."""
        return int(self.nbytes.sum())

    def aligned_bytes(self, alignment: int = 256) -> NDArray[np.int64]:
        """Bytes of each tensor, rounded up to a multiple of `alignment`."""
        return -(-self.nbytes // alignment) * alignment

    @classmethod
    def from_totals(
        cls, total_bytes: int, n_tensors: int, largest_bytes: int | None = None, where: str = "model"
    ) -> "Weights":
        """A model known by bytes and tensor count alone: even sizes, the last tensor takes the remainder.

        With `largest_bytes` the first tensor has that size (the embedding usually is the largest and first) and the
        others share the rest evenly. Nothing is known of layers or experts.

        Raises:
            UserError: the sizes do not fit each other.
        """
        sizes = np.array(_sizes(total_bytes, n_tensors, largest_bytes, where), dtype=np.int64)
        return cls(
            names=[f"tensor.{i}" for i in range(n_tensors)],
            shapes=[(int(size),) for size in sizes],
            dtypes=["uint8"] * n_tensors,
            nbytes=sizes,
            expert=np.zeros(n_tensors, dtype=bool),
            layer=np.full(n_tensors, -1, dtype=np.int64),
        )


def _sizes(total: int, n_tensors: int, largest: int | None, where: str) -> list[int]:
    if not 1 <= n_tensors <= _MAX_TENSORS:
        raise UserError(fault(where, "n_tensors", n_tensors, f"from 1 to {_MAX_TENSORS}"))
    if total < n_tensors:
        raise UserError(fault(where, "total_bytes", total, f"at least 1 byte for each of {n_tensors} tensors"))
    given = [] if largest is None else [largest]
    others = n_tensors - len(given)
    even, rest = divmod(total - sum(given), max(others, 1))
    sizes = given + [even] * (others - 1) + [even + rest] * (others > 0)
    if largest is not None and (max(sizes) > largest or min(sizes) < 1 or sum(sizes) != total):
        allowed = f"at least the even share of {n_tensors} tensors of {total} bytes in all, and 1 byte for the others"
        raise UserError(fault(where, "largest_bytes", largest, allowed))
    return sizes


def weights(spec: ModelSpec, mtp: bool = True, fp8: Fp8 | bool | None = None) -> Weights:
    """All tensors of a model's checkpoint.

    Args:
        spec: the model.
        mtp: with the multi-token-prediction layers, as checkpoints are stored.
        fp8: how linear layers are stored: None as the model's own config says, True or an `Fp8` in block-quantized
            FP8, False in the model's dtype. Embeddings, head, norms, biases and routers always keep the dtype.
    """
    blocks = list(_blocks(spec, mtp, _quantization(spec, fp8)))
    layers = [np.full(len(part), number, dtype=np.int64) for number, _, part in blocks]
    parts = [part for _, _, part in blocks]
    return Weights(
        names=[prefix + name for _, prefix, part in blocks for name in part.names],
        shapes=list(chain.from_iterable(part.shapes for part in parts)),
        dtypes=list(chain.from_iterable(part.dtypes for part in parts)),
        nbytes=np.concatenate([part.nbytes for part in parts]),
        expert=np.concatenate([part.expert for part in parts]),
        layer=np.concatenate(layers),
    )


def _quantization(spec: ModelSpec, fp8: Fp8 | bool | None) -> Fp8 | None:
    if isinstance(fp8, bool):
        return (spec.quantization or Fp8()) if fp8 else None
    return fp8 or spec.quantization


def _blocks(spec: ModelSpec, mtp: bool, fp8: Fp8 | None) -> Iterator[tuple[int, str, Weights]]:
    """(layer number, prefix, tensors) in model order; equal layers share one template."""
    depth, extra = spec.n_layers, _columns(mtp_parameters(spec), spec, fp8)
    kinds = [spec.kind(number) for number in range(depth + spec.num_nextn_predict_layers)]
    templates = {kind: _columns(layer_parameters(spec, kind), spec, None if kind.tower else fp8) for kind in set(kinds)}
    yield -1, "", _columns(embedding_parameters(spec), spec, fp8)
    for number, place in enumerate(_places(spec)):
        yield number, place, templates[kinds[number]]
    yield -1, "", _columns(head_parameters(spec, spec.tie_word_embeddings), spec, fp8)
    for number in range(depth, depth + mtp * spec.num_nextn_predict_layers):
        own = number - depth + spec.num_hidden_layers
        place = f"mtp.layers.{number - depth}." if spec.mtp_apart else f"{spec.trunk}.layers.{own}."
        if number == depth or not spec.mtp_apart:
            yield number, "mtp." if spec.mtp_apart else place, extra
        yield number, place, templates[kinds[number]]


def _places(spec: ModelSpec) -> list[str]:
    """The prefix of each layer's names: those of towers, then those of the model's own stack."""
    stacks = [*((tower.name, tower) for tower in spec.towers), (spec.trunk, spec)]
    return [f"{name}.layers.{number}." for name, stack in stacks for number in range(stack.num_hidden_layers)]


def _columns(table: Sequence[Parameter], spec: ModelSpec, fp8: Fp8 | None) -> Weights:
    """A template of a layer: names without its prefix, `layer` -1."""
    stored = [piece for tensor in _tensors(table) for piece in _stored(tensor, fp8)]
    dtypes = [piece.dtype or spec.dtype for piece in stored]
    return Weights(
        names=[piece.name for piece in stored],
        shapes=[piece.shape for piece in stored],
        dtypes=dtypes,
        nbytes=np.array([prod(piece.shape) for piece in stored]) * np.array([ITEMSIZE[dtype] for dtype in dtypes]),
        expert=np.array([piece.experts > 0 for piece in stored], dtype=bool),
        layer=np.full(len(stored), -1, dtype=np.int64),
    )


def _tensors(table: Sequence[Parameter]) -> Iterator[Parameter]:
    """Tensors as they are named: parameters of one name joined, and those of experts one by one or stacked.

    Names without a place for an expert's number are of stacked tensors: (experts, in, out).
    """
    joined: dict[str, Parameter] = {}
    for each in table:
        first = joined.get(each.name)
        rows = each.shape[0] + (first.shape[0] if first else 0)
        joined[each.name] = each._replace(shape=(rows, *each.shape[1:]))
    for (experts, numbered), group in groupby(joined.values(), key=lambda each: (each.experts, "{}" in each.name)):
        alike = list(group)
        if numbered:
            yield from (each._replace(name=each.name.format(i)) for i in range(experts) for each in alike)
        elif experts:
            yield from (each._replace(shape=(experts, *reversed(each.shape))) for each in alike)
        else:
            yield from alike


def _stored(tensor: Parameter, fp8: Fp8 | None) -> list[Parameter]:
    """A tensor as it is stored: a quantized matrix has a tensor of scales."""
    if fp8 is None or not tensor.quantized:
        return [tensor]
    (rows, columns), (block_rows, block_columns) = tensor.shape[-2:], fp8.weight_block_size
    blocks = (*tensor.shape[:-2], -(-rows // block_rows), -(-columns // block_columns))
    scale = tensor._replace(name=f"{tensor.name}_scale_inv", shape=blocks, dtype=fp8.scale_dtype)
    return [tensor._replace(dtype="float8_e4m3fn"), scale]
