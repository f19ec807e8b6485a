"""Predictions beside measurements: every row of a table predicted, and how far off each group of rows is."""

from .hold import check_predicted, hold_against
from .ledger import UpdateLedger, read_ledger
from .rows import KINDS, predict_samples, validate_samples
from .steps import StepLedger, read_step_ledger
from .steps.gate import Comparison
from .summary import errors_by, scores
from .text import lines
from .validation import Validation, check_outputs, validate

__all__ = [
    "KINDS",
    "Comparison",
    "StepLedger",
    "UpdateLedger",
    "Validation",
    "check_outputs",
    "check_predicted",
    "errors_by",
    "hold_against",
    "lines",
    "predict_samples",
    "read_ledger",
    "read_step_ledger",
    "scores",
    "validate",
    "validate_samples",
]
