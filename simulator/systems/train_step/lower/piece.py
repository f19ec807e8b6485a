"""A Piece: the ops of one action on one rank, numbered from 0, written once and stamped into a Program many times.

Everything in a piece is relative to where it is stamped: its ops hold one lane each, by its name at the place
(`compute`, `tp`, `ep`, …), groups are counted from the first rank of the place, and layers may be. What a piece waits
for and what waits for it are its `heads` and `tails`. Tables of names, groups and types are shared by all pieces.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....models.kernels import Kernel
from ....program import Ragged

COMPUTE, HOST, H2D, D2H = "compute", "host", "h2d", "d2h"
Ints = NDArray[np.int64]


class Table:
    """Distinct values in the order of their first use."""

    def __init__(self) -> None:
        self._index: dict[Any, int] = {}
        self.values: list[Any] = []

    def __call__(self, value: Any) -> int:
        """The index of a value."""
        index = self._index.get(value)
        if index is None:
            index = self._index[value] = len(self.values)
            self.values.append(value)
        return index


@dataclass(frozen=True)
class Tables:
    """What the integers in columns stand for."""

    kinds: Table = field(default_factory=Table)
    dtypes: Table = field(default_factory=Table)
    groups: Table = field(default_factory=Table)
    labels: Table = field(default_factory=Table)
    lanes: Table = field(default_factory=Table)


class LayerPass(NamedTuple):
    """One layer in an action, by ops: the first one, those that it ends with, the last one that uses its activations.

    In a backward that is the last weight gradient, which may be computed behind the layer's end.
    """

    layer: int
    first: int
    tails: tuple[int, ...]
    last: int

    def moved(self, ops: int, layers: int = 0) -> "LayerPass":
        """The same where ops, and layers, have numbers that are larger by so much."""
        return LayerPass(self.layer + layers, self.first + ops, tuple(op + ops for op in self.tails), self.last + ops)


@dataclass(frozen=True)
class Piece:
    """Columns as in a Program, one entry per op; `deps` number ops of the same piece.

    A piece is one action of a pipeline, or two that overlap, and `action` which of them an op is of: of each, `heads`
    wait for its input and `tails` are its output. `marks` are ops by name, for what hangs on to the middle of a piece:
    `("grads", layer)` behind which a layer's gradients are sent, `("weights", layer)` what first needs its weights.
    `ends` are what layers end with, last one first; `gathers` wait for ends of pieces before: op, and which one.
    `layers` are, of each action, its layers in the order in which they run.
    """

    kind: Ints
    label: Ints
    dtype: Ints
    group: Ints
    lane: Ints
    bytes: Ints
    layer: Ints
    action: Ints
    shape: Ragged
    deps: Ragged
    heads: tuple[tuple[int, ...], ...]
    tails: tuple[tuple[int, ...], ...]
    marks: dict[tuple[str, int], int]
    ends: tuple[tuple[int, ...], ...]
    gathers: tuple[tuple[int, int], ...]
    layers: tuple[tuple[LayerPass, ...], ...]

    def __len__(self) -> int:
        return len(self.kind)

    def marked(self, name: str) -> dict[int, int]:
        """The ops of a name, by layer."""
        return {layer: op for (of, layer), op in self.marks.items() if of == name}


class Row(NamedTuple):
    """What an op of a piece is, in words."""

    kind: str
    label: str
    dtype: str
    group: tuple[int, ...]
    lane: str
    bytes: int
    shape: tuple[int, ...]


class Fragment(NamedTuple):
    """A layer of an action as it is written behind others.

    `deps` and `tail` number its own ops, and -1 is what it waits for. `one` and `marks` are of its layer, `heads` wait
    for the input of an action that begins with it.
    """

    rows: list[Row]
    deps: list[tuple[int, ...]]
    tail: tuple[int, ...]
    heads: tuple[int, ...]
    one: LayerPass | None
    marks: dict[str, int]


BEHIND = -1
"""In a fragment, what it waits for."""


class PieceWriter:
    """Writes a piece in the order in which a host would issue its ops.

    Compute follows compute by its lane; `after` is what the next op on any lane waits for besides: a list of ops that
    every call takes and returns, so that branches are just two lists.
    """

    def __init__(self) -> None:
        self.layer, self.action = -1, 0
        self._rows: list[Row] = []
        self._of: list[tuple[int, int]] = []  # layer and action of each
        self._deps: list[tuple[int, ...]] = []
        self._marks: dict[tuple[str, int], int] = {}
        self._gathers: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def op(
        self,
        kind: str,
        lane: str,
        after: Iterable[int] = (),
        *,
        name: str = "",
        size_bytes: float = 0,
        shape: Sequence[int] = (),
        dtype: str = "",
        group: tuple[int, ...] = (),
    ) -> int:
        """One op; returns its number."""
        self._rows.append(Row(kind, name or kind, dtype, group, lane, round(size_bytes), tuple(shape)))
        self._of.append((self.layer, self.action))
        self._deps.append(tuple(dict.fromkeys(after)))
        return len(self._rows) - 1

    def append(self, fragment: Fragment, after: Sequence[int]) -> list[int]:
        """A layer as it was written before; returns its tail."""
        begin, waits = len(self._rows), tuple(after)
        self._rows += fragment.rows
        self._of += [(self.layer, self.action)] * len(fragment.rows)
        self._deps += [_moved(deps, begin, waits) for deps in fragment.deps]
        for name, op in fragment.marks.items():
            self.mark(name, begin + op)
        return list(_moved(fragment.tail, begin, waits))

    def fragment(self, tail: Sequence[int], heads: Sequence[int], one: LayerPass | None) -> Fragment:
        """What was written, all of it of one layer."""
        marks = {name: op for (name, _), op in self._marks.items()}
        return Fragment(self._rows, self._deps, tuple(tail), tuple(heads), one, marks)

    def compute(self, kernels: Iterable[Kernel], after: Sequence[int] = ()) -> list[int]:
        """Kernels in a row on the compute lane; only the first of them waits. Nothing to do: what was waited for."""
        done = list(after)
        waits = done
        for k in kernels:
            op = self.op(k.kind, COMPUTE, waits, name=k.name, size_bytes=k.bytes, shape=k.shape, dtype=k.dtype)
            waits, done = [], [op]
        return done

    def mark(self, name: str, op: int) -> None:
        """Give an op a name within its layer; the first to claim it stays."""
        self._marks.setdefault((name, self.layer), op)

    def wait_before(self, op: int, end: int) -> None:
        """An op waits for an end in the pieces before: 0 is the last one."""
        self._gathers.append((op, end))

    def reshape(self, op: int, shape: Sequence[int]) -> None:
        """Give an op its shape once it is known."""
        self._rows[op] = self._rows[op]._replace(shape=tuple(shape))

    def piece(
        self,
        tables: Tables,
        heads: Iterable[Sequence[int]],
        tails: Iterable[Sequence[int]],
        ends: Iterable[Sequence[int]] = (),
        layers: Iterable[Sequence[LayerPass]] = (),
    ) -> Piece:
        """What was written, with heads, tails and layers of each of its actions, and the ends of its layers."""
        number: dict[Row, int] = {}
        which = np.array([number.setdefault(row, len(number)) for row in self._rows], np.int64)
        names = tables.kinds, tables.labels, tables.dtypes, tables.groups, tables.lanes
        distinct = [[*(name(value) for name, value in zip(names, row, strict=False)), row.bytes] for row in number]
        kind, label, dtype, group, lane, size = np.array(distinct, np.int64).reshape(-1, 6).T[:, which]
        layer, action = np.array(self._of, np.int64).reshape(-1, 2).T
        return Piece(
            kind, label, dtype, group, lane, size, layer, action,
            Ragged.of([row.shape for row in self._rows]), Ragged.of(self._deps),
            tuple(map(tuple, heads)), tuple(map(tuple, tails)), self._marks,
            tuple(map(tuple, ends)), tuple(self._gathers), tuple(map(tuple, layers)),
        )  # fmt: skip


def _moved(ops: tuple[int, ...], by: int, behind: tuple[int, ...]) -> tuple[int, ...]:
    """Ops of a fragment as ops of a piece."""
    if BEHIND in ops:
        return tuple(dict.fromkeys(one for op in ops for one in (behind if op == BEHIND else (op + by,))))
    return tuple([op + by for op in ops])
