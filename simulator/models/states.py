"""What one rank holds: parameters, their training states, and activations kept for the backward."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import dropwhile
from math import prod
from typing import NamedTuple

from .attention import head_norms
from .blocks import Layer, embedding_parameters, head_parameters, layer, layer_parameters, mtp_parameters
from .kernels import PACKED, Kernel, Kernels, element_bytes, weights_of
from .model import ModelSpec
from .parameters import Parameter, Parameters, n_elements, split
from .shard import ALL_LINEAR, Shard
from .sparse_mla import LEARNING

MODES = ("none", "selective", "full")

_STATE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


# Parameters


class Count(NamedTuple):
    """Parameters of one rank: dense ones have replicas over dp x cp, those of experts over ranks of their own.

    Parameters held `once` have no replica: they are not reduced, gathered or sharded further.
    """

    dense: int
    expert: int = 0
    once: int = 0


def sum_counts(parts: Iterable[Count]) -> Count:
    """The parameters of all parts together."""
    return Count(*map(sum, zip(*parts, Count(0), strict=True)))


def rank_count(table: Iterable[Parameter], *, tp: int, ep: int = 1, etp: int = 1) -> Count:
    """The parameters of a table on one rank; experts are distributed over ep and split over etp."""
    dense, expert = 0, 0
    for each in table:
        if each.experts:
            expert += split(each.experts, ep) * prod(each.rank_shape(etp))
        else:
            dense += prod(each.rank_shape(tp))
    return Count(dense, expert)


def layer_count(spec: ModelSpec, number: int, *, tp: int, ep: int, etp: int) -> Count:
    """One layer on one rank; an MTP layer includes its norms and projection."""
    return rank_count(_layer(spec, number), tp=tp, ep=ep, etp=etp)


def learned_count(spec: ModelSpec, number: int, *, tp: int, ep: int, etp: int) -> Count:
    """The parameters of a layer on one rank that have gradients."""
    return rank_count([each for each in _layer(spec, number) if each.learned], tp=tp, ep=ep, etp=etp)


def layer_copies(spec: ModelSpec, number: int, *, tp: int) -> int:
    """Parameters of a layer of which every rank of tp has a copy, which learns from its own tokens only.

    That includes heads of k and v if there are fewer than ranks, but no experts: these see all tokens sent to them.
    """
    table = [each for each in _layer(spec, number) if each.learned and not each.experts]
    return rank_count([each for each in table if each.is_replicated(tp)], tp=tp).dense


def head_norm_copies(spec: ModelSpec, number: int) -> int:
    """Parameters of a layer's norms of heads that all heads share, each rank of tp having learnt from its own heads."""
    shared = {each.name for each in head_norms(spec) if each.cut is None} if spec.qk_norm else set()
    return n_elements(each for each in _layer(spec, number) if each.learned and each.name in shared)


def embedding_count(spec: ModelSpec, *, tp: int, owners: int = 1) -> Count:
    """Token embeddings, split over the vocabulary, and learned positions and a norm, which every rank has.

    With `owners` above 1 a rank's part of the vocabulary is split once more, over ranks that would be replicas.
    """
    words, *beside = embedding_parameters(spec)
    if owners == 1:
        return rank_count([words, *beside], tp=tp)
    rows, hidden = words.rank_shape(tp)
    return Count(rank_count(beside, tp=tp).dense, once=split(rows, owners) * hidden)


def head_count(spec: ModelSpec, *, tp: int, tied_here: bool = False) -> Count:
    """The last norm and the output matrix; on a stage without the embedding a tied one is a copy."""
    return rank_count(head_parameters(spec, tied_here and spec.tie_word_embeddings), tp=tp)


def head_copies(spec: ModelSpec) -> int:
    """The last norm, which every rank of tp has."""
    return n_elements(each for each in head_parameters(spec) if each.cut is None)


def adapter_count(
    spec: ModelSpec, number: int, rank: int, targets: Collection[str], *, tp: int, ep: int = 1, etp: int = 1
) -> Count:
    """LoRA adapters of one layer: two factors of each adapted GEMM or module; experts have none."""
    shard = Shard(1, 1, tp=tp, ep=ep, etp=etp, lora_rank=rank, adapted=tuple(targets))
    return Count(sum(weights_of(k.kind, k.shape) for k in layer(spec, number, shard).all if k.part == "lora"))


def adapter_modules(spec: ModelSpec) -> list[str]:
    """The modules of a model's layers that may have adapters of their own, by the last parts of their names."""
    shard = Shard(1, 1, lora_rank=1, adapted=(ALL_LINEAR,))
    kernels = [
        each for number in set(spec.first_alike) for each in layer(spec, number, shard).all if each.part == "lora"
    ]
    return list(dict.fromkeys(each.name.rpartition(".")[2] for each in kernels))


def adapter_params(spec: ModelSpec, rank: int, targets: Collection[str]) -> int:
    """LoRA adapters of all layers of a whole model."""
    layers = Counter(spec.first_alike)
    return sum(many * adapter_count(spec, number, rank, targets, tp=1).dense for number, many in layers.items())


def packed_count(of: Layer, base: str) -> Count:
    """The weights of a rank's layer that lie packed in the type `base`: those of all GEMMs but the router's."""
    packed = [kernel for kernel in of.all if kernel.dtype == base]
    experts = sum(weights_of(kernel.kind, kernel.shape) for kernel in packed if kernel.kind == "experts")
    return Count(sum(weights_of(kernel.kind, kernel.shape) for kernel in packed) - experts, experts)


