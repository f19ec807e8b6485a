"""From samples to a Profile: coefficients, curves, ranges, and errors on what the fit has not seen."""

from .fit import fit_model
from .profile import Origin, fit_profile

__all__ = ["Origin", "fit_model", "fit_profile"]
