"""Real runs as values: Kineto and Chrome traces as Timelines with a step's split, training logs as step times."""

from .read import SUFFIXES, read_run
from .run import Run

__all__ = ["SUFFIXES", "Run", "read_run"]
