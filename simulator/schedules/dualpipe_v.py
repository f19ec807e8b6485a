"""DualPipeV, "cut in half" (hackmd.io/@ufotalent/r1lVXsa9Jg): DualPipe's lower half of ranks, alone.

What DualPipe's upper half does for the other direction, rank r does for its second chunk: the step table of `dualpipe`
with h = p, q = r, n = m, direction 0 = stage r and direction 1 = stage 2p-1-r of the same micro-batches. No parameter
exists twice. Needs m >= 2p.
"""

from .dualpipe import row
from .grid import Grid


def dualpipe_v(pipeline_ranks: int, microbatches: int) -> Grid:
    """Each rank holds stages r and 2p-1-r."""
    rows = tuple(
        row(pipeline_ranks, rank, microbatches, ((rank, 0), (2 * pipeline_ranks - 1 - rank, 0)))
        for rank in range(pipeline_ranks)
    )
    return Grid("dualpipe-v", rows, 2 * pipeline_ranks, microbatches)
