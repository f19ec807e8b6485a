"""GPipe (arXiv 1811.06965): per rank nF nB.

All forwards, then all backwards: the simplest order, and every micro-batch's activations at once.
"""

from .grid import BACKWARD, FORWARD, Action, Grid


def gpipe(pipeline_ranks: int, microbatches: int) -> Grid:
    """mF, mB on each rank, micro-batches in order both times."""
    rows = tuple(
        tuple((Action(rank, kind, k),) for kind in (FORWARD, BACKWARD) for k in range(microbatches))
        for rank in range(pipeline_ranks)
    )
    return Grid("gpipe", rows, pipeline_ranks, microbatches)
