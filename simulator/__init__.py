"""Predict: scenario -> Program -> costs -> simulated Timeline -> Report. Imports no torch, no dash.

The public names below load on first use, so that `import runcast.simulator` and `runcast --help` stay fast.
"""

from importlib import import_module
from typing import Any

if "." not in __name__:
    raise ImportError("import runcast.simulator, not simulator: a bare import gives different classes")

_PUBLIC = {
    "CyclePrediction": ".predict",
    "CycleReport": ".cycle_report",
    "CycleScenario": ".scenario",
    "Prediction": ".predict",
    "Report": ".report",
    "Scenario": ".scenario",
    "TrainPrediction": ".predict",
    "TrainReport": ".train_report",
    "TrainScenario": ".scenario",
    "UserError": ".errors",
    "load_scenario": ".scenario",
    "simulate": ".predict",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
