"""V-Half (arXiv 2405.15362): F0, F1, I1, I0 of rank r first at slots 2r, 3p-r-2, 3p+c+2r-1, 6p+c-r-2, then every six.

c = 3 if p is even, else 0, so that no two meet. Half of 1F1B's activations and half of its bubble, about.
"""

from .grid import Grid
from .stable import unroll


def v_half(pipeline_ranks: int, microbatches: int) -> Grid:
    """The stable pattern above, pressed together (see `stable`)."""
    p, c = pipeline_ranks, 0 if pipeline_ranks % 2 else 3
    pattern = [(2 * r, 3 * p - r - 2, 3 * p + c + 2 * r - 1, 6 * p + c - r - 2) for r in range(p)]
    return unroll("v-half", pattern, microbatches)
