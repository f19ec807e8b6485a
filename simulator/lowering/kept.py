"""What the forward of a stage keeps for one micro-batch, by part of the layer, under the plan's recomputation."""

from collections import Counter
from collections.abc import Mapping

from ..workload.blocks import embedding, head, mtp_in
from ..workload.states import kept
from .plan import TrainPlan


def kept_by_part(plan: TrainPlan, stage: int) -> Mapping[str, int]:
    """Bytes by part; a layer that is recomputed whole keeps what enters the next one alone."""
    own, again = plan.stages[stage], plan.again
    total: Counter[str] = Counter()
    modes = ["full" if again.whole(position) else "selective" for position in range(len(own.layers))]
    layers = {id(plan.layer(number)): plan.layer(number) for number in own.layers}
    alike = Counter((id(plan.layer(number)), mode) for number, mode in zip(own.layers, modes, strict=True))
    for (layer, mode), count in alike.items():
        total.update({part: size * count for part, size in kept(layers[layer], mode, again.parts).items()})
    kernels = [*(embedding(plan.spec, plan.shard) if own.embedding else ())]
    kernels += [kernel for _ in range(own.head + len(own.mtp)) for kernel in head(plan.spec, plan.shard)]
    for number in own.mtp:
        kernels += mtp_in(plan.spec, plan.shard)
        total.update(kept(plan.layer(number), "selective", again.parts))
    for kernel in kernels:
        total.update(dict(kernel.keeps))
    return total


def kept_bytes(plan: TrainPlan, stage: int) -> int:
    """All of it."""
    return sum(kept_by_part(plan, stage).values())
