"""1F1B, PipeDream-Flush (arXiv 2006.09503, 2104.04473): per rank wF, (m-w) x [F B], wB with w = min(p-r-1, m).

A rank runs ahead by the forwards that are on their way to the last rank and back, and no further.
"""

from .grid import BACKWARD, FORWARD, Action, Grid, Row


def one_f_one_b(pipeline_ranks: int, microbatches: int) -> Grid:
    """Warm-up, one forward and one backward in turn, rest of the backwards."""
    rows = tuple(_row(rank, pipeline_ranks - rank - 1, microbatches) for rank in range(pipeline_ranks))
    return Grid("1f1b", rows, pipeline_ranks, microbatches)


def _row(stage: int, ahead: int, microbatches: int) -> Row:
    warmup = min(ahead, microbatches)
    row = [(Action(stage, FORWARD, k),) for k in range(warmup)]
    for k in range(microbatches - warmup):
        row += [(Action(stage, FORWARD, warmup + k),), (Action(stage, BACKWARD, k),)]
    row += [(Action(stage, BACKWARD, k),) for k in range(microbatches - warmup, microbatches)]
    return tuple(row)
