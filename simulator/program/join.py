"""Several Programs as one: each keeps its places, and a collective whose ranks lie in several of them is one op.

Programs must agree on the collectives that they share: the n-th op of a kind over a group is the same op in each.

A run may also add copies of ops to its Program, at the tail of their lanes (`add_copies`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Ints
from .program import Program
from .ragged import Ragged

_Key = tuple[str, tuple[int, ...], int]


def join(programs: Sequence[Program], *, share: bool = True) -> tuple[Program, tuple[Ints, ...]]:
    """All Programs as one, and for each of them the number that every op has there.

    With `share`, a collective over ranks of several Programs is one op, which waits for what any of them waits for;
    without, each Program keeps its own.
    """
    if len(programs) == 1:
        return programs[0], (np.arange(len(programs[0])),)
    numbers = _numbers(programs, share)
    return _Join(programs, numbers).program(), numbers


def _numbers(programs: Sequence[Program], share: bool) -> tuple[Ints, ...]:
    """Ops are numbered Program by Program; a shared one keeps the number that its first Program gave it."""
    known: dict[_Key, int] = {}
    found, count = [], 0
    for program in programs:
        common = _common(program) if share else {}
        own = np.full(len(program), -1)
        own[list(common)] = [known.get(key, -1) for key in common.values()]
        fresh = own < 0
        own[fresh] = np.arange(count, count + fresh.sum())
        count += int(fresh.sum())
        known |= {key: int(own[op]) for op, key in common.items()}
        found.append(own)
    return tuple(found)


def _common(program: Program) -> dict[int, _Key]:
    """Collectives with ranks of other Programs: the kind, the group, and the how many-th of these it is."""
    here = {rank for place in program.places for rank in place.ranks}
    wide = np.array([not here.issuperset(group) for group in program.groups], bool)
    times: dict[tuple[str, tuple[int, ...]], int] = {}
    found: dict[int, _Key] = {}
    for op in np.flatnonzero(wide[program.group]).tolist():
        key = program.kind_of(op), program.groups[program.group[op]]
        times[key] = times.get(key, -1) + 1
        found[op] = (*key, times[key])
    return found


class _Join:
    """One Program in the making: `numbers` say which op each op of the others becomes."""

    def __init__(self, programs: Sequence[Program], numbers: Sequence[Ints]):
        self.programs, self.numbers = programs, numbers
        self.count = 1 + max(int(own.max(initial=-1)) for own in numbers)
        self.owner, self.op = np.empty((2, self.count), np.int64)  # of each op, the first Program that has it
        for i, own in reversed(list(enumerate(numbers))):
            self.owner[own], self.op[own] = i, np.arange(len(own))

    def program(self) -> Program:
        """The joined Program."""
        programs = self.programs
        places, buffers, accesses, pools = (self._offsets(of) for of in ("places", "buffers", "access_table", "pools"))
        return Program(
            places=tuple(chain.from_iterable(one.places for one in programs)),
            lanes=tuple(self._moved("lanes", "place", places)),
            buffers=tuple(self._moved("buffers", "place", places)),
            pools=tuple(self._moved("pools", "place", places)),
            access_table=tuple(self._moved("access_table", "buffer", buffers)),
            names=_Names([one.names for one in programs], self.owner, self.op),  # type: ignore[arg-type]
            bytes=self._column([one.bytes for one in programs]),
            root=self._column([one.root for one in programs]),
            shape=self._rows([one.shape for one in programs], [0] * len(programs)),
            accesses=self._rows([one.accesses for one in programs], accesses),
            acquires=self._rows([one.acquires for one in programs], pools),
            releases=self._rows([one.releases for one in programs], pools),
            deps=self._deps(),
            order=self._order(),
            tags={tag: self._column([one.tags[tag] for one in programs]) for tag in programs[0].tags},
            **self._coded("kind", "kinds"), **self._coded("dtype", "dtypes"), **self._coded("group", "groups"),
        )  # fmt: skip

    def _offsets(self, table: str) -> list[int]:
        """The offset of each Program's entries in a joined table."""
        return [0, *accumulate(len(getattr(one, table)) for one in self.programs)][:-1]

    def _moved(self, table: str, field: str, offsets: Sequence[int]) -> Iterable[Any]:
        """Entries of all tables, with a field that counts on from the Programs before."""
        for one, by in zip(self.programs, offsets, strict=True):
            yield from (entry._replace(**{field: getattr(entry, field) + by}) for entry in getattr(one, table))

    def _column(self, columns: Sequence[Ints]) -> Ints:
        found = np.empty(self.count, np.int64)
        for own, column in reversed(list(zip(self.numbers, columns, strict=True))):
            found[own] = column
        return found

    def _coded(self, column: str, table: str) -> dict[str, Any]:
        """A column and its table, where equal entries of several tables are one."""
        merged = {entry: i for i, entry in enumerate(dict.fromkeys(chain(*(getattr(p, table) for p in self.programs))))}
        codes = [
            np.array([merged[entry] for entry in getattr(one, table)], np.int64)[getattr(one, column)]
            for one in self.programs
        ]
        return {column: self._column(codes), table: tuple(merged)}

    def _rows(self, rows: Sequence[Ragged], offsets: Sequence[int]) -> Ragged:
        """Rows of ops; a shared op has those of its first Program."""
        parts = []
        for i, (own, one, by) in enumerate(zip(self.numbers, rows, offsets, strict=True)):
            row = own[one.row_of_value()]
            mine = self.owner[row] == i
            parts.append((row[mine], one.values[mine] + by))
        return _grouped(parts, self.count)

    def _deps(self) -> Ragged:
        """A shared op waits for what it waits for in any Program."""
        pairs = zip(self.numbers, (one.deps for one in self.programs), strict=True)
        return _grouped([(own[deps.row_of_value()], own[deps.values]) for own, deps in pairs], self.count)

    def _order(self) -> Ragged:
        orders = [one.order for one in self.programs]
        starts = [0, *accumulate(len(order.values) for order in orders)]
        begin = [order.start[:-1] + by for order, by in zip(orders, starts, strict=False)]
        values = [own[order.values] for own, order in zip(self.numbers, orders, strict=True)]
        return Ragged(np.concatenate([*begin, starts[-1:]]), np.concatenate(values))


