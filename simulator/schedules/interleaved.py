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

import numpy as np

from ..base.arrays import Ints
from .grid import BACKWARD, FORWARD, Grid, passes, weave


def interleaved(
    pipeline_ranks: int,
    microbatches: int,
    chunks: int = 1,
    group: int | None = None,
    extra_warmup: int = 0,
    overlap: bool = False,
) -> Grid:
    """Each rank holds stages r, r+p, ...; `group` is g (p if not given), `extra_warmup` is x, `overlap` makes pairs."""
    microbatch, chunk = schedule_table(microbatches, chunks, group or pipeline_ranks)
    rows = tuple(
        weave(
            passes(FORWARD, rank + chunk * pipeline_ranks, microbatch),
            passes(BACKWARD, rank + (chunks - 1 - chunk) * pipeline_ranks, microbatch),
            warmup(rank, pipeline_ranks, chunks, group or pipeline_ranks, extra_warmup),
            overlap,
        )
        for rank in range(pipeline_ranks)
    )
    return Grid("interleaved-overlap" if overlap else "interleaved", rows, pipeline_ranks * chunks, microbatches)


def schedule_table(microbatches: int, chunks: int, group: int) -> tuple[Ints, Ints]:
    """Micro-batch and chunk of each entry: groups of micro-batches go through one chunk after another; the last group
    may be smaller or ragged.
    """
    microbatch, chunk = np.arange(microbatches)[None, :], np.arange(chunks)[:, None]
    order = np.argsort((microbatch // group * chunks + chunk) * group + microbatch % group, axis=None)
    return order % microbatches, order // microbatches


def warmup(rank: int, pipeline_ranks: int, chunks: int, group: int, extra: int) -> int:
    """w(r) before it is cut at n."""
    return 2 * (pipeline_ranks - rank - 1) + (chunks - 1) * group + extra
