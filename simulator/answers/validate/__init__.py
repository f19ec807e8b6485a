"""Predictions beside measurements: every row of a table predicted, and how far off each group of rows is."""

from .samples import KINDS, Validation, predict_samples, score_samples, validate
from .scores import scores_by
from .steps import StepLedger, read_step_ledger
from .updates import UpdateLedger, read_ledger

__all__ = [
    "KINDS", "StepLedger", "UpdateLedger", "Validation", "predict_samples", "read_ledger", "read_step_ledger",
    "score_samples", "scores_by", "validate",
]  # fmt: skip
