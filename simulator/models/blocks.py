"""What a layer consists of: its parameters, and its kernels on one rank in forward order; also embedding, head and MTP.

A layer is put together from `attention`, `mla` or one of `_MIXERS`, then `mlp`; in Nemotron-H it is one of these alone.
It is cut where ranks exchange data: around what tensor-parallel ranks compute together, and around the experts.
Lowering adds the exchanges, `costs` the seconds. Every kernel says what the backward keeps of its output (`keeps`). No
dropout, except of scores if asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from ..base.op_kinds import op_kind
from . import (
    altup,
    attention,
    compressed,
    convolutions,
    cross,
    kimi_delta,
    layer_embeddings,
    lightning,
    linear_attention,
    mamba,
    mamba2,
    mla,
    mlp,
    modulation,
    rwkv7,
    short_convolution,
    sparse_mla,
    streams,
    towers,
)
from .kernels import Kept, Kernel, Kernels, weight_gradient
from .mixers import KimiDelta, Lightning, LinearAttention, Mamba, Mamba2, Rwkv7, ShortConvolution
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix, norm, norm_of
from .parts import Inputs, LayerKind
from .shard import ADAPTER, Shard, gemm, memory_bound, rank_view

_MIXERS: Mapping[type, tuple[Callable[[ModelSpec, Any], Parameters], Callable[[ModelSpec, Any, Shard], Kernels]]] = {
    LinearAttention: (linear_attention.parameters, linear_attention.kernels),
    Mamba2: (mamba2.parameters, mamba2.kernels),
    Mamba: (mamba.parameters, mamba.kernels),
    KimiDelta: (kimi_delta.parameters, kimi_delta.kernels),
    Lightning: (lightning.parameters, lightning.kernels),
    Rwkv7: (rwkv7.parameters, rwkv7.kernels),
    ShortConvolution: (short_convolution.parameters, short_convolution.kernels),
}
"""The parameters and kernels of what replaces attention, by the record of its sizes."""

_READ_NORMS = ("qkv", "q_down", "kv_down", "q_up", "kv_up", "up", "router", "shared_gate")
"""GEMMs that read what a norm made."""

# Parameters


def layer_parameters(spec: ModelSpec, kind: LayerKind) -> Parameters:
    """One decoder layer of this kind."""
    spec = spec.of(kind)
    first = ["input_layernorm"] * kind.mixer
    first += ["post_attention_layernorm"] * (kind.network and not (kind.mixer and spec.shared_norm))
    names = first * spec.pre_norms + list(spec.second_norms[: kind.mixer + kind.network]) * spec.sandwich_norms
    norms = [parameter for name in names for parameter in norm(spec, name)]
    norms += [parameter for name in first for parameter in _norm_gate_parameters(spec, name)]
    networks = _mixer_parameters(spec, kind) + _mlp_parameters(spec, kind)
    beside = (streams, altup, layer_embeddings)
    own = [each for part in beside for each in part.layer_parameters(spec)]
    opening, closing = towers.opening_parameters(spec) * kind.opens, towers.closing_parameters(spec) * kind.closes
    table = opening + norms + networks + convolutions.branch_parameters(spec) + own + closing
    table = modulation.with_sets(spec, table + modulation.layer_parameters(spec))
    if not kind.learns:
        return [each._replace(learned=False) for each in table]
    if spec.inputs is None or not spec.inputs.frozen:
        return table
    return [each._replace(learned=towers.is_trained(spec.inputs, each.name)) for each in table]


def _norm_gate_parameters(spec: ModelSpec, name: str) -> Parameters:
    """A network of low rank that gates the output of a norm (A.X K2)."""
    rank, hidden = spec.norm_gate_rank, spec.hidden_size
    down, up = (f"{name}.mlp.fc1", rank, hidden, "norm_gate_down"), (f"{name}.mlp.fc2", hidden, rank, "norm_gate_up")
    return [*linear(*down), *linear(*up)] if rank else []


def _mixer_parameters(spec: ModelSpec, kind: LayerKind) -> Parameters:
    """Attention of any kind, or what replaces it."""
    if not kind.mixer:
        return []
    if kind.cross and spec.cross:
        return cross.parameters(spec, spec.cross)
    if kind.linear and (of := spec.linear_attention):
        parameters, _ = _MIXERS[type(of)]
        return (attention.parameters(spec) if of.beside_attention else []) + parameters(spec, of)
    if spec.compressed:
        return compressed.parameters(spec, spec.compressed)
    if spec.mla:
        return mla.parameters(spec, spec.mla, spec.indexer if kind.indexer else None)
    return attention.parameters(spec)


def _mlp_parameters(spec: ModelSpec, kind: LayerKind) -> Parameters:
    if not kind.network:
        return []
    if spec.moe and kind.moe:
        return mlp.moe_parameters(spec, spec.moe)
    return mlp.parameters(spec, "mlp", spec.intermediate_size)


def embedding_parameters(spec: ModelSpec) -> Parameters:
    """Before the layers: token embeddings, split over the vocabulary, and what every rank has.

    That is learned positions, types of tokens, norms, and a projection to the hidden size from another width.
    """
    hidden, trunk = spec.hidden_size, spec.trunk
    width = spec.embedding_width or hidden
    tables = {"embed_positions": spec.position_embeddings, "embed_types": spec.token_types}
    beside = [Parameter(f"{trunk}.{name}.weight", (rows, width)) for name, rows in tables.items() if rows]
    first_norm = norm_of(f"{trunk}.embed_layernorm", (width,), weights=spec.norm_weights, bias=spec.norm_bias)
    projection = linear(f"{trunk}.embed_projection", hidden, width, "embed_projection", bias=True)
    own = altup.end_parameters(spec, "altup_projections") + layer_embeddings.model_parameters(spec)
    own += modulation.model_parameters(spec)
    tokens = Parameter(f"{trunk}.embed_tokens.weight", (spec.vocab_size, width), cut=0)
    return [
        tokens,
        *beside,
        *towers.relative_bias(spec),
        *first_norm * spec.embedding_norm,
        *projection * (width != hidden),
        *own,
    ]


def head_parameters(spec: ModelSpec, tied: bool = False) -> Parameters:
    """After the layers: a norm, a matrix and its norm, and the output matrix, the embedding's if `tied`."""
    vocab, hidden, width = spec.vocab_size, spec.hidden_size, spec.head_width or spec.hidden_size
    last_norm = norm(spec, f"{spec.trunk}.norm") * spec.final_norm
    behind = norm_of("lm_head.norm", (width,), weights=spec.norm_weights, bias=spec.norm_bias)
    transform = [*linear("lm_head.dense", width, hidden, "head_transform", bias=spec.transform_bias), *behind]
    output = Parameter("lm_head.weight", (vocab, width), 0, gemm="logits")
    bias = Parameter("lm_head.bias", (vocab,), 0)
    states = altup.end_parameters(spec, "altup_unembed_projections") + streams.head_parameters(spec)
    pooler = linear("pooler.dense", hidden, hidden, bias=True) * spec.pooler
    ends = pooler + [output] * (not tied) + [bias] * spec.head_bias
    return states + last_norm + transform * spec.head_transform + ends