def _grouped(parts: Sequence[tuple[Ints, Ints]], rows: int) -> Ragged:
    row, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows))))
    return Ragged(start, value[np.argsort(row, kind="stable")])


class _Names(Sequence[str]):
    """Names of ops by the Program that each is from, made when asked for."""

    def __init__(self, names: Sequence[Sequence[str]], owner: Ints, op: Ints):
        self._names, self._owner, self._op = names, owner, op

    def __len__(self) -> int:
        return len(self._op)

    @overload
    def __getitem__(self, op: int) -> str: ...
    @overload
    def __getitem__(self, op: slice) -> tuple[str, ...]: ...

    def __getitem__(self, op: int | slice) -> str | tuple[str, ...]:
        if isinstance(op, slice):
            return tuple(self[i] for i in range(*op.indices(len(self))))
        return self._names[self._owner[op]][int(self._op[op])]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(len(self))


@dataclass(frozen=True)
class Copy:
    """A copy of op `like` on the same lanes, after the ops `after`."""

    like: int
    after: tuple[int, ...]
    name: str


def add_copies(program: Program, copies: Sequence[Copy]) -> Program:
    """The Program with copies appended, numbered after its own ops in their order."""
    if not copies:
        return program
    like = np.array([copy.like for copy in copies], np.int64)
    numbers = np.concatenate([np.arange(len(program)), like])
    return replace(
        program,
        names=(*program.names, *(copy.name for copy in copies)),
        kind=program.kind[numbers],
        bytes=program.bytes[numbers],
        dtype=program.dtype[numbers],
        group=program.group[numbers],
        root=program.root[numbers],
        shape=_appended(program.shape, like),
        accesses=_appended(program.accesses, like),
        acquires=_appended(program.acquires, like),
        releases=_appended(program.releases, like),
        deps=Ragged.build([*program.deps, *(copy.after for copy in copies)]),
        order=_extended(program, like),
        tags=_tags(program.tags, numbers),
    )


def _appended(rows: Ragged, like: NDArray[np.int64]) -> Ragged:
    return Ragged.build([*rows, *(rows[row] for row in like)])


def _extended(program: Program, like: NDArray[np.int64]) -> Ragged:
    """Every copy at the tail of the lanes of its original."""
    orders = [order.tolist() for order in program.order]
    for number, original in enumerate(like, start=len(program)):
        for lane in program.lanes_of[original].tolist():
            orders[lane].append(number)
    return Ragged.build(orders)


def _tags(tags: Mapping[str, NDArray[np.int64]], numbers: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    return {name: values[numbers] for name, values in tags.items()}
