"""From samples to a Profile: coefficients, curves, ranges, and errors on what the fit has not seen."""

from .fit import fit_model
from .profile import Flags, fit_files

__all__ = ["Flags", "fit_files", "fit_model"]