def mtp_parameters(spec: ModelSpec) -> Parameters:
    """MTP beyond its decoder layer: an unquantized projection, norms, and copies of embedding and head."""
    hidden, copies = spec.hidden_size, spec.mtp_copies
    names = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
    apart = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
    embedding_norm, hidden_norm, projection, head_norm = apart if spec.mtp_apart else names
    embedding_copy, head_copy = (
        Parameter(f"{name}.weight", (spec.vocab_size, hidden), cut=0, copy=True)
        for name in ("embed_tokens", "shared_head.head")
    )
    return [
        *[embedding_copy] * copies,
        *norm(spec, embedding_norm),
        *norm(spec, hidden_norm),
        Parameter(f"{projection}.weight", (hidden, 2 * hidden), gemm="eh_proj"),
        *norm(spec, head_norm),
        *[head_copy] * copies,
    ]


# Kernels

_WHOLES = {"moe", "router", "shared_experts"}  # parts that are recomputed as a whole, beside an MLP's
_WITHIN = {"router": "moe", "shared_experts": "moe"}  # parts of a layer that another part holds


@dataclass(frozen=True)
class Layer:
    """The kernels of one layer, cut where ranks exchange something.

    `before`, `mlp_in` and `after` work on a rank's own tokens, `attention` and `mlp` (in MoE layers: the shared
    experts) on those of its tensor-parallel group, `experts` on the tokens that were dispatched to this rank.
    """

    before: Kernels
    attention: Kernels
    mlp_in: Kernels
    mlp: Kernels
    experts: Kernels
    after: Kernels

    @property
    def all(self) -> Kernels:
        """Every kernel, in forward order."""
        return (*self.before, *self.attention, *self.mlp_in, *self.mlp, *self.experts, *self.after)

    @cached_property
    def placed(self) -> tuple[tuple[Kernel, frozenset[str]], ...]:
        """Every kernel with the parts whose recomputation includes it."""
        network = {kernel.part for kernel in self.mlp} - {"activation", "lora"}
        wholes = [network if kernel in self.mlp else {kernel.part} & _WHOLES for kernel in self.all]
        inside = [own | {_WITHIN[part] for part in own if part in _WITHIN} for own in wholes]
        return tuple(zip(self.all, map(frozenset, inside), strict=True))

    @cached_property
    def has_gradients(self) -> bool:
        """Whether gradients pass through any kernel."""
        return any(kernel.passes for kernel in self.all)

    @cached_property
    def learns(self) -> bool:
        """Whether any kernel has weights that are trained."""
        return any(weight_gradient(kernel) is not None for kernel in self.all)


