"""A Program whose broadcasts are the messages of their trees: a rank goes on when its own part has ended.

One op of all ranks ends with its last message. But the root of a tree has sent before the last ranks receive, so it may
begin the next broadcast meanwhile; and each message is a connection, which has its own share of a crowded link (TCP).
Ranks execute the Program as it was; this one is simulated where a stack says that its library sends along trees.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ..program import Access, Program, ProgramBuilder
from .trees import children

EXECUTED = "executed_op"
"""A tag: the number of the op, or of a message's broadcast, in the Program that is executed."""


def relay(program: Program) -> Program:
    """The Program with each broadcast as the messages of its tree, where every rank has a place of its own.

    Lanes run ops in the order of their numbers. A message holds a lane of the broadcast at its receiver, and one of
    its own at its sender. Limit: the first message takes and gives back the slots of pools, as messages of a root share
    its links and so end together.
    """
    writer = _Relay(program)
    for op in range(len(program)):
        if writer.is_tree(op):
            writer.send(op)
        else:
            writer.keep(op)
    return writer.builder.build()


class _Relay:
    """One Program in the making."""

    def __init__(self, program: Program):
        self.program, self.builder = program, ProgramBuilder()
        self._home = {rank: number for number, place in enumerate(program.places) for rank in place.ranks}
        self._number: dict[int, int] = {}  # of each op that stays one
        self._messages: dict[int, dict[int, list[int]]] = {}  # of each broadcast by place: those it receives and sends
        self._last: dict[int, int] = {}  # op of each lane
        self._sent: dict[int, list[int]] = defaultdict(list)  # messages for whose end the next op of a lane waits
        for place in program.places:
            self.builder.place(place.name, place.ranks)
        for lane in program.lanes:
            self.builder.lane(*lane)
        for buffer in program.buffers:
            self.builder.buffer(*buffer)
        for pool in program.pools:
            self.builder.pool(*pool)

    def is_tree(self, op: int) -> bool:
        """Whether an op is a broadcast of ranks that each have a place."""
        program = self.program
        alone = all(len(program.places[place].ranks) == 1 for place in program.places_of(op))
        return program.kind_of(op) == "broadcast" and alone and len(self._ranks(op)) > 1

    def keep(self, op: int) -> None:
        """Write an op as it is; of a broadcast it waits for the messages at its own places."""
        program, lanes = self.program, self.program.lanes_of[op].tolist()
        after = [*self._before(op, program.places_of(op)), *chain(*(self._sent.pop(lane, ()) for lane in lanes))]
        self._number[op] = number = self._write(
            op, lanes, after, self._accesses(op), group=program.groups[program.group[op]], root=int(program.root[op]),
            tags=self._tags(op), **self._slots(op),
        )  # fmt: skip
        self._last |= dict.fromkeys(lanes, number)

    def send(self, op: int) -> None:
        """Write a broadcast as the messages of its tree, level by level."""
        program, ranks = self.program, self._ranks(op)
        first, many = ranks.index(int(program.root[op])), len(ranks)
        ranks = (*ranks[first:], *ranks[:first])
        lane_at = {program.lanes[lane].place: lane for lane in program.lanes_of[op].tolist()}
        lane = [lane_at[self._home[rank]] for rank in ranks]
        at: dict[int, list[int]] = defaultdict(list)
        ready = {0: [*self._before(op, program.places_of(op)), *self._free(lane[0])]}
        slots, tags = self._slots(op), self._tags(op)
        for v in (reached := [0]):
            for child in children(v, many):
                sender, receiver = self._home[ranks[v]], self._home[ranks[child]]
                out = self.builder.lane(sender, f"{program.lanes[lane[v]].name} to r{ranks[child]}")
                message = self._write(
                    op, [out, lane[child]], [*ready[v], *self._sent.pop(lane[child], ())],
                    [one for one in self._accesses(op) if self._place_of(one) == (receiver if one.write else sender)],
                    group=(ranks[v], ranks[child]), root=ranks[v], tags=tags, **slots,
                )  # fmt: skip
                slots, ready[child] = {}, [message]
                self._last[lane[child]] = message
                at[sender].append(message)
                at[receiver].append(message)
                reached.append(child)
        self._messages[op] = at
        for v in range(many):
            self._sent[lane[v]] += at[self._home[ranks[v]]]

    def _write(
        self, op: int, lanes: Sequence[int], after: Sequence[int], accesses: Sequence[Access], **own: Any
    ) -> int:
        """Write a copy of an op, with what is its own."""
        program, dtype = self.program, self.program.dtypes[self.program.dtype[op]]
        return self.builder.op(
            program.kind_of(op), lanes, list(dict.fromkeys(after)), name=program.names[op],
            size_bytes=int(program.bytes[op]), shape=program.shape[op].tolist(), dtype=dtype,
            reads=[one[:3] for one in accesses if not one.write], writes=[one[:3] for one in accesses if one.write],
            **own,
        )  # fmt: skip

    def _ranks(self, op: int) -> tuple[int, ...]:
        return self.program.groups[self.program.group[op]] or tuple(self.program.ranks_of(op))

    def _tags(self, op: int) -> dict[str, int]:
        return {tag: int(values[op]) for tag, values in self.program.tags.items()} | {EXECUTED: op}

    def _slots(self, op: int) -> dict[str, list[int]]:
        return {"acquires": self.program.acquires[op].tolist(), "releases": self.program.releases[op].tolist()}

    def _accesses(self, op: int) -> list[Access]:
        return [self.program.access_table[access] for access in self.program.accesses[op].tolist()]

    def _place_of(self, access: Access) -> int:
        return self.program.buffers[access.buffer].place

    def _free(self, lane: int) -> list[int]:
        """The ops after which a lane is free."""
        return [*self._sent.pop(lane, ()), *([self._last[lane]] if lane in self._last else [])]

    def _before(self, op: int, places: Sequence[int]) -> Iterable[int]:
        """The dependencies of an op at these places."""
        for before in self.program.deps[op].tolist():
            if before in self._number:
                yield self._number[before]
                continue
            messages = self._messages[before]
            here = [place for place in places if place in messages]
            yield from (message for place in here or messages for message in messages[place])
