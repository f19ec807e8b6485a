"""The engine: a costed Program in, a Timeline out. Nothing outside this folder knows simulated time."""

from .engine import Engine, Process, simulate
from .sharing import fair_speeds
from .waiting import DeadlockError

__all__ = ["DeadlockError", "Engine", "Process", "fair_speeds", "simulate"]
