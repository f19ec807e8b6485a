"""ZB-H2, ZB2P (arXiv 2401.10241): ZB-H1 with twice the warm-up, w = min(2(p-r-1), m), and W(k) after I(k+2r).

No rank idles between its first and last action if F = I = W, for 2p-1 activations. The ranks start staggered, so the
optimizer must not wait for all of them if one step is to gain from the next.
"""

from .grid import Grid
from .zb_h1 import zero_bubble


def zb_h2(pipeline_ranks: int, microbatches: int) -> Grid:
    """Warm-up 2(p-r-1); W(k) after I(k+2r)."""
    return zero_bubble("zb-h2", pipeline_ranks, microbatches, depth=2)
