"""Predict: scenario -> Program -> costs -> simulated Timeline -> Report. Imports no torch, no dash.

The public names below load on first use, so that `import runcast.simulator` and `runcast --help` stay fast.
"""

from importlib import import_module
from typing import Any

if "." not in __name__:
    raise ImportError("import runcast.simulator, not simulator: a bare import gives different classes")

from .old_names import keep_old_names

_PUBLIC = {
    "CyclePrediction": ".systems.rl_cycle.system",
    "CycleReport": ".systems.rl_cycle.report",
    "CycleScenario": ".systems.rl_cycle.scenario",
    "Prediction": ".systems.weight_update.system",
    "Report": ".systems.weight_update.report",
    "RunPrediction": ".systems.run.system",
    "RunReport": ".systems.run.report",
    "RunScenario": ".systems.run.scenario",
    "Scenario": ".systems.weight_update.scenario",
    "TrainPrediction": ".systems.train_step.system",
    "TrainReport": ".systems.train_step.report",
    "TrainScenario": ".systems.train_step.scenario",
    "UserError": ".base.errors",
    "load_scenario": ".scenario",
    "simulate": ".predict",
}
__all__ = sorted(_PUBLIC)

keep_old_names()


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
