"""Measured samples: one table with one row per sample, read from our own files and from published tables."""

from .read import own_samples, read_samples, read_table
from .table import KEYS, Samples, checked, features_of, joined, summed, to_csv

__all__ = [
    "KEYS", "Samples", "checked", "features_of", "joined", "own_samples", "read_samples", "read_table", "summed",
    "to_csv",
]  # fmt: skip
