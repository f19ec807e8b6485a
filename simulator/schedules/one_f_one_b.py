"""1F1B, PipeDream-Flush (arXiv 2006.09503, 2104.04473): per rank wF, (m-w) x [F B], wB with w = min(p-r-1, m).

A rank runs ahead by the forwards that are on their way to the last rank and back, and no further.

GPipe (arXiv 1811.06965) is the case w = m: all forwards, then all backwards. It is the simplest order, and holds every
micro-batch's activations at once.
"""

import numpy as np

from .grid import BACKWARD, FORWARD, Grid, Row, passes, weave


def one_f_one_b(pipeline_ranks: int, microbatches: int) -> Grid:
    """Warm-up, one forward and one backward in turn, rest of the backwards."""
    rows = tuple(_row(rank, pipeline_ranks - rank - 1, microbatches) for rank in range(pipeline_ranks))
    return Grid("1f1b", rows, pipeline_ranks, microbatches)


def gpipe(pipeline_ranks: int, microbatches: int) -> Grid:
    """mF, mB on each rank, micro-batches in order both times."""
    rows = tuple(_row(rank, microbatches, microbatches) for rank in range(pipeline_ranks))
    return Grid("gpipe", rows, pipeline_ranks, microbatches)


def _row(rank: int, warmup: int, microbatches: int) -> Row:
    each = np.arange(microbatches)
    return weave(passes(FORWARD, rank, each), passes(BACKWARD, rank, each), warmup)
