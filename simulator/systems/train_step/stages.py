"""The layers of each pipeline stage: as the scenario says, or split as evenly as possible."""

from ...base.errors import UserError, fault
from ...models import ModelSpec
from .lower import Stage
from .scenario import TrainScenario


def split_layers(scenario: TrainScenario, spec: ModelSpec, stages: int, where: str) -> tuple[Stage, ...]:
    """The layers of each stage in model order: as given, else even with fuller first stages; MTP layers on the last.

    Raises:
        UserError: the given layers do not sum to the model's, or there are more stages than layers.
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
    """Split layers as evenly as possible; with `embedding_as_layer` the first and last stage have one layer less."""
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
