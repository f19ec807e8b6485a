"""How sure a prediction is: what it may be off by, to first order and by many draws (docs/uncertainty.md)."""

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
