"""What one rank does of each op: its part. Found before anything runs, with every reason why a Program cannot run.

Rules for an op that waits for another one, seen from a rank that has a part in it:

1. The rank has a part in the other op too: it waits for the end of that part, on its own clock.
2. The other op runs on ranks that have a part in the waiting op too: the waiting op is a gang, where each member waits
   for its own and nobody's part can end before it has the data of the others. Of all that the other op waited for in
   its turn, this rank waits for what it did itself (such as allocating the buffer that will receive).
3. The other op runs on further ranks: they send a signal when their parts end, and this rank waits for the signals,
   and again for what it did itself before (its part in a gang that the other op waited for).

Pools turn into the same kind of waiting: slots are given out in the order of the ops, so with n slots the k-th op that
takes one waits for the (k - n)-th that gives one back.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from ...simulator.base.errors import UserError
from ...simulator.program import Program


@dataclass(frozen=True)
class Part:
    """One rank's part in an op: the lanes it holds there, what it waits for, and whether other ranks wait for it."""

    op: int
    lanes: tuple[int, ...]
    after: tuple[int, ...]
    signals: tuple[tuple[int, int], ...]  # (op, rank) on other ranks
    signalled: bool


@dataclass(frozen=True)
class Parts:
    """The parts of every rank of an unfolded Program."""

    program: Program

    @cached_property
    def ranks(self) -> list[list[int]]:
        """Per op, the ranks that have a part in it."""
        return [self.program.ranks_of(op) for op in range(len(self.program))]

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """Per op, the ops whose end it waits for: its dependencies, and those that give back its pool slots."""
        waits, pools = [dict.fromkeys(row.tolist()) for row in self.program.deps], self.program.pools
        taken, given = (slots.transpose(len(pools)) for slots in (self.program.acquires, self.program.releases))
        for pool, takers, givers in zip(pools, taken, given, strict=True):
            for waiting, other in zip(takers[pool.slots :].tolist(), givers.tolist(), strict=False):
                waits[waiting][other] = None
        return [list(row) for row in waits]

    @cached_property
    def previous(self) -> list[list[int]]:
        """Per op, its predecessors on its lanes."""
        rows: list[list[int]] = [[] for _ in range(len(self.program))]
        for order in self.program.order:
            for before, after in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
                rows[after].append(before)
        return rows

    def lanes(self, rank: int) -> dict[int, list[int]]:
        """The ops of each lane of a rank, in lane order."""
        at = [rank in self.program.places[lane.place].ranks for lane in self.program.lanes]
        return {lane: self.program.order[lane].tolist() for lane, here in enumerate(at) if here}

    def rank_parts(self, rank: int) -> dict[int, Part]:
        """The parts of one rank, by op."""
        lanes = set(self.lanes(rank))
        return {
            op: Part(
                op,
                tuple(lane for lane in self.program.lanes_of[op].tolist() if lane in lanes),
                tuple(dict.fromkeys(self._here(op, rank))),
                tuple(self._signals(op, rank)),
                (op, rank) in self._signalled,
            )
            for op, ranks in enumerate(self.ranks)
            if rank in ranks
        }

    def _here(self, op: int, rank: int) -> Iterator[int]:
        """The rank's own ops that its part of a given op waits for."""
        for other in self.predecessors[op]:
            if rank in self.ranks[other]:
                yield other
            else:
                yield from self._last_at(rank, other)

    def _last_at(self, rank: int, op: int) -> Iterator[int]:
        """The rank's last ops that must have ended before an op of other ranks starts."""
        seen, open_ = {op}, [op]
        while open_:
            one = open_.pop()
            for other in (*self.predecessors[one], *self.previous[one]):
                if rank in self.ranks[other]:
                    yield other
                elif other not in seen:
                    seen.add(other)
                    open_.append(other)

    @cached_property
    def _signalled(self) -> set[tuple[int, int]]:
        parts = ((op, rank) for op, ranks in enumerate(self.ranks) for rank in ranks)
        return {signal for part in parts for signal in self._signals(*part)}

    def _signals(self, op: int, rank: int) -> Iterator[tuple[int, int]]:
        for other in self.predecessors[op]:
            if rank not in self.ranks[other]:
                yield from ((other, there) for there in self.ranks[other] if there not in self.ranks[op])

    def check(self, kinds: Collection[str], where: str) -> "Parts":
        """Return the parts if they can run here.

        Raises:
            UserError: ranks are folded, a kind is unknown, or ops wait for each other in a circle.
        """
        if folded := [place.name for place in self.program.places if len(place.ranks) > 1]:
            raise UserError(f"{where}: cannot execute {folded[0]!r}: several ranks in one; unfold the scenario")
        if unknown := [kind for kind in self.program.kinds if kind not in kinds]:
            known = ", ".join(sorted(kinds))
            raise UserError(*(f"{where}: cannot execute ops of kind {kind!r}; supported: {known}" for kind in unknown))
        graph = {op: [*self.predecessors[op], *self.previous[op]] for op in range(len(self.program))}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            names = " -> ".join(self.program.names[op] for op in error.args[1])
            raise UserError(f"{where}: ops wait for each other in a circle: {names}") from None
        return self
