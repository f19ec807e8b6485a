"""The uncertainty of a prediction: its error model, and intervals to first order and by Monte Carlo.

docs/uncertainty.md explains the model.
"""

from .budget import KINDS, Budget, Difference, budget_line, difference, ratio_deviation
from .draws import Draws, draw
from .errors import (
    CRITICAL,
    DOUBLING,
    Errors,
    Interval,
    chain_intervals,
    errors_of_costs,
    latest,
    path_budget,
    path_interval,
    size_error,
    size_notes,
)
from .factors import Fit, PhaseErrors, Term, kin_of, part_of, phase_errors, shipped_fit
from .memory import MemoryErrors, fit_probability, memory_interval, shipped_memory_errors

__all__ = [
    "CRITICAL",
    "DOUBLING",
    "KINDS",
    "Budget",
    "Difference",
    "Draws",
    "Errors",
    "Fit",
    "Interval",
    "MemoryErrors",
    "PhaseErrors",
    "Term",
    "budget_line",
    "chain_intervals",
    "difference",
    "draw",
    "errors_of_costs",
    "fit_probability",
    "kin_of",
    "latest",
    "memory_interval",
    "part_of",
    "path_budget",
    "path_interval",
    "phase_errors",
    "ratio_deviation",
    "shipped_fit",
    "shipped_memory_errors",
    "size_error",
    "size_notes",
]  # fmt: skip