def layer(spec: ModelSpec, number: int, shard: Shard) -> Layer:
    """The kernels of layer `number`; MTP layers are numbered after the stack."""
    kind, window = spec.kind(number), spec.window(number) or 0
    spec, adapts = spec.of(kind), shard.lora_rank > 0
    spec, shard = rank_view(spec, towers.tower_shard(spec, shard))
    shard = shard if kind.learns else replace(shard, learns=False)
    moe = spec.moe if kind.moe else None
    own, group = _mixer(spec, kind, window, shard)
    table = _mlp_parameters(spec, kind)
    routed, both = moe is not None, kind.mixer and kind.network
    shared = spec.shared_norm and both
    input_norm = _first_norm(spec, shard, "input_norm", wide=routed and shared, gathers=not own)
    mlp_norm = _first_norm(spec, shard, "mlp_norm", wide=routed, gathers=not routed)
    # nothing reads the output of a sandwich norm in the backward, so its input is kept
    sandwich = (_norm(spec, shard, "post_norm", shard.wide, "residual"),) * spec.sandwich_norms
    made = Layer(
        before=(
            *towers.opening_kernels(spec, shard) * kind.opens,
            *streams.collapse(spec, shard, "attn_streams") * kind.mixer,
            *altup.predict(spec, shard),
            *(input_norm, *_norm_gate(spec, shard)) * (kind.mixer and spec.pre_norms),
            *altup.laurel(spec, shard),
            *modulation.layer_kernels(spec, shard),
            *own,
        ),
        attention=group,
        mlp_in=(
            *convolutions.branch_kernels(spec, shard) * both,
            *sandwich * both,
            *(_residual(spec, shard),) * (both and not spec.parallel_residual),
            *streams.collapse(spec, shard, "ffn_streams") * kind.network,
            *(mlp_norm, *_norm_gate(spec, shard)) * (kind.network and spec.pre_norms and not shared),
            *(mlp.routing(spec, moe, shard, table) if moe else ()),
        ),
        mlp=mlp.kernels(spec, shard, table, "shared_experts" if moe else "mlp"),
        experts=mlp.experts(spec, moe, shard, table) if moe else (),
        after=(
            *(mlp.combine(spec, moe, shard, table) if moe else ()),
            *convolutions.branch_kernels(spec, shard),
            *sandwich,
            _residual(spec, shard, 2 if both and spec.parallel_residual else 1),
            *altup.correct(spec, shard),
            *layer_embeddings.layer_kernels(spec, shard),
            *towers.closing_kernels(spec, shard) * kind.closes,
        ),
    )
    if adapts or not kind.learns:
        made = _without_unread(made)
    if not kind.passes:
        return _without_gradients(made, kept=kind.kept)
    if spec.inputs is None or not spec.inputs.frozen:
        return made
    return _without_gradients(made) if adapts else _of_projector(spec.inputs, made)


def _without_unread(layer: Layer) -> Layer:
    """The layer without outputs that only weight gradients would need, where the weights are frozen."""
    kernels = layer.all
    kept = iter([
        replace(kernel, keeps=kernel.keeps[1:]) if kernel.keeps and _is_unread(kernel, kernels[i + 1 :]) else kernel
        for i, kernel in enumerate(kernels)
    ])  # fmt: skip
    return Layer(**{each.name: tuple(next(kept) for _ in getattr(layer, each.name)) for each in fields(layer)})


