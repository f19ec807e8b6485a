"""What a set of repeated times says: median, spread, and whether the spread is wide."""

import statistics
from collections.abc import Sequence

WIDE, VERY_WIDE = 0.10, 0.25
"""Spreads from which a set is called wide and very wide, as torch.utils.benchmark has it."""


def median(samples: Sequence[float]) -> float:
    """Half of the samples are smaller."""
    return statistics.median(samples)


def quantile(samples: Sequence[float], share: float) -> float:
    """The value below which this share of the samples lies, linear between samples."""
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over median; 0 for a single sample."""
    middle = median(samples)
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle if middle else 0.0


def wide(samples: Sequence[float]) -> str:
    """`wide`, `very wide`, or nothing."""
    found = spread(samples)
    return "very wide" if found > VERY_WIDE else "wide" if found > WIDE else ""
