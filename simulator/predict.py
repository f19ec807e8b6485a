"""The Python API of `runcast simulate`: a scenario in, a prediction out."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from .base.memo import Memo
from .scenario import Changes, Given, check_question, open_table, resolve
from .systems.registry import SYSTEMS, AnyPrediction, AnyResolved, AnyScenario
from .systems.tables import Table

if TYPE_CHECKING:  # a system is imported when it is asked for
    from .systems.rl_cycle.scenario import CycleScenario
    from .systems.rl_cycle.system import CyclePrediction
    from .systems.run.scenario import RunScenario
    from .systems.run.system import RunPrediction
    from .systems.train_step.scenario import TrainScenario
    from .systems.train_step.system import TrainPrediction
    from .systems.weight_update.scenario import Scenario
    from .systems.weight_update.system import Prediction

__all__ = [
    "AnyPrediction", "CyclePrediction", "Prediction", "RunPrediction", "TrainPrediction", "predict", "simulate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The prediction of a system, such as `TrainPrediction`: a public name of the package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(__package__), name)


@overload
def simulate(
    scenario: "Scenario", changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> "Prediction": ...
@overload
def simulate(
    scenario: "CycleScenario", changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> "CyclePrediction": ...
@overload
def simulate(
    scenario: "TrainScenario", changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> "TrainPrediction": ...
@overload
def simulate(
    scenario: "RunScenario", changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> "RunPrediction": ...
@overload
def simulate(
    scenario: AnyScenario | Given, changes: Sequence[str] | Changes = (), memo: Memo | None = None, where: str = ...
) -> AnyPrediction: ...


def simulate(
    scenario: AnyScenario | Given,
    changes: Sequence[str] | Changes = (),
    memo: Memo | None = None,
    where: str = "scenario",
) -> AnyPrediction:
    """Predict a scenario: a checked one; or a file, the name of a shipped one or a table, with changes.

    For a checked scenario, `where` is the path that errors name and to which paths in the scenario are relative.
    Predictions with the same `memo` share profiles, clusters and coarse Programs of training steps.

    Raises:
        UserError: the scenario contains something that is not allowed; one line per error.
    """
    if not isinstance(scenario, Table):
        table, where = open_table(scenario, changes)
        scenario = check_question(table, where)
    return predict(resolve(scenario, where, memo or Memo()))


def predict(resolved: AnyResolved) -> AnyPrediction:
    """Predict a scenario that is already resolved (for its hash, say). Raises UserError as `simulate` does."""
    found: AnyPrediction = SYSTEMS[resolved.scenario.kind].predict(resolved)
    return found
