"""Assembly: copies pieces and single ops into the columns of one Program, as whole arrays.

Ops are numbered in the order in which they are added, and lanes run their ops in that order. Lanes and groups, which
pieces state relative to their place, are resolved for all stamps of a piece at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from ....base.arrays import Ints
from ....base.rows import Rows
from ....program import Access, Buffer, Lane, Place, Program, Ragged
from .piece import Piece, Table, Tables

_COLUMNS = ("kind", "label", "dtype", "bytes")
_TAGS = ("stage", "microbatch", "layer", "action")
ACTIONS = ("F", "B", "I", "W", "FB")  # the last one of a pair that is one op
Tags = tuple[int, int, str]  # stage, micro-batch, action


class Stamps(NamedTuple):
    """Where pieces are stamped: stamp i is piece `which[i]` at place `place[i]`.

    `actions[i, j]` is (stage, micro-batch, index of the kind) of its j-th action. `layers[i]` is added to its layer
    numbers, and `shapes[i]` to the values of its shapes.
    """

    which: Ints
    place: Ints
    actions: Ints
    layers: Ints | int = 0
    shapes: Ints | int = 0


class _Stamped(NamedTuple):
    pieces: Sequence[Piece]
    stamps: Stamps
    first: Ints


class Assembly:
    """Builds a Program from pieces and single ops.

    `first_ranks[place]` is the rank from which groups of a piece count at that place (default: its first rank).
    """

    def __init__(self, tables: Tables, places: Sequence[Place], first_ranks: Sequence[int] | None = None):
        self.tables, self.places = tables, tuple(places)
        self._first = [place.ranks[0] for place in places] if first_ranks is None else first_ranks
        self._count = 0
        self._groups = Table()
        self._lanes: dict[tuple[int, int], int] = {}
        self._stamped: list[_Stamped] = []
        self._rows: list[tuple[int, ...]] = []  # columns of ops outside pieces: _COLUMNS, group, _TAGS
        self._shapes: list[tuple[int, ...]] = []  # shapes of these rows
        self._single: list[tuple[Ints, Ints, Ints, Ints]] = []  # ops, their rows, stages and micro-batches
        self._alone: list[int] = []  # single ops outside pieces, and
        self._row_of: list[int] = []  # the row of each
        self._on: list[tuple[int, int]] = []  # (lane, op) of ops outside pieces, and of lanes added by `share`
        self._on_each: list[tuple[Ints, Ints]] = []
        self._deps: list[tuple[int, int]] = []  # (op, what it waits for) beyond those inside pieces
        self._waits: list[tuple[Ints, Ints]] = []
        self._buffers: list[Rows[Buffer]] = []
        self._held: list[Ints] = []  # (writer, last reader) of each buffer

    def __len__(self) -> int:
        return self._count

    def stamp(self, piece: Piece, place: int, *actions: Tags) -> int:
        """Add a piece at a place; `actions` are the tags of its actions. Returns the number of its first op."""
        tags = [[(stage, microbatch, ACTIONS.index(kind)) for stage, microbatch, kind in actions]]
        stamps = Stamps(np.zeros(1, np.int64), np.array([place]), np.array(tags, np.int64))
        return int(self.stamp_all([piece], stamps)[0])

    def stamp_all(self, pieces: Sequence[Piece], stamps: Stamps, behind: Ints | int = 0) -> Ints:
        """Add pieces one after another, with room for `behind` ops after each. Returns the first op of each."""
        sizes = np.array([len(piece) for piece in pieces], np.int64)[stamps.which] + behind
        first = self._count + np.cumsum(sizes) - sizes
        self._count += int(sizes.sum())
        self._stamped.append(_Stamped(pieces, stamps, first))
        return first

    def op(
        self,
        kind: str,
        lanes: Iterable[tuple[int, str]],
        after: Iterable[int] = (),
        *,
        name: str = "",
        size_bytes: float = 0,
        shape: Sequence[int] = (),
        dtype: str = "",
        group: tuple[int, ...] = (),
        stage: int = -1,
        microbatch: int = -1,
        layer: int = -1,
    ) -> int:
        """Add one op on lanes (place, name) of any places; returns its number."""
        op = self._count
        self._alone.append(op)
        self._row_of.append(self.row(kind, name, size_bytes, dtype, group, shape, (stage, microbatch, layer)))
        self._on += [(self.lane(place, lane), op) for place, lane in lanes]
        self.wait(op, after)
        self._count += 1
        return op

    def row(
        self, kind: str, name: str, size_bytes: float, dtype: str, group: tuple[int, ...], shape: Sequence[int] = (),
        at: tuple[int, int, int] = (-1, -1, -1),
    ) -> int:  # fmt: skip
        """Add a row that describes one or many ops outside pieces; `at` is (stage, micro-batch, layer).

        Returns the row's number.
        """
        t = self.tables
        what = t.kinds(kind), t.labels(name or kind), t.dtypes(dtype), round(size_bytes), self._groups(group)
        self._rows.append((*what, *at, -1))
        self._shapes.append(tuple(shape))
        return len(self._rows) - 1

    def put(self, ops: Ints, rows: Ints, stages: Ints, microbatches: Ints, lanes: Sequence[Ints]) -> None:
        """Fill the room after pieces: op numbers, the row of each, and the lanes that each one holds."""
        self._single.append((ops, rows, stages, microbatches))
        self._on_each += [(on, ops) for on in lanes]

    def wait_each(self, ops: Ints, after: Ints) -> None:
        """Make each op of `ops` wait for the op at the same position of `after`."""
        self._waits.append((ops, after))

    def wait(self, op: int, after: Iterable[int]) -> None:
        """Make an op also wait for the ops in `after`."""
        self._deps += [(op, dep) for dep in after]

    def share(self, op: int, place: int, lane: str) -> None:
        """Make an op also hold a lane of another place."""
        self._on.append((self.lane(place, lane), op))

    def hold_each(
        self, names: Sequence[str], name: Ints, place: Ints | int, size_bytes: Ints, writer: Ints, last: Ints
    ) -> None:
        """Add buffers on devices; each lives from the start of its `writer` to the end of its `last` op.

        `name` indexes `names`; `size_bytes` is the size of each.
        """
        columns = np.array(names, object)[name], np.broadcast_to(place, len(name)), size_bytes
        device = np.full(len(name), "device", object)
        self._buffers.append(Rows(Buffer, dict(zip(Buffer._fields, (*columns, device), strict=True))))
        self._held.append(np.stack([writer, last], axis=1).ravel())

    def lane(self, place: int, name: str) -> int:
        """The number of a lane at a place."""
        return self._lane(place, self.tables.lanes(name))

    def _lane(self, place: int, name: int) -> int:
        return self._lanes.setdefault((place, name), len(self._lanes))

    def program(self) -> Program:
        """The finished Program."""
        spread = [_Spread(stamped) for stamped in self._stamped]
        columns = {name: np.zeros(self._count, np.int64) for name in (*_COLUMNS, "group")}
        tags = {name: np.full(self._count, -1, np.int64) for name in _TAGS}
        self._fill_single(columns, tags)
        for one in spread:
            for name in _COLUMNS:
                columns[name][one.op] = one.column(name)
            columns["group"][one.op] = self._numbers(one, "group", self._group)
            for name, values in one.tags():
                tags[name][one.op] = values
        order = self._order(spread)
        t = self.tables
        return Program(
            places=self.places,
            lanes=tuple(Lane(place, t.lanes.values[name]) for place, name in self._lanes),
            buffers=self._all_buffers(),
            pools=(),
            kinds=tuple(t.kinds.values),
            dtypes=tuple(t.dtypes.values),
            groups=tuple(self._groups.values),
            names=OpNames(tuple(t.labels.values), columns["label"], tags),  # type: ignore[arg-type]
            kind=columns["kind"],
            bytes=columns["bytes"],
            shape=self._all_shapes(spread),
            dtype=columns["dtype"],
            group=columns["group"],
            root=np.full(self._count, -1, np.int64),
            deps=self._all_deps(spread),
            accesses=self._accesses(),
            access_table=self._access_table(),
            acquires=_empty(self._count),
            releases=_empty(self._count),
            order=order,
            tags=tags,
        )

    def _numbers(self, one: "_Spread", name: str, number: Callable[[int, int], int]) -> Ints:
        """The number in the Program of each op's group or lane, which its piece states relative to its place."""
        relative, place = one.column(name), one.place
        size = int(relative.max(initial=-1)) + 1, len(self.places)
        known = np.zeros(size, np.int64)
        known[relative, place] = 1
        for at in np.argwhere(known.T).tolist():
            known[at[1], at[0]] = number(*at)
        return known[relative, place]

    def _group(self, place: int, relative: int) -> int:
        by = self._first[place]
        return self._groups(tuple([rank + by for rank in self.tables.groups.values[relative]]))

    def _fill_single(self, columns: Mapping[str, Ints], tags: Mapping[str, Ints]) -> None:
        """Fill the columns of ops outside pieces."""
        table = np.array(self._rows, np.int64).reshape(-1, len(columns) + len(tags)).T
        alone, row_of = np.array(self._alone, np.int64), np.array(self._row_of, np.int64)
        for ops, rows in [(alone, row_of), *((ops, rows) for ops, rows, _, _ in self._single)]:
            for column, values in zip((*columns.values(), *tags.values()), table, strict=True):
                column[ops] = values[rows]
        for ops, _, stages, microbatches in self._single:
            tags["stage"][ops], tags["microbatch"][ops] = stages, microbatches

    def _all_shapes(self, spread: Sequence["_Spread"]) -> Ragged:
        """The shapes of all ops, of pieces and of single ops."""
        lengths, rows = np.zeros(self._count, np.int64), Ragged.build(self._shapes)
        own = [(np.array(self._alone, np.int64), np.array(self._row_of, np.int64))]
        own += [(ops, row) for ops, row, _, _ in self._single]
        parts = [(ops, rows, row, np.zeros_like(row)) for ops, row in own]
        parts += [(one.op, one.shape, one.row, one.spread_stamps(one.stamps.shapes)) for one in spread]
        for ops, shapes, row, _ in parts:
            lengths[ops] = np.diff(shapes.start)[row]
        start = np.concatenate(([0], np.cumsum(lengths)))
        flat = np.empty(start[-1], np.int64)
        for ops, shapes, row, by in parts:
            at, of = shapes.positions(row)
            flat[start[ops[of]] + at - shapes.start[row[of]]] = shapes.values[at] + by[of]
        return Ragged(start, flat)

    def _all_deps(self, spread: Sequence["_Spread"]) -> Ragged:
        own = np.array(self._deps, np.int64).reshape(-1, 2)
        parts = [(own[:, 0], own[:, 1]), *self._waits, *(one.edges() for one in spread)]
        op, dep = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _grouped(op, dep, self._count)

    def _order(self, spread: Sequence["_Spread"]) -> Ragged:
        own = np.array(self._on, np.int64).reshape(-1, 2)
        parts = [(own[:, 0], own[:, 1]), *self._on_each]
        parts += [(self._numbers(one, "lane", self._lane), one.op) for one in spread]
        lanes, ops = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _grouped(lanes, ops, len(self._lanes))

    def _all_buffers(self) -> Sequence[Buffer]:
        columns = [
            np.concatenate([some.columns[field] for some in self._buffers]) for field in Buffer._fields if self._buffers
        ]
        return Rows(Buffer, dict(zip(Buffer._fields, columns, strict=True))) if columns else ()

    def _accesses(self) -> Ragged:
        held = np.concatenate([np.empty(0, np.int64), *self._held])
        return _grouped(held, np.arange(len(held)), self._count)

    def _access_table(self) -> Sequence[Access]:
        sizes = np.concatenate([np.empty(0, np.int64), *(some.columns["bytes"] for some in self._buffers)])
        number = np.arange(2 * len(sizes))
        columns = number // 2, np.zeros_like(number), np.repeat(sizes, 2), number % 2 == 0
        return Rows(Access, dict(zip(Access._fields, columns, strict=True)))


