"""GPipe (arXiv 1811.06965): per rank nF nB.

All forwards, then all backwards: the simplest order, and every micro-batch's activations at once.
"""

import numpy as np

from .grid import BACKWARD, FORWARD, Grid, passes, weave


def gpipe(pipeline_ranks: int, microbatches: int) -> Grid:
    """mF, mB on each rank, micro-batches in order both times."""
    each = np.arange(microbatches)
    rows = tuple(
        weave(passes(FORWARD, rank, each), passes(BACKWARD, rank, each), microbatches) for rank in range(pipeline_ranks)
    )
    return Grid("gpipe", rows, pipeline_ranks, microbatches)
