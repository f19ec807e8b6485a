"""ZB-V (arXiv 2405.15362; sail-sg/zero-bubble-pipeline-parallelism): per rank F I W F I W ... over two chunks in a V.

Rank r holds stages r and 2p-1-r, so a micro-batch's loss is on the rank where it began. The order is list scheduling in
simulated time under a cap of 2p chunk activations, what 1F1B holds on its first rank. Whenever a rank is free:

    kind   I after F, W after I, F after W, or the next of that cycle that is ready; without forwards left I, then W
    F      chunk 1 first; chunk 0 at most 2(p-r)-1 ahead of chunk 1, the round trip to the loss; never above the cap
    I      chunk 0 first
    W      in the order of their I

If F = I = W and m >= 2p, no rank idles between its first and last action.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from .grid import FORWARD, INPUT, WEIGHT, Action, Grid, needs

_NEXT = {FORWARD: (INPUT, WEIGHT, FORWARD), INPUT: (WEIGHT, FORWARD, INPUT), WEIGHT: (FORWARD, INPUT, WEIGHT)}
_FIRST_CHUNK = {FORWARD: (1, 0), INPUT: (0, 1)}


@dataclass
class _Rank:
    """One rank while its row is written."""

    stages: tuple[int, int]  # of chunk 0 and chunk 1
    ahead: int  # most forwards of chunk 0 before chunk 1's
    row: list[Action] = field(default_factory=list)
    queue: deque[Action] = field(default_factory=deque)  # weight gradients to come
    count: dict[tuple[str, int], int] = field(default_factory=lambda: {(k, c): 0 for k in "FI" for c in (0, 1)})
    held: int = 0
    free: float = 0.0

    def may_forward(self, chunk: int, cap: int) -> bool:
        """Whether memory and the round trip allow one more."""
        return self.held < cap and (chunk == 1 or self.count["F", 0] - self.count["F", 1] < self.ahead)

    def run(self, action: Action, chunk: int) -> None:
        """Append the action and count it."""
        self.row.append(action)
        if action.kind == WEIGHT:
            self.queue.popleft()
            self.held -= 1
            return
        self.count[action.kind, chunk] += 1
        if action.kind == INPUT:
            self.queue.append(action._replace(kind=WEIGHT))
        else:
            self.held += 1


class _Scheduler:
    """List scheduling: the earliest free rank takes what `_choose` says, and wakes its neighbours when it ends."""

    def __init__(self, pipeline_ranks: int, microbatches: int, seconds: Mapping[str, float], cap: int) -> None:
        p = pipeline_ranks
        self.microbatches, self.seconds, self.cap = microbatches, seconds, cap
        self.ranks = [_Rank((r, 2 * p - 1 - r), 2 * (p - r) - 1) for r in range(p)]
        self.shape = _empty(p, microbatches)
        self.end: dict[Action, float] = {}

    def rows(self) -> list[list[Action]]:
        """Run to the end."""
        heap = [(0.0, rank) for rank in range(len(self.ranks))]
        heapify(heap)
        while heap:
            now, index = heappop(heap)
            rank = self.ranks[index]
            if rank.free > now or (chosen := self._choose(rank, now)) is None:
                continue
            rank.run(*chosen)
            self.end[chosen[0]] = rank.free = now + self.seconds[chosen[0].kind]
            for other in range(max(index - 1, 0), min(index + 2, len(self.ranks))):
                heappush(heap, (max(rank.free, self.ranks[other].free), other))
        return [rank.row for rank in self.ranks]

    def _choose(self, rank: _Rank, now: float) -> tuple[Action, int] | None:
        forwards_left = rank.count["F", 0] + rank.count["F", 1] < 2 * self.microbatches
        kinds = _NEXT[rank.row[-1].kind if rank.row else WEIGHT] if forwards_left else (INPUT, WEIGHT)
        for kind in kinds:
            if kind == WEIGHT and rank.queue:
                return rank.queue[0], 0
            for chunk in _FIRST_CHUNK.get(kind, ()):
                action = Action(rank.stages[chunk], kind, rank.count[kind, chunk])
                if self._ready(action, now) and (kind == INPUT or rank.may_forward(chunk, self.cap)):
                    return action, chunk
        return None

    def _ready(self, action: Action, now: float) -> bool:
        left = action.microbatch < self.microbatches
        return left and all(self.end.get(need, float("inf")) <= now for need in needs(self.shape, action))


def zb_v(pipeline_ranks: int, microbatches: int, seconds: Mapping[str, float] | None = None) -> Grid:
    """`seconds` of F, I and W of a chunk decide the order (equal if not given); only their ratios matter."""
    scheduler = _Scheduler(pipeline_ranks, microbatches, seconds or {"F": 1.0, "I": 1.0, "W": 1.0}, 2 * pipeline_ranks)
    rows = tuple(tuple((action,) for action in row) for row in scheduler.rows())
    return Grid("zb-v", rows, 2 * pipeline_ranks, microbatches)


def _empty(pipeline_ranks: int, microbatches: int) -> Grid:
    """No rows yet, all backwards split: enough for `needs`."""
    inputs = ((Action(s, INPUT, k),) for s in range(2 * pipeline_ranks) for k in range(microbatches))
    return Grid("", (tuple(inputs),), 2 * pipeline_ranks, microbatches)
