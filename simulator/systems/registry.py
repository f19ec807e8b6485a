"""The systems by the `kind` of scenario files: a line for each."""

from collections.abc import Mapping
from typing import Any

from ..base.memo import Memo
from .rl_cycle.resolve import ResolvedCycle
from .rl_cycle.scenario import CycleScenario
from .rl_cycle.system import SYSTEM as RL_CYCLE
from .rl_cycle.system import CyclePrediction
from .system import System
from .train_step.resolve import ResolvedTrain
from .train_step.scenario import TrainScenario
from .train_step.system import SYSTEM as TRAIN_STEP
from .train_step.system import TrainPrediction
from .weight_update.resolve import Resolved
from .weight_update.scenario import Scenario
from .weight_update.system import SYSTEM as WEIGHT_UPDATE
from .weight_update.system import Prediction

SYSTEMS: Mapping[str, System] = {system.kind: system for system in (WEIGHT_UPDATE, TRAIN_STEP, RL_CYCLE)}

AnyScenario = Scenario | CycleScenario | TrainScenario
"""A checked scenario of any kind."""

AnyResolved = Resolved | ResolvedCycle | ResolvedTrain
"""A resolved scenario of any kind."""

AnyPrediction = Prediction | CyclePrediction | TrainPrediction


def resolve(scenario: AnyScenario, where: str = "scenario", memo: Memo | None = None) -> AnyResolved:
    """The resolved scenario; what does not fit is found when its parts, such as `hash`, are first used."""
    found: AnyResolved = SYSTEMS[scenario.kind].resolve(scenario, where, memo or Memo())
    return found


def system_of(table: Mapping[str, Any]) -> System:
    """The system of a scenario's table; weight updates if its kind is not known."""
    kind = table.get("kind")
    return SYSTEMS.get(kind, WEIGHT_UPDATE) if isinstance(kind, str) else WEIGHT_UPDATE
