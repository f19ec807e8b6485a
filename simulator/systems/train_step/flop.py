"""Model FLOP of a training step: what the model needs, whatever a plan recomputes, pads, or computes without picks."""

from dataclasses import replace

from ...base.op_kinds import ATTENTION, op_kind
from ...models.blocks import embedding, head, layer, mtp_in
from ...models.kernels import Kernel, Kernels, flop, input_gradient, weight_gradient
from ...models.shard import Shard
from .lower import TrainPlan
from .resolve import ResolvedTrain


def flop_of_sequence(resolved: ResolvedTrain, plan: TrainPlan) -> tuple[float, float]:
    """FLOP of a sequence, causal and not, with the model's own vocabulary.

    No layout changes them, so plans of one model share them.
    """
    mtp, own = sum(len(stage.mtp) for stage in plan.stages), replace(plan, spec=resolved.spec)
    key = own.spec, _unsharded(plan.shard), mtp
    return resolved.memo.get("flop", key, lambda: (model_flop(own, 1), model_flop(own, 1, causal=False)))


def _unsharded(shard: Shard) -> Shard:
    """The shard of one rank that computes a whole sequence."""
    return Shard(1, shard.seq, lora_rank=shard.lora_rank, adapted=shard.adapted, document=shard.document)


def model_flop(plan: TrainPlan, sequences: int, causal: bool = True) -> float:
    """Forward, input and weight gradients of all layers and losses over so many sequences, unsharded.

    With `causal` attention counts what its mask and window leave, else whole squares.
    """
    spec, whole = plan.spec, _unsharded(plan.shard)
    layers = [number for stage in plan.stages for number in (*stage.layers, *stage.mtp)]
    kinds: dict[object, float] = {}
    total = 0.0
    for number in layers:
        key = (spec.kind(number), spec.window(number))
        if key not in kinds:
            kinds[key] = _flop(layer(spec, number, whole).all, whole, causal)
        total += kinds[key]
    losses = 1 + sum(len(stage.mtp) for stage in plan.stages)
    total += losses * _flop(head(spec, whole), whole, causal) + _flop(embedding(spec, whole), whole, causal)
    total += (losses - 1) * _flop(mtp_in(spec, whole), whole, causal)
    return total * sequences


def _flop(kernels: Kernels, shard: Shard, causal: bool) -> float:
    total = 0.0
    for kernel in kernels:
        kernel = kernel if causal else _unmasked(kernel, shard)
        weights = weight_gradient(kernel)
        total += flop(kernel) + kernel.passes * flop(input_gradient(kernel)) + (flop(weights) if weights else 0.0)
    return total


def _unmasked(kernel: Kernel, shard: Shard) -> Kernel:
    """Attention without mask and window: of documents to all of each, which are texts of another length."""
    *sizes, masked, window, parts = kernel.shape if op_kind(kernel.kind).form == ATTENTION else (0, 0, 0)
    if not masked:
        return kernel
    batch, seq, *heads = sizes
    if (batch, seq) == shard.texts(window=window):
        batch, seq = shard.texts()
    return replace(kernel, shape=(batch, seq, *heads, 0, 0, parts))
