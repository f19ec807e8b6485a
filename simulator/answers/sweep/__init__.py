"""Sweeps: all points of a grid around one scenario, predicted by many processes and kept on disk."""

from .columns import flat_columns
from .grid import Axis, Grid, Step
from .load import load_sweep
from .plan import Outcome, Point, Sweep, Work
from .results import Results
from .run import Progress, Swept, run_sweep
from .store import Store

__all__ = [
    "Axis", "Grid", "Outcome", "Point", "Progress", "Results", "Step", "Store", "Sweep", "Swept", "Work",
    "flat_columns", "load_sweep", "run_sweep",
]  # fmt: skip