def _is_unread(kernel: Kernel, later: Kernels) -> bool:
    """Whether no backward needs this output: the kernel's own needs its input, and no adapter reads the output.

    All that comes before the next sum with the residual stream may read what a norm made.
    """
    first = later[0].name if later else ""
    if not op_kind(kernel.kind).reads_input or first not in (*_READ_NORMS, "down"):
        return False
    branch = takewhile(lambda each: each.kind != "residual_add", later)
    readers = ("down",) if first == "down" else _READ_NORMS
    return not any(each.part == "lora" and each.name.partition(ADAPTER)[0] in readers for each in branch)


def _of_projector(inputs: Inputs, layer: Layer) -> Layer:
    """The layer of a frozen tower without gradients, but those of its projector, whose input is still kept."""
    own = [towers.is_trained(inputs, kernel.name) for kernel in layer.after]
    reads = [*own[1:], False]  # whether a kernel of the projector reads the output
    after = [
        kernel if trained else _frozen(kernel, kept=kernel.keeps * read)
        for kernel, trained, read in zip(layer.after, own, reads, strict=True)
    ]
    return replace(_without_gradients(layer), after=tuple(after))


def _without_gradients(layer: Layer, kept: bool = False) -> Layer:
    """The layer without gradients; what it gives may be `kept` for the next one."""
    made = Layer(**{each.name: tuple(map(_frozen, getattr(layer, each.name))) for each in fields(layer)})
    if not kept:
        return made
    return replace(made, after=(*made.after[:-1], replace(made.after[-1], keeps=layer.after[-1].keeps)))


def _frozen(kernel: Kernel, kept: tuple[Kept, ...] = ()) -> Kernel:
    return replace(kernel, trained=False, passes=False, keeps=kept)


def _mixer(spec: ModelSpec, kind: LayerKind, window: int, shard: Shard) -> tuple[Kernels, Kernels]:
    """Attention of any kind: kernels on a rank's own tokens, and on the tokens of its tensor-parallel group."""
    if not kind.mixer:
        return (), ()
    if kind.cross and spec.cross:
        return (), cross.kernels(spec, spec.cross, shard)
    if kind.linear and (of := spec.linear_attention):
        _, kernels = _MIXERS[type(of)]
        if not of.beside_attention:
            return (), kernels(spec, of, shard)
        size = shard.tokens * spec.hidden_size
        both = memory_bound("residual_add", "add_mixers", "residual", spec.hidden_size, size, 3, shard)
        return (), (*attention.kernels(spec, window, shard), *kernels(spec, of, shard), both)
    if spec.compressed:
        of_entries = spec.compressed
        return compressed.latents(spec, of_entries, shard), compressed.kernels(spec, of_entries, window, shard)
    if spec.mla and spec.indexer and not window and not shard.unfused:
        own = spec.indexer if kind.indexer else None
        return mla.latents(spec, spec.mla, shard), sparse_mla.kernels(spec, spec.mla, spec.indexer, own, shard)
    if spec.mla:
        return mla.latents(spec, spec.mla, shard), mla.kernels(spec, spec.mla, window, shard)
    return (), attention.kernels(spec, window, shard)


def embedding(spec: ModelSpec, shard: Shard) -> Kernels:
    """The token lookup; each rank of a tensor-parallel group has a part of the vocabulary."""
    spec, shard = rank_view(spec, replace(shard, learns=not spec.frozen.embedding))
    width = spec.embedding_width or spec.hidden_size
    size = 2 * shard.wide * shard.tokens * width
    kept = (Kept("embedding", shard.wide * shard.own_tokens * width),) * (spec.first_trained == 0)
    norm = (_norm(spec, shard, "embedding_norm", shard.wide, "embedding"),) if spec.embedding_norm else ()
    lookup = Kernel("embed", "embed", "embedding", (width,), shard.dtype, size, kept)
    table = embedding_parameters(spec)
    projection = gemm(shard, table, "embed_projection", "embedding", shard.own_tokens, keeps=shard.wide)
    states = altup.end_kernels(spec, shard, "altup_projections")
    return (lookup, *norm, *projection, *states, *layer_embeddings.model_kernels(spec, shard))


