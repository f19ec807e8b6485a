"""Activations that the forward of a stage keeps for one micro-batch, by part of the layer, with recomputation.

With offloading a share of each layer's activations is a separate buffer, which leaves and comes back. The embedding's
output belongs to the layer after it. Heads and MTP layers keep theirs on the device, as their backward comes next.
"""

from collections import Counter
from collections.abc import Mapping

from ....models.blocks import embedding, head, mtp_in
from ....models.states import activations
from .plan import TrainPlan


def activation_parts(plan: TrainPlan, stage: int) -> Mapping[str, int]:
    """Kept bytes of a stage by part; a layer that is recomputed as a whole keeps only the input of the next layer."""
    own, again = plan.stages[stage], plan.again
    total: Counter[str] = Counter()
    modes = ["full" if again.whole(position) else "selective" for position in range(len(own.layers))]
    layers = [plan.layer(number) for number in own.layers]
    by_id = {id(layer): layer for layer in layers}
    for (layer, mode), count in Counter(zip(map(id, layers), modes, strict=True)).items():
        total.update({part: size * count for part, size in activations(by_id[layer], mode, again.parts).items()})
    kernels = [*(embedding(plan.spec, plan.shard) if own.embedding else ())]
    kernels += [kernel for _ in range(own.head + len(own.mtp)) for kernel in head(plan.spec, plan.shard)]
    for number in own.mtp:
        before = embedding if again.whole_mtp else mtp_in  # recomputation starts at the tokens that were looked up
        kernels += before(plan.spec, plan.shard)
        total.update(activations(plan.layer(number), "full" if again.whole_mtp else "selective", again.parts))
    for kernel in kernels:
        total.update(dict(kernel.keeps))
    return total


def activation_bytes(plan: TrainPlan, stage: int) -> int:
    """Kept bytes of a stage, all parts together."""
    return sum(activation_parts(plan, stage).values())


def offload_bytes(plan: TrainPlan, stage: int) -> Mapping[int, int]:
    """Bytes of each layer that are offloaded to the host."""
    return {layer: round(plan.offloaded * sum(parts.values())) for layer, parts in _by_layer(plan, stage).items()}


def resident_bytes(plan: TrainPlan, stage: int) -> int:
    """Bytes that stay on the device from the forward of a stage to its backward."""
    return activation_bytes(plan, stage) - (sum(offload_bytes(plan, stage).values()) if plan.offloaded else 0)


def stage_buffer(stage: int) -> str:
    """The name of the buffers of a stage's activations that stay on the device."""
    return f"activations of stage {stage}"


def layer_buffer(layer: int) -> str:
    """The name of the buffers of a layer's offloaded activations."""
    return f"activations of layer {layer}"


def buffer_parts(plan: TrainPlan) -> Mapping[str, Mapping[str, float]]:
    """For each buffer name its bytes by part of the layer."""
    found: dict[str, Mapping[str, float]] = {}
    for stage, parts_of_stage in enumerate(plan.make_by_stage(lambda stage: activation_parts(plan, stage))):
        layers = _by_layer(plan, stage) if plan.offloaded else {}
        resident: dict[str, float] = dict(parts_of_stage)
        for layer, parts in layers.items():
            found[layer_buffer(layer)] = parts
            for part, size in parts.items():
                resident[part] -= plan.offloaded * size
        found[stage_buffer(stage)] = resident
    return found


def _by_layer(plan: TrainPlan, stage: int) -> dict[int, Mapping[str, int]]:
    """Kept bytes of each decoder layer by part; the first one includes the embedding's output.

    Layers without a backward have nothing that could come back for it: what they keep stays.
    """
    own, again = plan.stages[stage], plan.again
    embedded = embedding(plan.spec, plan.shard) if own.embedding else ()
    found: dict[int, Mapping[str, int]] = {}
    for position, number in enumerate(own.layers):
        found[number] = total = Counter[str]()
        if not plan.layer(number).has_gradients:
            continue
        total.update(activations(plan.layer(number), "full" if again.whole(position) else "selective", again.parts))
        for kernel in embedded if position == 0 else ():
            total.update(dict(kernel.keeps))
    return found
