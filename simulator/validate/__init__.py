"""Predictions beside measurements: every row of a table predicted, and how far off each group of rows is."""

from .kinds import KINDS, validate_samples
from .rows import predict_samples
from .summary import errors_by, scores

__all__ = ["KINDS", "errors_by", "predict_samples", "scores", "validate_samples"]
