"""Measured samples: one table with one row per sample, read from our own files and from published tables."""

from .read import RECORDS, own_samples, read_samples, read_table
from .table import KEYS, OF_ALGORITHM, Samples, features_of, join_samples, sound_samples, summarize, to_csv

__all__ = [
    "KEYS", "OF_ALGORITHM", "RECORDS", "Samples", "features_of", "join_samples", "own_samples", "read_samples",
    "read_table", "sound_samples", "summarize", "to_csv",
]  # fmt: skip
