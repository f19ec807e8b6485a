"""V-Min (arXiv 2405.15362): F0, F1, I1, I0 of rank r first at slots r, 2p-r-1, 2p+c+r, 4p+c-r-1, then every six.

c = 2 if p is divisible by 3, else 0, so that no two meet. A third of 1F1B's activations, two thirds of its bubble.
"""

from .grid import Grid
from .stable import unroll


def v_min(pipeline_ranks: int, microbatches: int) -> Grid:
    """The stable pattern above, pressed together (see `stable`)."""
    p, c = pipeline_ranks, 0 if pipeline_ranks % 3 else 2
    pattern = [(r, 2 * p - r - 1, 2 * p + c + r, 4 * p + c - r - 1) for r in range(p)]
    return unroll("v-min", pattern, microbatches)
