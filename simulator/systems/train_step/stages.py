"""Which layers each stage of a pipeline holds: as a scenario says, or as even as can be."""

from ...base.errors import UserError, fault
from ...models import ModelSpec
from .lower import Stage
from .scenario import TrainScenario


def split_layers(scenario: TrainScenario, spec: ModelSpec, stages: int, where: str) -> tuple[Stage, ...]:
    """Layers of each stage in model order: as given, or even, the first ones fuller; MTP layers are on the last.

    Raises:
        UserError: the layers given do not make up the model, or there are more stages than layers.
    """
    given, layers = scenario.parallel.layers, spec.num_hidden_layers
    counts = _even(scenario, spec, stages, where) if given is None else list(given)
    if len(counts) != stages or sum(counts) != layers:
        raise UserError(fault(where, "parallel.layers", list(counts), f"{stages} numbers that sum to {layers}"))
    if (again := scenario.recompute.layers) is not None and again > max(counts):
        raise UserError(fault(where, "recompute.layers", again, f"a chunk has at most {max(counts)}"))
    mtp = tuple(range(layers, layers + spec.num_nextn_predict_layers * scenario.model.mtp))
    found, first = [], 0
    for i, count in enumerate(counts):
        last = i == stages - 1
        found.append(Stage(tuple(range(first, first + count)), i == 0, last, mtp if last else ()))
        first += count
    return tuple(found)


def _even(scenario: TrainScenario, spec: ModelSpec, stages: int, where: str) -> list[int]:
    """As even as can be; with `embedding_as_layer` the first and last stage have one less."""
    layers, extra = spec.num_hidden_layers, 2 * scenario.parallel.embedding_as_layer
    if layers + extra < stages:
        vpp, pp = scenario.schedule.vpp, scenario.parallel.pp
        key, value = ("parallel.pp", pp) if vpp is None else ("schedule.vpp", vpp)
        allowed = f"{stages} stages; at most {layers + extra} for the layers of {spec.name}"
        raise UserError(fault(where, key, value, allowed))
    counts = [(layers + extra) // stages + (i < (layers + extra) % stages) for i in range(stages)]
    if extra:
        counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
    return counts
