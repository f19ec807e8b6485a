"""ZB-H1, ZB1P (arXiv 2401.10241): per rank wF, (m-w) x [F I W(k-r)], then I W(k-r), rest of W, with w = min(p-r-1, m).

1F1B with the backward in two: a weight gradient has no one waiting for it, so W(k) comes as late as I(k+r), where it
fills the gap of the cool-down, and memory stays that of 1F1B's first rank.

ZB-H2, ZB2P, has twice the warm-up, w = min(2(p-r-1), m), and W(k) after I(k+2r). No rank idles between its first and
last action if F = I = W, for 2p-1 activations. The ranks start staggered, so the optimizer must not wait for all of
them if one step is to gain from the next.
"""

from .grid import FORWARD, INPUT, WEIGHT, Action, Grid, Row


def zb_h1(pipeline_ranks: int, microbatches: int) -> Grid:
    """Warm-up p-r-1; W(k) after I(k+r)."""
    return zero_bubble("zb-h1", pipeline_ranks, microbatches, depth=1)


def zero_bubble(name: str, pipeline_ranks: int, microbatches: int, depth: int) -> Grid:
    """Warm-up and delay of W on rank r are `depth` times p-r-1 and r."""
    rows = tuple(
        _row(rank, depth * (pipeline_ranks - rank - 1), depth * rank, microbatches) for rank in range(pipeline_ranks)
    )
    return Grid(name, rows, pipeline_ranks, microbatches)


def _row(stage: int, ahead: int, delay: int, microbatches: int) -> Row:
    warmup = min(ahead, microbatches)
    row = [Action(stage, FORWARD, k) for k in range(warmup)]
    for k in range(microbatches):
        if warmup + k < microbatches:
            row.append(Action(stage, FORWARD, warmup + k))
        row.append(Action(stage, INPUT, k))
        if k >= delay:
            row.append(Action(stage, WEIGHT, k - delay))
    row += [Action(stage, WEIGHT, k) for k in range(max(microbatches - delay, 0), microbatches)]
    return tuple((action,) for action in row)


def zb_h2(pipeline_ranks: int, microbatches: int) -> Grid:
    """Warm-up 2(p-r-1); W(k) after I(k+2r)."""
    return zero_bubble("zb-h2", pipeline_ranks, microbatches, depth=2)
