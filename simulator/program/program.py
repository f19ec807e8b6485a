"""The Program: plain data that says what happens, not how long it takes.

Ops are rows of columns (one array per field). An op runs on lanes, waits for other ops, reads and writes buffers, and
may hold slots of pools. Lanes run their ops strictly in order, like CUDA streams. Costs live elsewhere; so do clocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Ints
from .ragged import Ragged

MEMORIES = ("device", "host")
COLUMNS = (
    "kind", "name", "bytes", "shape", "dtype", "group", "root", "after", "reads", "writes", "acquires", "releases"
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One rank, or several ranks that act alike and are simulated once (their number is the multiplicity)."""

    name: str
    ranks: tuple[int, ...]


class Lane(NamedTuple):
    """An ordered queue at a place: `compute`, `h2d`, `comm`, a host thread."""

    place: int
    name: str


class Buffer(NamedTuple):
    """Memory at a place: on each of its ranks `bytes` bytes of `memory`, from its first access until its last."""

    name: str
    place: int
    bytes: int
    memory: str = "device"


class Pool(NamedTuple):
    """A number of slots at a place, such as the two halves of a shared buffer."""

    name: str
    place: int
    slots: int


class Access(NamedTuple):
    """A byte range of a buffer that an op reads or writes."""

    buffer: int
    offset: int
    bytes: int
    write: bool


@dataclass(frozen=True, eq=False)
class Program:
    """Ops as columns; every array has one entry (or one ragged row) per op unless it says otherwise.

    `kind`, `dtype` and `group` index the tables `kinds`, `dtypes` and `groups`; `root` is a rank of the world or -1;
    `shape` holds what its kind defines (for `reload` the number of tensors, for a GEMM m, n, k); `tags` are small
    integers such as bucket or micro-batch, -1 where an op has none. `order[lane]` lists the ops of each lane in the
    order in which it runs them. `acquires` and `releases` name pools: slots are taken when the op starts and given
    back when the releasing op ends.
    """

    places: tuple[Place, ...]
    lanes: tuple[Lane, ...]
    buffers: Sequence[Buffer]
    pools: tuple[Pool, ...]
    kinds: tuple[str, ...]
    dtypes: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    kind: NDArray[np.int64]
    bytes: NDArray[np.int64]
    shape: Ragged
    dtype: NDArray[np.int64]
    group: NDArray[np.int64]
    root: NDArray[np.int64]
    deps: Ragged
    accesses: Ragged
    access_table: Sequence[Access]
    acquires: Ragged
    releases: Ragged
    order: Ragged
    tags: Mapping[str, NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and all(
            _same(getattr(self, field), getattr(other, field)) for field in self.__dataclass_fields__
        )

    @cached_property
    def lanes_of(self) -> Ragged:
        """The lanes that each op holds, ascending."""
        return self.order.transpose(len(self))

    @cached_property
    def ranks(self) -> int:
        """Number of ranks in the world: the highest rank of any place, plus one."""
        return 1 + max((rank for place in self.places for rank in place.ranks), default=-1)

    def kind_of(self, op: int) -> str:
        """The kind of one op by name."""
        return self.kinds[self.kind[op]]

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        """Mask of the ops of the given kinds."""
        mask = np.zeros(len(self.kind), np.bool_)
        for number, kind in enumerate(self.kinds):
            if kind in kinds:
                mask |= self.kind == number
        return mask

    def lane_name(self, lane: int) -> str:
        """`place.lane`, unique within a Program."""
        return f"{self.places[self.lanes[lane].place].name}.{self.lanes[lane].name}"

    def places_of(self, op: int) -> list[int]:
        """The distinct places whose lanes the op holds, ascending."""
        return sorted({self.lanes[lane].place for lane in self.lanes_of[op]})

    def ranks_of(self, op: int) -> list[int]:
        """The ranks on which the op runs, ascending."""
        return sorted({rank for place in self.places_of(op) for rank in self.places[place].ranks})

    def only_at(self, places: Sequence[int]) -> NDArray[np.bool_]:
        """Mask of the ops that run at these places and nowhere else."""
        place = np.array([lane.place for lane in self.lanes], np.int64)[self.lanes_of.values]
        inside = np.isin(place, list(places))
        return np.bincount(self.lanes_of.row_of_value()[~inside], minlength=len(self)) == 0


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and np.array_equal(a, b)
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b)


def edges(program: Program) -> tuple[Ints, Ints]:
    """Pairs (before, after) of ops: dependencies first, then neighbours on a lane."""
    lanes, deps = program.order, program.deps
    behind = np.ones(len(lanes.values), bool)
    behind[lanes.start[:-1][lanes.start[:-1] < len(behind)]] = False  # the first op of each lane
    before = np.concatenate([deps.values, lanes.values[:-1][behind[1:]]])
    return before, np.concatenate([deps.row_of_value(), lanes.values[behind]])


def may_overlap(program: Program, chain: Ints) -> NDArray[np.bool_]:
    """Mask of the ops that may run beside some op of `chain`, whose ops follow each other in this order.

    An op cannot, if for some number n it starts after the first n ops of the chain have ended, and ends before the
    next one starts. Where ops are not numbered in the order in which they wait, all may.
    """
    before, after = edges(program)
    if (before >= after).any():
        return np.ones(len(program), bool)
    number = np.full(len(program), -1, np.int64)
    number[chain] = np.arange(len(chain))
    ended = _furthest(before, after, (number + 1).tolist())
    still = _furthest(len(program) - 1 - after, len(program) - 1 - before, _from_end(number, len(chain)))
    return np.array(ended) + np.array(still[::-1]) < len(chain)


def _from_end(number: Ints, length: int) -> list[int]:
    """For each op of a chain, the number of ops from its start to the chain's end; all ops in reverse."""
    found: list[int] = np.where(number >= 0, length - number, 0)[::-1].tolist()
    return found


def _furthest(before: Ints, after: Ints, own: list[int]) -> list[int]:
    """Per op the largest of `own` over all ops that come before it, directly or not."""
    reached = [0] * len(own)
    order = np.argsort(after, kind="stable")
    for a, b in zip(before[order].tolist(), after[order].tolist(), strict=True):
        through = own[a] if own[a] > reached[a] else reached[a]
        if through > reached[b]:
            reached[b] = through
    return reached
