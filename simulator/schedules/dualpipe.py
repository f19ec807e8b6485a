"""DualPipe (deepseek-ai/DualPipe): micro-batches enter at both ends, forwards one way pair with backwards of the other.

With h = p/2, q = min(r, p-1-r), n micro-batches each way, 0 the way that enters at this half of the ranks and 1 the
other (I is a backward whose W waits in a queue, W the head of that queue):

    1  2(h-q-1)   x [F0]
    2  (q+1)      x [F0 F1]
    3  (h-q-1)    x [I1 W F1]
    4  (n-2h+q+1) x [F0&B1  F1&B0]      the middle rank runs its first F0 and B1 one after the other
    5  (h-q-1)    x [B1  F1&B0]
    6  (q+1)      x [B1 B0]             from iteration (q+1)//2 on I for B: before B1 if q is odd, after it if even
    7  (h-q-1)    x [W I0]
    8  (q+1)      x [W]

Rank r holds stages r and p-1-r, so parameters exist twice. Needs n >= 2h.

DualPipeV, "cut in half" (hackmd.io/@ufotalent/r1lVXsa9Jg), is DualPipe's lower half of ranks alone: what the upper half
does for the other direction, rank r does for its second chunk. The table holds with h = p, q = r, n = m, direction 0 =
stage r and direction 1 = stage 2p-1-r of the same micro-batches. No parameter exists twice. Needs m >= 2p.
"""

from collections.abc import Iterator
from itertools import count

from .grid import BACKWARD, FORWARD, INPUT, WEIGHT, Action, Grid, Row

Step = tuple[str, ...]  # "F0", or ("F0", "B1") that overlap: kind and direction; "W" is the head of the queue


def dualpipe(pipeline_ranks: int, microbatches: int) -> Grid:
    """Micro-batches 0..n-1 go from rank 0 up, n..2n-1 from the last rank down."""
    each, last = microbatches // 2, pipeline_ranks - 1
    rows = []
    for rank in range(pipeline_ranks):
        up, down = (rank, 0), (last - rank, each)  # (stage, first micro-batch)
        own = (up, down) if rank <= last - rank else (down, up)
        rows.append(row(pipeline_ranks // 2, min(rank, last - rank), each, own))
    return Grid("dualpipe", tuple(rows), pipeline_ranks, microbatches)


def row(half: int, q: int, each: int, directions: tuple[tuple[int, int], tuple[int, int]]) -> Row:
    """The step table with stages and micro-batches put in; a direction is its stage here and its first micro-batch."""
    numbers = {(kind, way): count(first) for kind in "FB" for way, (_, first) in enumerate(directions)}
    queue: list[Action] = []
    cells = []
    for step in steps(half, q, each):
        cell = tuple(queue.pop(0) if text == WEIGHT else _action(text, numbers, directions) for text in step)
        queue += [action._replace(kind=WEIGHT) for action in cell if action.kind == INPUT]
        cells.append(cell)
    return tuple(cells)


def steps(h: int, q: int, n: int) -> Iterator[Step]:
    """The eight phases above, in kinds and directions."""
    middle = q == h - 1
    yield from [("F0",)] * (2 * (h - q - 1))
    yield from [("F0",), ("F1",)] * (q + 1)
    yield from [("I1",), ("W",), ("F1",)] * (h - q - 1)
    main: list[Step] = [("F0", "B1"), ("F1", "B0")] * (n - 2 * h + q + 1)
    yield from [("F0",), ("B1",), *main[1:]] if middle else main
    yield from [("B1",), ("F1", "B0")] * (h - q - 1)
    backwards = 2 * (q + 1)
    whole = 2 * ((q + 1) // 2) + (1 - q % 2)
    yield from [(f"{BACKWARD if k < whole else INPUT}{1 - k % 2}",) for k in range(backwards)]
    yield from [("W",), ("I0",)] * (h - q - 1)
    yield from [("W",)] * (q + 1)


def _action(
    text: str, numbers: dict[tuple[str, int], "count[int]"], directions: tuple[tuple[int, int], tuple[int, int]]
) -> Action:
    kind, way = text[0], int(text[1])
    return Action(directions[way][0], kind, next(numbers[FORWARD if kind == FORWARD else BACKWARD, way]))


def dualpipe_v(pipeline_ranks: int, microbatches: int) -> Grid:
    """Each rank holds stages r and 2p-1-r."""
    rows = tuple(
        row(pipeline_ranks, rank, microbatches, ((rank, 0), (2 * pipeline_ranks - 1 - rank, 0)))
        for rank in range(pipeline_ranks)
    )
    return Grid("dualpipe-v", rows, 2 * pipeline_ranks, microbatches)
