"""What one rank holds: parameters, what training keeps of each, and activations from the forward to the backward."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .blocks import Layer, layer
from .kernels import Kernel, Kernels, element_bytes
from .model import Indexer, LinearAttention, Mla, ModelSpec, Moe
from .shard import Shard

MODES = ("none", "selective", "full")

_WITHIN = {"router": "moe", "shared_experts": "moe"}  # parts of a layer that another part holds
_STATE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


# Parameters


class Held(NamedTuple):
    """Parameters of one rank: dense ones have replicas over dp x cp, those of experts over ranks of their own.

    What is held `once` has no replica: nothing of it is reduced, gathered or sharded further.
    """

    dense: int
    expert: int = 0
    once: int = 0


def all_held(parts: Iterable[Held]) -> Held:
    """All of them together."""
    dense, expert, once = 0, 0, 0
    for part in parts:
        dense, expert, once = dense + part.dense, expert + part.expert, once + part.once
    return Held(dense, expert, once)


def layer_held(spec: ModelSpec, number: int, *, tp: int, ep: int, etp: int) -> Held:
    """One layer on one rank; an MTP layer has its norms and the projection before it with it.

    Split over tp: products that `blocks` splits, their biases, and heads with all that each has. On every rank: norms,
    routers, MLA's latents, indexers, biases behind a sum over ranks, and keys of which there are fewer than ranks.
    """
    moe = spec.moe if spec.is_moe(number) else None
    ffn = _router(spec, moe, tp) if moe else _ffn(spec, spec.intermediate_size, tp)
    experts = _split(moe.n_routed_experts, ep) * _ffn(spec, moe.moe_intermediate_size, etp) if moe else 0
    norms = spec.norms_per_layer * spec.norm_params()
    return Held(norms + _mixer(spec, number, tp) + ffn + _before_mtp(spec, number), experts)


def layer_replicated(spec: ModelSpec, number: int, *, tp: int) -> int:
    """What of a layer every rank of tp has a copy of, and learns from its own tokens alone under sequence parallelism.

    Norms, router, gate of shared experts, latents of MLA, indexer, biases behind a sum, what is before an MTP layer,
    and keys and values of which there are fewer than ranks. Not the correction bias, which has no gradient.
    """
    moe = spec.moe if spec.is_moe(number) else None
    biases = spec.mlp_bias * spec.hidden_size if not moe or moe.shared_intermediate_size else 0
    found = spec.norms_per_layer * spec.norm_params() + biases + _before_mtp(spec, number)
    if moe:
        found += moe.n_routed_experts * (spec.hidden_size + moe.router_bias) + moe.shared_gate * spec.hidden_size
    return found + _replicated_mixer(spec, number, tp)


def embedding_held(spec: ModelSpec, *, tp: int, owners: int = 1) -> Held:
    """Token embeddings, split by words, and learned positions and a norm on every rank.

    With `owners` above 1 the words of a rank are split once more, over so many ranks that would else be replicas.
    """
    words, hidden = _split(spec.vocab_size, tp), spec.hidden_size
    beside = spec.position_embeddings * hidden + spec.embedding_norm * spec.norm_params()
    return Held(beside, once=_split(words, owners) * hidden) if owners > 1 else Held(words * hidden + beside)


def head_held(spec: ModelSpec, *, tp: int, tied_here: bool = False) -> Held:
    """The last norm and the output matrix; on a stage without the embedding a tied one is a copy."""
    words = 0 if tied_here and spec.tie_word_embeddings else _split(spec.vocab_size, tp)
    return Held(words * spec.hidden_size + spec.norm_params())


def trained(
    spec: ModelSpec, number: int, rank: int, targets: Collection[str], *, tp: int, ep: int = 1, etp: int = 1
) -> Held:
    """Adapters of one layer, which are held beside it: two factors of each product that has one; experts have none."""
    shard = Shard(1, 1, tp=tp, ep=ep, etp=etp, lora_rank=rank, adapted=tuple(targets))
    return Held(sum(k.shape[1] * k.shape[2] for k in layer(spec, number, shard).all if k.part == "lora"))


def _split(size: int, ranks: int) -> int:
    return -(-size // ranks)


def _before_mtp(spec: ModelSpec, number: int) -> int:
    """Two norms and a projection before an MTP layer and a norm behind it; stored once if layers share them."""
    index = number - spec.num_hidden_layers
    own = index == 0 or (index > 0 and not spec.mtp_apart)
    return own * (2 * spec.hidden_size**2 + 3 * spec.norm_params())


def _ffn(spec: ModelSpec, inter: int, tp: int) -> int:
    """A dense network; the bias behind its second product is added to a sum, so every rank has all of it."""
    up, inter = 2 if spec.gated_ffn else 1, _split(inter, tp)
    return (up + 1) * spec.hidden_size * inter + spec.mlp_bias * (up * inter + spec.hidden_size)


def _router(spec: ModelSpec, moe: Moe, tp: int) -> int:
    router = moe.n_routed_experts * (spec.hidden_size + moe.correction_bias + moe.router_bias)
    shared = _ffn(spec, moe.shared_intermediate_size, tp) if moe.shared_intermediate_size else 0
    return router + shared + moe.shared_gate * spec.hidden_size


def _mixer(spec: ModelSpec, number: int, tp: int) -> int:
    kind = spec.kind(number)
    if spec.linear_attention and kind.linear:
        return _linear_attention(spec, spec.linear_attention, tp)
    heads = _split(spec.num_attention_heads, tp)
    out = heads * spec.v_head_dim * spec.hidden_size + spec.attention_out_bias * spec.hidden_size
    indexer = _indexer(spec, spec.indexer) if spec.indexer and kind.indexer else 0
    into = _mla(spec, spec.mla, heads) if spec.mla else _qkv(spec, heads, tp)
    return into + out + spec.attention_sinks * heads + indexer


def _qkv(spec: ModelSpec, heads: int, tp: int) -> int:
    kv_heads = max(spec.num_key_value_heads // tp, 1)
    width = (heads * (2 if spec.output_gate else 1) + 2 * kv_heads) * spec.head_dim
    return width * (spec.hidden_size + spec.attention_bias) + spec.qk_norm * 2 * spec.head_dim


def _replicated_mixer(spec: ModelSpec, number: int, tp: int) -> int:
    kind, hidden, bias, mla = spec.kind(number), spec.hidden_size, spec.attention_bias, spec.mla
    if spec.linear_attention and kind.linear:
        return spec.linear_attention.value_head_dim
    found = spec.attention_out_bias * hidden + (_indexer(spec, spec.indexer) if spec.indexer and kind.indexer else 0)
    if mla:
        queries = (mla.q_lora_rank or 0) * (hidden + bias + 1)
        return found + queries + (mla.kv_lora_rank + mla.qk_rope_head_dim) * (hidden + bias) + mla.kv_lora_rank
    copied = 2 * spec.head_dim * (hidden + bias) if spec.num_key_value_heads < tp else 0
    return found + copied + spec.qk_norm * 2 * spec.head_dim


def _mla(spec: ModelSpec, mla: Mla, heads: int) -> int:
    hidden, rank, bias, query = spec.hidden_size, mla.q_lora_rank, spec.attention_bias, heads * spec.qk_head_dim
    queries = hidden * query if rank is None else rank * (hidden + bias + 1 + query)
    down = (mla.kv_lora_rank + mla.qk_rope_head_dim) * (hidden + bias)
    return queries + down + mla.kv_lora_rank * (1 + heads * (mla.qk_nope_head_dim + mla.v_head_dim))


def _indexer(spec: ModelSpec, indexer: Indexer) -> int:
    rank = (spec.mla.q_lora_rank or 0) if spec.mla else 0
    queries = rank * indexer.num_heads * indexer.head_dim
    return queries + indexer.head_dim * (spec.hidden_size + 2) + indexer.num_heads * spec.hidden_size


def _linear_attention(spec: ModelSpec, linear: LinearAttention, tp: int) -> int:
    heads, qkv, value = (_split(size, tp) for size in (linear.num_value_heads, linear.qkv_width, linear.value_width))
    products = spec.hidden_size * (qkv + 2 * value + 2 * heads)
    return products + qkv * linear.conv_kernel + 2 * heads + linear.value_head_dim


# States


@dataclass(frozen=True)
class StateBytes:
    """Bytes of one rank, beside activations."""

    weights: int
    gradients: int
    master: int
    moments: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.gradients + self.master + self.moments


def state_bytes(
    held: Held,
    *,
    zero: int,
    shard_dense: int,
    shard_expert: int,
    compute: str = "bf16",
    gradients: str = "fp32",
    moments: str = "fp32",
    master: bool = True,
    trained: Held | None = None,
) -> StateBytes:
    """What training with Adam keeps of the parameters of one rank.

    `zero` 1 shards moments and master weights over so many ranks, 2 gradients too, 3 weights too. Of `held`,
    `trained` have gradients (default: all). Weights in 32 bits are their own master; what products read in 8 or 4 bits
    is a copy (`copies_each`) of weights in 16. Source: ZeRO, arXiv 1910.02054.
    """
    learned = held if trained is None else trained

    def bytes_of(of: Held, each: float, sharded: bool) -> int:
        if not sharded:
            return round(sum(of) * each)
        return round((_split(of.dense, shard_dense) + _split(of.expert, shard_expert) + of.once) * each)

    own_master = master and element_bytes(compute) < 4
    return StateBytes(
        weights=bytes_of(held, max(element_bytes(compute), 2), zero == 3),
        gradients=bytes_of(learned, _STATE_BYTES[gradients], zero >= 2),
        master=bytes_of(learned, 4 * own_master, zero >= 1),
        moments=bytes_of(learned, 2 * _STATE_BYTES[moments], zero >= 1),
    )


def copies_each(compute: str, zero: int) -> float:
    """Bytes of the quantized copies of a weight, which stay beside it; embedding and head are never quantized.

    Products in 8 or 4 bits read two, along its rows and its columns; zero 3 makes them of what it gathers. Scales of
    blocks (at most 6 % of a copy) are left out. Source: Transformer Engine 2.
    """
    each = element_bytes(compute)
    return 2 * each if each < 2 and zero < 3 else 0


# Activations


def kept(layer: Layer, mode: str = "none", parts: Collection[str] = ()) -> dict[str, int]:
    """Bytes that one layer keeps of one micro-batch, by part, when `parts` are recomputed ("full": all).

    What enters the layer counts where it was made: in the layer before, or the embedding. So a layer that is recomputed
    in full keeps its result. A part that is recomputed as a whole (mlp, moe, shared_experts) keeps nothing inside; of
    others only what they name goes: attention's output stays, as the next product reads it.
    """
    assert mode in MODES, mode
    if mode == "full":
        return {kept.part: kept.bytes for kept in layer.after[-1].keeps}
    found: dict[str, int] = {}
    for kernel, wholes in _placed(layer):
        for part, size in kernel.keeps:
            if mode == "none" or not (wholes | {part}) & set(parts):
                found[part] = found.get(part, 0) + size
    return found


def kept_bytes(layer: Layer, mode: str = "none", parts: Collection[str] = ()) -> int:
    """All bytes of `kept`."""
    return sum(kept(layer, mode, parts).values())


def recomputed(layer: Layer, mode: str = "none", parts: Collection[str] = ()) -> Kernels:
    """The kernels of a layer that run once more before its backward, in forward order.

    Of experts whose activation alone is recomputed it is a kernel of its own, over all their rows.
    """
    assert mode in MODES, mode
    if mode == "none":
        return ()
    found: list[Kernel] = []
    for kernel, wholes in _placed(layer):
        if mode == "full" or (wholes | {kernel.part}) & set(parts):
            found.append(kernel)
        elif kernel.kind == "experts" and "activation" in parts:
            found.append(_expert_activation(kernel))
    return tuple(found)


def _placed(layer: Layer) -> Iterator[tuple[Kernel, set[str]]]:
    """Every kernel with the parts that hold it as a whole, so that nothing inside is kept when they are recomputed."""
    network = {kernel.part for kernel in layer.mlp} - {"activation", "lora"}
    for kernel in layer.all:
        wholes = set(network) if kernel in layer.mlp else {kernel.part} & {"moe", "router", "shared_experts"}
        yield kernel, wholes | {_WITHIN[part] for part in wholes if part in _WITHIN}


def _expert_activation(experts: Kernel) -> Kernel:
    rows, _, inter, *_, etp, _, matrices = experts.shape
    size = round(rows * inter / etp * matrices * max(element_bytes(experts.dtype), 2))
    return Kernel("swiglu" if matrices == 3 else "gelu", "activation", "activation", (inter // etp,), "bf16", size)
