"""From a checked scenario of any kind to what its names stand for."""

from ..memo import Memo
from .cycle import CycleScenario
from .resolve import Resolved
from .resolve_cycle import ResolvedCycle
from .resolve_train import ResolvedTrain
from .schemas import AnyScenario
from .training import TrainScenario

AnyResolved = Resolved | ResolvedCycle | ResolvedTrain


def resolve(scenario: AnyScenario, where: str = "scenario", memo: Memo | None = None) -> AnyResolved:
    """The scenario resolved; what does not fit is found when its parts are first asked for, such as its `hash`."""
    shared = memo or Memo()
    if isinstance(scenario, TrainScenario):
        return ResolvedTrain(scenario, where, shared)
    if isinstance(scenario, CycleScenario):
        return ResolvedCycle(scenario, where, shared)
    return Resolved(scenario, where, shared)
