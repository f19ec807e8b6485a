"""Schedules with controllable memory (arXiv 2405.15362): a pattern that repeats every six slots, pressed together.

Two chunks in a V, all six passes one slot long: chunk 0 F, chunk 1 F, chunk 1 I, chunk 0 I at given slots of each rank,
six later for the next micro-batch, and W in the first free slot after its I. Where the pattern begins and ends, slots
stay empty; there a greedy shift to the left fills them, never above the peak memory of the pattern:

    1  shift head and tail, W too            the stable part between them stays: it has no gaps
    2  run it without machine (unit times), forget W
    3  shift the tail again, F and I only    W go to the first free slots that are left

The same order as `megatron/core/pipeline_parallel/zerobubble/scheduler/zbv_greedy.py` of
sail-sg/zero-bubble-pipeline-parallelism; only if m is so small that nothing is stable, all is head or tail here.

             first slots of F0, F1, I1, I0 on rank r        c, so that no two meet
    V-Half   2r, 3p-r-2, 3p+c+2r-1, 6p+c-r-2                3 if p is even, else 0
    V-Min    r, 2p-r-1, 2p+c+r, 4p+c-r-1                    2 if p is divisible by 3, else 0

V-Half takes about half of 1F1B's activations and half of its bubble, V-Min a third and two thirds.
"""

from collections.abc import Callable, Sequence

from .dry_run import dry_run
from .grid import FORWARD, INPUT, WEIGHT, Action, Grid

PERIOD = 6
F0, F1, I1, I0, W = range(5)  # the passes of a rank: kind and chunk; W of both chunks in the order of their I
Slots = list[list[int]]  # of one rank: for each pass the slot per micro-batch (for W per I)
Event = tuple[int, int, int, int]  # slot, rank, pass, micro-batch

_CHUNK_AND_KIND = ((0, FORWARD), (1, FORWARD), (1, INPUT), (0, INPUT))


def unroll(name: str, pattern: Sequence[Sequence[int]], microbatches: int) -> Grid:
    """The schedule of a stable pattern: per rank the first slots of F0, F1, I1 and I0."""
    slots = [[[first + PERIOD * k for k in range(microbatches)] for first in rank] for rank in pattern]
    slots = [[*rank, weight_slots(rank)] for rank in slots]
    cap = max(map(_peak, slots))
    _shift(slots, cap, _outside_stable(slots), _peak)
    slots = _squeezed(_grid(name, slots, microbatches))
    last = _last_launch(slots)
    _shift(slots, cap, lambda event: event > last, lambda rank: _peak([*rank, weight_slots(rank)]))
    return _grid(name, [[*rank, weight_slots(rank)] for rank in slots], microbatches)


def weight_slots(rank: Slots) -> list[int]:
    """The first free slot after each I, first come, first served."""
    busy, inputs = {slot for slots in rank for slot in slots}, sorted(rank[I1] + rank[I0])
    slot, found = 0, []
    for after in inputs:
        slot = max(slot, after) + 1
        while slot in busy:
            slot += 1
        found.append(slot)
    return found


def _peak(rank: Slots) -> int:
    """Most chunk activations held: from the slot of F to the slot of W."""
    held = most = 0
    weights = iter(sorted(rank[W]))
    end = next(weights)
    for slot in sorted(rank[F0] + rank[F1]):
        while end < slot:
            held, end = held - 1, next(weights)
        held += 1
        most = max(most, held)
    return most


def _outside_stable(slots: list[Slots]) -> Callable[[Event], bool]:
    """Stable: from rank 0's first I of chunk 0 to its last F of chunk 0."""
    first, last = (slots[0][I0][0], 0, I0, 0), _last_launch(slots)
    return lambda event: not first <= event <= last


def _last_launch(slots: list[Slots]) -> Event:
    return slots[0][F0][-1], 0, F0, len(slots[0][F0]) - 1


def _shift(slots: list[Slots], cap: int, movable: Callable[[Event], bool], peak: Callable[[Slots], int]) -> None:
    """Move each movable pass, earliest first, to the first free slot after what it needs at which `peak` <= `cap`."""
    busy = [{slot for of_pass in rank for slot in of_pass} for rank in slots]
    events = sorted(
        (slot, rank, which, k)
        for rank, passes in enumerate(slots)
        for which, of_pass in enumerate(passes)
        for k, slot in enumerate(of_pass)
    )
    for event in filter(movable, events):
        slot, rank, which, k = event
        of_pass = slots[rank][which]
        for earlier in range(_ready(slots, rank, which, k), slot):
            if earlier in busy[rank]:
                continue
            of_pass[k] = earlier
            if peak(slots[rank]) <= cap:
                busy[rank] ^= {earlier, slot}
                break
            of_pass[k] = slot


def _ready(slots: list[Slots], rank: int, which: int, k: int) -> int:
    """The first slot after all that a pass needs; passes of a kind and chunk keep their order."""
    own, before = slots[rank], [slots[rank][which][k - 1]] if k else []
    if which == W:
        before.append(sorted(own[I1] + own[I0])[k])
    elif which != F0:
        before.append(own[which - 1][k])
    neighbour = rank - 1 if which in (F0, I1) else rank + 1
    if which != W and 0 <= neighbour < len(slots):
        before.append(slots[neighbour][which][k])
    return 1 + max(before, default=-1)


def _squeezed(grid: Grid) -> list[Slots]:
    """The slots of F and I when every rank runs its order as early as it can."""
    start, last = dry_run(grid, dict.fromkeys("FIW", 1.0)).start, grid.stages - 1
    return [
        [
            [int(start[Action((rank, last - rank)[chunk], kind, k)]) for k in range(grid.microbatches)]
            for chunk, kind in _CHUNK_AND_KIND
        ]
        for rank in range(grid.ranks)
    ]


def _grid(name: str, slots: list[Slots], microbatches: int) -> Grid:
    rows = tuple(tuple((action,) for action in _row(rank, of_rank, len(slots))) for rank, of_rank in enumerate(slots))
    return Grid(name, rows, 2 * len(slots), microbatches)


def _row(rank: int, slots: Slots, ranks: int) -> list[Action]:
    stages = (rank, 2 * ranks - 1 - rank)
    at = {
        slot: Action(stages[chunk], kind, k)
        for (chunk, kind), of_pass in zip(_CHUNK_AND_KIND, slots, strict=False)
        for k, slot in enumerate(of_pass)
    }
    inputs = [at[slot] for slot in sorted(slots[I1] + slots[I0])]
    at |= {slot: action._replace(kind=WEIGHT) for slot, action in zip(slots[W], inputs, strict=True)}
    return [at[slot] for slot in sorted(at)]


def v_half(pipeline_ranks: int, microbatches: int) -> Grid:
    """The stable pattern above, pressed together (see `stable`)."""
    p, c = pipeline_ranks, 0 if pipeline_ranks % 2 else 3
    pattern = [(2 * r, 3 * p - r - 2, 3 * p + c + 2 * r - 1, 6 * p + c - r - 2) for r in range(p)]
    return unroll("v-half", pattern, microbatches)


def v_min(pipeline_ranks: int, microbatches: int) -> Grid:
    """The stable pattern above, pressed together (see `stable`)."""
    p, c = pipeline_ranks, 0 if pipeline_ranks % 3 else 2
    pattern = [(r, 2 * p - r - 1, 2 * p + c + r, 4 * p + c - r - 1) for r in range(p)]
    return unroll("v-min", pattern, microbatches)
