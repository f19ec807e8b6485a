"""The kinds of scenario by name: what a file of each may say."""

from collections.abc import Mapping

from .cycle import CycleScenario
from .schema import Scenario
from .training import TrainScenario

AnyScenario = Scenario | CycleScenario | TrainScenario
"""A checked scenario of any kind."""

SCHEMAS: Mapping[str, type[AnyScenario]] = {
    "weight_update": Scenario,
    "train_step": TrainScenario,
    "rl_cycle": CycleScenario,
}
