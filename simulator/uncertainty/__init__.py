"""The uncertainty of a prediction: its error model, and intervals to first order and by Monte Carlo.

docs/uncertainty.md explains the model.
"""

from .draws import Draws, draw
from .errors import DOUBLING, Errors, Interval, errors_of_costs, path_interval, size_error, size_notes
from .factors import Fit, Term, factor_covariance, shipped_fit
from .memory import MemoryErrors, fit_probability, memory_interval, shipped_memory_errors

__all__ = [
           "DOUBLING",
           "Draws",
           "Errors",
           "Fit",
           "Interval",
           "MemoryErrors",
           "Term",
           "draw",
           "errors_of_costs",
           "factor_covariance",
           "fit_probability",
           "memory_interval",
           "path_interval",
           "shipped_fit",
           "shipped_memory_errors",
           "size_error",
           "size_notes",
]  # fmt: skip
