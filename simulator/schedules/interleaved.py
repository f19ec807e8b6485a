"""Interleaved 1F1B (arXiv 2104.04473) as Megatron-LM orders it, with one extra warm-up for overlap, and pairs.

    table    = for each group of g micro-batches: for chunk 0..v-1: for micro-batch of the group      n = m v entries
    F[k]     = forward of table[k];   B[k] = backward of table[k] with chunk v-1-c
    w(r)     = min(2(p-r-1) + (v-1)g + x, n)
    order(r) = w x F[k], (n-w) x (F[w+k], B[k]), w x B[k]

With x = 1 no forward feeds the backward beside it, so the two may be one overlapped step; with x = 0 such pairs would
deadlock, since the last rank pairs both passes of the same micro-batch and chunk. On one rank with v = 1 and pairs this
is F; (F|B) ...; B. Source of the order: get_pp_rank_microbatches and get_schedule_table of Megatron-LM,
megatron/core/pipeline_parallel/schedules.py at d98e8a64dd.
"""

from .grid import BACKWARD, FORWARD, Action, Grid, Row

Entry = tuple[int, int]  # (micro-batch, chunk)


def interleaved(
    pipeline_ranks: int,
    microbatches: int,
    chunks: int = 1,
    group: int | None = None,
    extra_warmup: int = 0,
    overlap: bool = False,
) -> Grid:
    """Each rank holds stages r, r+p, ...; `group` is g (p if not given), `extra_warmup` is x, `overlap` makes pairs."""
    table = schedule_table(microbatches, chunks, group or pipeline_ranks)
    rows = []
    for rank in range(pipeline_ranks):
        ahead = warmup(rank, pipeline_ranks, chunks, group or pipeline_ranks, extra_warmup)
        rows.append(_row(rank, pipeline_ranks, table, chunks, ahead, overlap))
    name = "interleaved-overlap" if overlap else "interleaved"
    return Grid(name, tuple(rows), pipeline_ranks * chunks, microbatches)


def schedule_table(microbatches: int, chunks: int, group: int) -> list[Entry]:
    """Groups of micro-batches go through one chunk after another; the last group may be smaller or ragged."""
    return [
        (microbatch, chunk)
        for first in range(0, microbatches, group)
        for chunk in range(chunks)
        for microbatch in range(first, min(first + group, microbatches))
    ]


def warmup(rank: int, pipeline_ranks: int, chunks: int, group: int, extra: int) -> int:
    """w(r) before it is cut at n."""
    return 2 * (pipeline_ranks - rank - 1) + (chunks - 1) * group + extra


def _row(rank: int, pipeline_ranks: int, table: list[Entry], chunks: int, ahead: int, overlap: bool) -> Row:
    forward = [Action(rank + chunk * pipeline_ranks, FORWARD, k) for k, chunk in table]
    backward = [Action(rank + (chunks - 1 - chunk) * pipeline_ranks, BACKWARD, k) for k, chunk in table]
    first = min(ahead, len(table))
    row: list[tuple[Action, ...]] = [(action,) for action in forward[:first]]
    for pair in zip(forward[first:], backward, strict=False):
        row += [pair] if overlap else [(action,) for action in pair]
    row += [(action,) for action in backward[len(table) - first :]]
    return tuple(row)
