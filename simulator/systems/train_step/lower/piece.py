"""A Piece: the ops of one action on one rank, numbered from 0. It is written once and copied ("stamped") many times.

Everything in a piece is relative to the place where it is stamped: each op holds one lane, given by its name at the
place (`compute`, `tp`, `ep`, …); ranks of groups count from the first rank of the place; layers may be relative too.
Its `heads` wait for its input, and later ops wait for its `tails`. All pieces share tables of names, groups and types.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ....base.arrays import Ints
from ....models.kernels import Kernel
from ....program import Ragged

COMPUTE, HOST, H2D, D2H = "compute", "host", "h2d", "d2h"


class Table:
    """A table of distinct values, in the order of their first use."""

    def __init__(self) -> None:
        self._index: dict[Any, int] = {}
        self.values: list[Any] = []

    def __call__(self, value: Any) -> int:
        """The index of a value; a new value is added."""
        index = self._index.get(value)
        if index is None:
            index = self._index[value] = len(self.values)
            self.values.append(value)
        return index


@dataclass(frozen=True)
class Tables:
    """The values behind the integers in columns of pieces: kinds, labels, data types, groups and lanes."""

    kinds: Table = field(default_factory=Table)
    dtypes: Table = field(default_factory=Table)
    groups: Table = field(default_factory=Table)
    labels: Table = field(default_factory=Table)
    lanes: Table = field(default_factory=Table)


class LayerPass(NamedTuple):
    """One layer in an action, by op numbers.

    `first` is its first op, `tails` are the ops at its end, and `last` is the last op that uses its activations. In a
    backward `last` is the last weight gradient, which may run after the end of the layer.
    """

    layer: int
    first: int
    tails: tuple[int, ...]
    last: int

    def move(self, ops: int, layers: int = 0) -> "LayerPass":
        """The same layer with `ops` added to op numbers and `layers` to the layer number."""
        return LayerPass(self.layer + layers, self.first + ops, tuple(op + ops for op in self.tails), self.last + ops)


@dataclass(frozen=True)
class Piece:
    """Columns as in a Program, one entry per op; `deps` are numbers of ops in the same piece.

    A piece contains one action of a pipeline, or two that overlap; the column `action` says to which of them an op
    belongs. For each action, `heads` wait for its input, `tails` are the ops at its end, and `layers` are its layers in
    the order in which they run. `marks` name ops inside a piece for other ops of the step: a layer's gradients are sent
    after `("grads", layer)`, and `("weights", layer)` is the first op that needs its weights. `ends` are the ops at the
    end of each layer, last layer first. `gathers` lists (op, i): the op waits for the i-th of `ends` of earlier pieces.
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

    def ops_named(self, name: str) -> dict[int, int]:
        """The ops marked with this name, by layer."""
        return {layer: op for (of, layer), op in self.marks.items() if of == name}


class Row(NamedTuple):
    """The content of an op of a piece, as values instead of table indices."""

    kind: str
    label: str
    dtype: str
    group: tuple[int, ...]
    lane: str
    bytes: int
    shape: tuple[int, ...]


class Fragment(NamedTuple):
    """A layer of an action that can be appended after any other ops.

    `deps` and `tail` are numbers of its own ops; BEHIND (-1) stands for the ops that precede it. `one` and `marks`
    describe the layer. If an action begins with this layer, its `heads` wait for the action's input.
    """

    rows: list[Row]
    deps: list[tuple[int, ...]]
    tail: tuple[int, ...]
    heads: tuple[int, ...]
    one: LayerPass | None
    marks: dict[str, int]


BEHIND = -1
"""In a fragment: the ops that precede it."""