def _layer(spec: ModelSpec, number: int) -> Parameters:
    """A layer; the first MTP layer (each, if not shared) with the rest of MTP, without copies."""
    index = number - spec.n_layers
    own = index == 0 or (index > 0 and not spec.mtp_apart)
    mtp = [each for each in mtp_parameters(spec) if not each.copy] if own else []
    return layer_parameters(spec, spec.kind(number)) + mtp


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
        """The bytes of all kinds of states together."""
        return self.weights + self.gradients + self.master + self.moments


def state_bytes(
    held: Count,
    *,
    zero: int,
    shard_dense: int,
    shard_expert: int,
    compute: str = "bf16",
    gradients: str = "fp32",
    moments: str = "fp32",
    master: bool = True,
    trained: Count | None = None,
) -> StateBytes:
    """The bytes that training with Adam keeps for the parameters of one rank.

    `zero` 1 shards moments and master weights, 2 also gradients, 3 also weights. Of `held`, `trained` have gradients
    (default: all). Weights in 32 bits are their own master weights; GEMMs in 8 or 4 bits read copies (`copy_bytes`) of
    weights in 16 bits. Source: ZeRO, arXiv 1910.02054.
    """
    learned = held if trained is None else trained

    def bytes_of(of: Count, each: float, sharded: bool) -> int:
        if not sharded:
            return round(sum(of) * each)
        return round((split(of.dense, shard_dense) + split(of.expert, shard_expert) + of.once) * each)

    own_master = master and element_bytes(compute) < 4
    return StateBytes(
        weights=bytes_of(held, max(element_bytes(compute), 2), zero == 3),
        gradients=bytes_of(learned, _STATE_BYTES[gradients], zero >= 2),
        master=bytes_of(learned, 4 * own_master, zero >= 1),
        moments=bytes_of(learned, 2 * _STATE_BYTES[moments], zero >= 1),
    )


def copy_bytes(compute: str, zero: int, any_layout: bool = False) -> float:
    """Bytes of the quantized copies of a weight of a layer; embedding and head are never quantized.

    GEMMs in 8 or 4 bits read two, along rows and along columns; one where GEMMs take operands with one scale in
    `any_layout`. Zero 3 quantizes what it gathers and keeps none. Scales (at most 6 % of a copy) are left out. Source:
    Transformer Engine 2 (pytorch/csrc/quantizer.cpp, nvte_is_non_tn_fp8_gemm_supported).
    """
    each = element_bytes(compute)
    copies = 1 if any_layout and compute == "fp8" else 2
    return copies * each if each < 2 and zero < 3 else 0


# Activations


def activations(layer: Layer, mode: str = "none", parts: Collection[str] = ()) -> dict[str, int]:
    """Bytes that one layer keeps of one micro-batch, by part, if `parts` are recomputed (mode "full": all).

    A layer's input counts in the layer before, so a fully recomputed layer keeps its output. A part that is recomputed
    as a whole (mlp, moe, shared_experts) keeps nothing inside; attention's output is always kept, as the next GEMM
    reads it. moe_act is the activation of routed experts alone, as Megatron-LM's (core/transformer/moe/experts.py).
    """
    assert mode in MODES, mode
    if mode == "full":
        return {kept.part: kept.bytes for kept in layer.after[-1].keeps}
    found: dict[str, int] = {}
    for kernel, wholes in layer.placed:
        again = mode != "none" and not wholes.isdisjoint(parts)
        for part, size in () if again else kernel.keeps:
            if mode == "none" or part not in _dropped(kernel, parts):
                found[part] = found.get(part, 0) + size
    return found


def _dropped(kernel: Kernel, parts: Collection[str]) -> Collection[str]:
    """The parts that a kernel does not keep; the activation of experts has a name of its own beside the general one."""
    return (*parts, "activation") if kernel.kind == "experts" and "moe_act" in parts else parts


def activation_bytes(layer: Layer, mode: str = "none", parts: Collection[str] = ()) -> int:
    """The bytes of all parts together."""
    return sum(activations(layer, mode, parts).values())


def recomputation(layer: Layer, mode: str = "none", parts: Collection[str] = ()) -> Kernels:
    """The kernels of a layer that run once more before its backward, in forward order.

    If only the activation of experts is recomputed, it is a kernel over all their rows. What an indexer learns by runs
    where gradients are on, which is once (Megatron-LM, dsa.py).
    """
    assert mode in MODES, mode
    if mode == "none":
        return ()
    found: list[Kernel] = []
    for kernel, wholes in dropwhile(lambda placed: not (placed[0].passes or placed[0].trained), layer.placed):
        if kernel.name in LEARNING:
            continue
        if mode == "full" or (wholes | {kernel.part}) & set(parts):
            found.append(kernel)
        elif kernel.kind == "experts" and "activation" in _dropped(kernel, parts):
            found.append(_expert_activation(kernel))
    return tuple(found)


def _expert_activation(experts: Kernel) -> Kernel:
    rows, _, inter, *_, etp, _, matrices = experts.shape
    wide = 2 if experts.dtype in PACKED else max(element_bytes(experts.dtype), 2)
    size = round(rows * inter / etp * matrices * wide)
    return Kernel("swiglu" if matrices == 3 else "gelu", "activation", "activation", (inter // etp,), "bf16", size)
