"""1F1B, PipeDream-Flush (arXiv 2006.09503, 2104.04473): per rank wF, (m-w) x [F B], wB with w = min(p-r-1, m).

A rank runs ahead by the forwards that are on their way to the last rank and back, and no further.
"""

import numpy as np

from .grid import BACKWARD, FORWARD, Grid, passes, weave


def one_f_one_b(pipeline_ranks: int, microbatches: int) -> Grid:
    """Warm-up, one forward and one backward in turn, rest of the backwards."""
    each = np.arange(microbatches)
    rows = tuple(
        weave(passes(FORWARD, rank, each), passes(BACKWARD, rank, each), pipeline_ranks - rank - 1)
        for rank in range(pipeline_ranks)
    )
    return Grid("1f1b", rows, pipeline_ranks, microbatches)
