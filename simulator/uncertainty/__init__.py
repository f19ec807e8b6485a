"""How sure a prediction is: what it may be off by, to first order and by many draws (docs/uncertainty.md)."""

from .draws import Draws, draw, monte_carlo
from .errors import Errors, errors_of, of_spreads
from .factors import Fit, factor_covariance, shipped_fit
from .first_order import Interval, answered_s, interval, of_path
from .size import size_error, size_notes
from .terms import Term, terms_of

__all__ = ["Draws", "Errors", "Fit", "Interval", "Term", "answered_s", "draw", "errors_of", "factor_covariance",
           "interval", "monte_carlo", "of_path", "of_spreads", "shipped_fit", "size_error",
           "size_notes", "terms_of"]  # fmt: skip