def head(spec: ModelSpec, shard: Shard) -> Kernels:
    """The last norm, the logits (never in 8 bits) and the loss.

    In separate passes as in Megatron-LM (core/tensor_parallel/cross_entropy.py) the forward moves 38 bytes per logit:
    cast 6, maximum 4, subtract 8, exponential 8, sum 4, divide 8; the backward 14 (logits in 16 bits).
    """
    spec, shard = rank_view(spec, replace(shard, learns=not spec.frozen.head))
    table = head_parameters(spec)
    words, _ = matrix(table, "logits", shard.tp)
    logits = gemm(shard, table, "logits", "head", shard.tokens, dtype=shard.plain)
    kept = (Kept("head", round(shard.tokens * words * shard.softmax_bytes)),)  # from which the gradient is made
    kind, moved = ("loss_passes", 38) if shard.loss_passes else ("cross_entropy", 2)
    loss = Kernel(kind, "loss", "head", (words,), shard.dtype, moved * shard.tokens * words, kept)
    transform = gemm(shard, table, "head_transform", "head", shard.own_tokens, keeps=shard.wide, dtype=shard.plain)
    gathers = {"final_norm": not spec.head_transform, "head_norm": True}
    norms = [_first_norm(spec, shard, name, wide=True, gathers=gathers[name]) for name in gathers]
    states = altup.end_kernels(spec, shard, "altup_unembed_projections")
    first = (*states, *streams.collapse(spec, shard, "head_streams", head=True))
    return (*first, *norms[:1] * spec.final_norm, *transform, *norms[1:] * spec.head_transform, *logits, loss)


def mtp_in(spec: ModelSpec, shard: Shard) -> Kernels:
    """Before the decoder layer of MTP: two norms and a projection of both."""
    spec, shard = rank_view(spec, shard)
    norms = (_norm(spec, shard, "enorm"), _norm(spec, shard, "hnorm"))
    return (*norms, *gemm(shard, mtp_parameters(spec), "eh_proj", "mlp", shard.own_tokens, "mtp", keeps=shard.wide))


def _norm(spec: ModelSpec, shard: Shard, name: str, width: float = 0, part: str = "layernorm") -> Kernel:
    """A norm of a rank's own tokens; the backward keeps `width` bytes per element (0: as GEMMs read them)."""
    elements, bytes_each = shard.own_tokens * spec.hidden_size, width or shard.narrow
    return memory_bound("rms_norm", name, part, spec.hidden_size, elements, 2, shard, elements * bytes_each)


def _first_norm(spec: ModelSpec, shard: Shard, name: str, *, wide: bool, gathers: bool) -> Kernel:
    """The norm before attention, FFN or logits; a router and logits read its output in 16 bits (`wide`).

    Where the result is gathered over tp (`gathers`), the gathered tensor may be kept instead of the rank's part.
    """
    norm = _norm(spec, shard, name, shard.wide if wide else shard.narrow)
    if not gathers or not shard.keeps_gathered or shard.side > 1:
        return norm
    own, *inside = norm.keeps
    return replace(norm, keeps=(Kept(own.part, own.bytes * shard.tokens // shard.own_tokens), *inside))


def _norm_gate(spec: ModelSpec, shard: Shard) -> Kernels:
    """The gate of a norm's output, on a rank's own tokens."""
    table, tokens, wide = _norm_gate_parameters(spec, ""), shard.own_tokens, shard.wide
    if not table:
        return ()
    made = tokens * spec.hidden_size
    return (
        *gemm(shard, table, "norm_gate_down", "layernorm", tokens, keeps=wide),
        *gemm(shard, table, "norm_gate_up", "layernorm", tokens, keeps=wide),
        memory_bound("gate", "norm_gate", "layernorm", spec.hidden_size, made, 3, shard, made * shard.narrow),
    )


def _residual(spec: ModelSpec, shard: Shard, branches: int = 1) -> Kernel:
    """The sum of what enters a block and what comes out of its branches, for each stream."""
    elements = shard.own_tokens * spec.hidden_size
    count = spec.streams if streams.has_streams(spec) else 1
    kept, moved = count * elements * shard.wide, 2 * count + branches
    return memory_bound("residual_add", "residual", "residual", spec.hidden_size, elements, moved, shard, kept)