class OpNames(Sequence[str]):
    """Names of ops, such as `qkv L3 s1 m7`: label, then layer, stage and micro-batch if the op has them."""

    def __init__(self, labels: tuple[str, ...], label: Ints, tags: Mapping[str, Ints]):
        self._labels, self._label = labels, label
        self._tags = [(letter, tags[tag]) for letter, tag in (("L", "layer"), ("s", "stage"), ("m", "microbatch"))]

    def __len__(self) -> int:
        return len(self._label)

    @overload
    def __getitem__(self, op: int) -> str: ...
    @overload
    def __getitem__(self, op: slice) -> tuple[str, ...]: ...

    def __getitem__(self, op: int | slice) -> str | tuple[str, ...]:
        if isinstance(op, slice):
            return tuple(self[i] for i in range(*op.indices(len(self))))
        where = [f"{letter}{column[op]}" for letter, column in self._tags if column[op] >= 0]
        return " ".join([self._labels[self._label[op]], *where])

    def __iter__(self) -> Iterator[str]:
        return (self[op] for op in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._labels, len(self)))


class _Spread:
    """Stamped pieces op by op: each op's number, its row in the columns of all pieces, its stamp and its place."""

    def __init__(self, stamped: _Stamped):
        self.pieces, self.stamps, self._first = stamped
        sizes = np.array([len(piece) for piece in self.pieces], np.int64)
        self._begin = np.cumsum(sizes) - sizes
        self._stamp, offset = _within(sizes[self.stamps.which])
        self.op = self._first[self._stamp] + offset
        self.row = self._begin[self.stamps.which][self._stamp] + offset
        self.place = self.stamps.place[self._stamp]

    def column(self, name: str) -> Ints:
        """A column of the pieces, op by op of the Program."""
        return np.concatenate([getattr(piece, name) for piece in self.pieces])[self.row]

    def spread_stamps(self, value: Ints | int) -> Ints:
        """For each op the value of its stamp."""
        return np.broadcast_to(value, len(self.stamps.which))[self._stamp]

    def tags(self) -> Iterator[tuple[str, Ints]]:
        """(tag name, values): stage, micro-batch and kind of each op's action, and its layer."""
        action = self.column("action")
        yield from zip(("stage", "microbatch", "action"), self.stamps.actions[self._stamp, action].T, strict=True)
        yield "layer", self.column("layer") + self.spread_stamps(self.stamps.layers)

    @cached_property
    def shape(self) -> Ragged:
        """The shapes of all pieces, concatenated."""
        return _joined([piece.shape for piece in self.pieces])

    def edges(self) -> tuple[Ints, Ints]:
        """(ops, the op of the same stamp for which each waits)."""
        deps = [piece.deps for piece in self.pieces]
        many = np.array([len(rows.values) for rows in deps], np.int64)
        stamp, offset = _within(many[self.stamps.which])
        at = (np.cumsum(many) - many)[self.stamps.which][stamp] + offset
        op = np.concatenate([rows.row_of_value() for rows in deps])
        dep = np.concatenate([rows.values for rows in deps])
        return self._first[stamp] + op[at], self._first[stamp] + dep[at]


def _within(sizes: Ints) -> tuple[Ints, Ints]:
    """For the members of consecutive sets of these sizes: (set of each member, its position in the set)."""
    of = np.repeat(np.arange(len(sizes)), sizes)
    return of, np.arange(len(of)) - (np.cumsum(sizes) - sizes)[of]


def _joined(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, concatenated."""
    start = np.concatenate([[0], *(np.diff(part.start) for part in parts)]).cumsum()
    return Ragged(start, np.concatenate([part.values for part in parts]))


def _grouped(row: Ints, value: Ints, rows: int) -> Ragged:
    """The values of each row in ascending order, as a Ragged; rows and values must be >= 0."""
    most = int(value.max(initial=0)) + 1
    sorted_ = np.sort(row * most + value, kind="stable")  # quick where much is in order
    start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))).astype(np.int64)
    return Ragged(start, sorted_ % most)


def _empty(rows: int) -> Ragged:
    return Ragged(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
