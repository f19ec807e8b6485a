"""Packed sequences: how far tokens see in documents of unequal length, and how much longer the slowest rank takes.

Attention to a document of l tokens takes l squared / 2 pairs, so a token sees E[l^2] / E[l] / 2 others on average.
Ranks have equally many tokens but other documents; where they meet, all wait for the one with most pairs.
"""

from dataclasses import dataclass
from math import exp, log1p, sqrt
from statistics import NormalDist

from ..lengths import Lengths
from .scenario import Batch


@dataclass(frozen=True)
class Packing:
    """The length of equal documents with as many pairs as the real ones, and how many more the slowest rank has."""

    length: float = 0.0
    slowest: float = 1.0


def packing_of(batch: Batch, replicas: int, microbatches: int) -> Packing | None:
    """What packing does to attention, if `replicas` meet behind so many micro-batches; None without documents.

    The pairs of a rank vary as those of a sample of its documents do (ratio estimator: Cochran, Sampling Techniques,
    chapter 6), taken as lognormal since few documents have many pairs; the slowest of many ranks is as far out as the
    largest of as many normal numbers (Blom 1958).
    """
    if batch.documents is None:
        return None
    lengths = lengths_of(batch)
    mean, square, cube, fourth = map(lengths.moment, (1, 2, 3, 4))
    length = square / mean
    documents = batch.micro * batch.seq_len * microbatches / mean
    variance = max(fourth - 2 * length * cube + length**2 * square, 0.0) / square**2 / documents
    out, deviation = NormalDist().inv_cdf((replicas - 0.375) / (replicas + 0.25)), sqrt(log1p(variance))
    slowest = exp(out * deviation - deviation**2 / 2) if replicas > 1 else 1.0
    return Packing(length, min(max(slowest, 1.0), batch.seq_len / length))


def lengths_of(batch: Batch) -> Lengths:
    """The lengths of documents; those longer than a sequence are cut."""
    assert batch.documents is not None
    mean, p99 = batch.documents.mean, batch.documents.p99
    if p99 is None:
        return Lengths.constant(min(round(mean), batch.seq_len))
    return Lengths.lognormal(mean, p99, most=batch.seq_len)
