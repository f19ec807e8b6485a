"""The uncertainty of a prediction: its error model, and intervals to first order and by Monte Carlo.

docs/uncertainty.md explains the model.
"""

from .draws import Draws, draw
from .errors import Errors, Interval, path_interval, size_error, size_notes, spread_errors
from .factors import Fit, Term, factor_covariance, shipped_fit

__all__ = [
           "Draws",
           "Errors",
           "Fit",
           "Interval",
           "Term",
           "draw",
           "factor_covariance",
           "path_interval",
           "shipped_fit",
           "size_error",
           "size_notes",
           "spread_errors",
]  # fmt: skip
