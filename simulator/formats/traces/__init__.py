"""Real runs as values: Kineto and Chrome traces as Timelines with a step's split, training logs as step times."""

from .kineto import OF_RUNS
from .read import SUFFIXES, read_run
from .run import Run

__all__ = ["OF_RUNS", "SUFFIXES", "Run", "read_run"]