class PieceWriter:
    """Writes a piece in the order in which a host would issue its ops.

    Ops on the compute lane follow each other because lanes run in order. `after` lists further ops that the next op
    waits for. Every call takes and returns such a list, so two branches are simply two lists.
    """

    def __init__(self) -> None:
        self.layer, self.action = -1, 0
        self._rows: list[Row] = []
        self._of: list[tuple[int, int]] = []  # (layer, action) of each op
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
        """Write one op. Returns its number."""
        self._rows.append(Row(kind, name or kind, dtype, group, lane, round(size_bytes), tuple(shape)))
        self._of.append((self.layer, self.action))
        self._deps.append(tuple(dict.fromkeys(after)))
        return len(self._rows) - 1

    def append(self, fragment: Fragment, after: Sequence[int]) -> list[int]:
        """Append a copy of a layer. Returns its tail."""
        begin, waits = len(self._rows), tuple(after)
        self._rows += fragment.rows
        self._of += [(self.layer, self.action)] * len(fragment.rows)
        self._deps += [_moved(deps, begin, waits) for deps in fragment.deps]
        for name, op in fragment.marks.items():
            self.mark(name, begin + op)
        return list(_moved(fragment.tail, begin, waits))

    def fragment(self, tail: Sequence[int], heads: Sequence[int], one: LayerPass | None) -> Fragment:
        """Everything written so far as a Fragment; all of it must belong to one layer."""
        marks = {name: op for (name, _), op in self._marks.items()}
        return Fragment(self._rows, self._deps, tuple(tail), tuple(heads), one, marks)

    def compute(self, kernels: Iterable[Kernel], after: Sequence[int] = ()) -> list[int]:
        """Write kernels one after another on the compute lane; the first one waits for `after`.

        Returns the last op, or `after` if there are no kernels.
        """
        done = list(after)
        waits = done
        for k in kernels:
            op = self.op(k.kind, COMPUTE, waits, name=k.name, size_bytes=k.bytes, shape=k.shape, dtype=k.dtype)
            waits, done = [], [op]
        return done

    def mark(self, name: str, op: int) -> None:
        """Name an op within its layer. If the name is taken already, the first op keeps it."""
        self._marks.setdefault((name, self.layer), op)

    def wait_before(self, op: int, end: int) -> None:
        """Make an op wait for the end of a layer in earlier pieces; `end` counts back, 0 is the latest."""
        self._gathers.append((op, end))

    def wait(self, op: int, after: Iterable[int]) -> None:
        """Make an op that is already written also wait for those in `after`."""
        self._deps[op] = tuple(dict.fromkeys((*self._deps[op], *after)))

    def reshape(self, op: int, shape: Sequence[int]) -> None:
        """Set the shape of an op that is already written."""
        self._rows[op] = self._rows[op]._replace(shape=tuple(shape))

    def piece(
        self,
        tables: Tables,
        heads: Iterable[Sequence[int]],
        tails: Iterable[Sequence[int]],
        ends: Iterable[Sequence[int]] = (),
        layers: Iterable[Sequence[LayerPass]] = (),
    ) -> Piece:
        """Everything written so far as a Piece, with heads, tails and layers of each action, and ends of layers."""
        number: dict[Row, int] = {}
        which = np.array([number.setdefault(row, len(number)) for row in self._rows], np.int64)
        names = tables.kinds, tables.labels, tables.dtypes, tables.groups, tables.lanes
        distinct = [[*(name(value) for name, value in zip(names, row, strict=False)), row.bytes] for row in number]
        kind, label, dtype, group, lane, size = np.array(distinct, np.int64).reshape(-1, 6).T[:, which]
        layer, action = np.array(self._of, np.int64).reshape(-1, 2).T
        return Piece(
            kind, label, dtype, group, lane, size, layer, action,
            Ragged.build([row.shape for row in self._rows]), Ragged.build(self._deps),
            tuple(map(tuple, heads)), tuple(map(tuple, tails)), self._marks,
            tuple(map(tuple, ends)), tuple(self._gathers), tuple(map(tuple, layers)),
        )  # fmt: skip


def _moved(ops: tuple[int, ...], by: int, behind: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of a fragment's ops as numbers in the piece: `by` is added, and `behind` replaces BEHIND."""
    if BEHIND in ops:
        return tuple(dict.fromkeys(one for op in ops for one in (behind if op == BEHIND else (op + by,))))
    return tuple([op + by for op in ops])
