"""Sweeps: all points of a grid around one scenario, predicted by many processes and kept on disk."""

from .axes import Axis, Grid, Step
from .columns import flat_columns
from .engines import Engine, InProcess, Pool
from .load import load_sweep
from .plan import Sweep
from .point import Outcome, Point, Work, evaluate
from .results import Results
from .run import Progress, Swept, run_sweep
from .store import Store

__all__ = [
    "Axis", "Engine", "Grid", "InProcess", "Outcome", "Point", "Pool", "Progress", "Results", "Step", "Store", "Sweep",
    "Swept", "Work", "evaluate", "flat_columns", "load_sweep", "run_sweep",
]  # fmt: skip
