"""Pipeline schedules as data: build a Grid, check it, print it, read it back, run it without a machine."""

from .catalogue import SCHEDULES, Schedule, build
from .check import DeadlockError, faults, validate, walk
from .dry_run import Dry, chart, dry_run, peaks
from .grid import Action, Cell, Grid, Row, needs
from .own import load_grid, read_grid

__all__ = [
    "SCHEDULES", "Action", "Cell", "DeadlockError", "Dry", "Grid", "Row", "Schedule", "build", "chart", "dry_run",
    "faults", "load_grid", "needs", "peaks", "read_grid", "validate", "walk",
]  # fmt: skip
