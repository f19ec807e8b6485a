"""All systems, by the `kind` of their scenario files. A new system adds an import here and its name to SYSTEMS."""

from collections.abc import Mapping
from typing import Any

from ..base.memo import Memo
from .machines import ResolvedScenario
from .rl_cycle.system import SYSTEM as RL_CYCLE
from .run.system import SYSTEM as RUN
from .system import System, SystemPrediction
from .tables import OnCluster
from .train_step.system import SYSTEM as TRAIN_STEP
from .weight_update.system import SYSTEM as WEIGHT_UPDATE

SYSTEMS: Mapping[str, System] = {system.kind: system for system in (WEIGHT_UPDATE, TRAIN_STEP, RL_CYCLE, RUN)}

# A scenario of any kind: checked, resolved, predicted.
AnyScenario = OnCluster
AnyResolved = ResolvedScenario
AnyPrediction = SystemPrediction


def resolve(scenario: AnyScenario, where: str = "scenario", memo: Memo | None = None) -> AnyResolved:
    """Resolve a checked scenario. Its parts, such as `hash`, are computed on first use and may then raise UserError."""
    found: AnyResolved = SYSTEMS[scenario.kind].resolve(scenario, where, memo or Memo())
    return found


def system_of(table: Mapping[str, Any]) -> System:
    """The system of a scenario table; weight updates if the table has no known `kind`."""
    kind = table.get("kind")
    return SYSTEMS.get(kind, WEIGHT_UPDATE) if isinstance(kind, str) else WEIGHT_UPDATE
