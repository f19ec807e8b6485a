"""Pipeline schedules as data: build a Grid, check it, print it, read it back, run it without a machine."""

from .catalogue import SCHEDULES, Schedule, build
from .check import faults, validate
from .dry_run import Dry, chart, dry_run, peaks
from .grid import Action, Cell, Grid, Row, needs
from .order import DeadlockError, walk

__all__ = [
    "SCHEDULES", "Action", "Cell", "DeadlockError", "Dry", "Grid", "Row", "Schedule", "build", "chart", "dry_run",
    "faults", "needs", "peaks", "validate", "walk",
]  # fmt: skip
