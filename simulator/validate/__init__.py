"""Predictions beside measurements: every row of a table predicted, and how far off each group of rows is."""

from .kinds import KINDS, validate_samples
from .rows import predict_samples
from .summary import errors_by, scores
from .text import lines
from .validation import Validation, check_outputs, validate

__all__ = [
    "KINDS",
    "Validation",
    "check_outputs",
    "errors_by",
    "lines",
    "predict_samples",
    "scores",
    "validate",
    "validate_samples",
]
