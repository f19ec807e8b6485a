"""Assembly: stamps pieces and single ops into the columns of one Program, by whole arrays.

Ops are numbered in the order in which they are added, and lanes run theirs in that order.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..program import Access, Buffer, Lane, Place, Program, Ragged
from .names import OpNames
from .piece import Ints, Piece, Tables

_COLUMNS = ("kind", "label", "dtype", "group", "bytes")
_TAGS = ("stage", "microbatch", "layer", "action")
ACTIONS = ("F", "B", "I", "W", "FB")  # the last one of a pair that is one op
Tags = tuple[int, int, str]  # stage, micro-batch, action


class Assembly:
    """A Program in the making."""

    def __init__(self, tables: Tables, places: Sequence[Place]):
        self.tables, self.places = tables, tuple(places)
        self._count = 0
        self._stamps: list[tuple[Piece, int, int, Ints]] = []
        self._single: list[tuple[int, ...]] = []
        self._single_at: list[int] = []
        self._shapes: list[tuple[int, ...]] = []
        self._lanes: dict[tuple[int, int], int] = {}
        self._on: list[tuple[int, int]] = []  # (lane, op) of single ops, and of others the lanes that they share
        self._deps: list[tuple[int, int]] = []  # (op, what it waits for) beyond those inside pieces
        self._buffers: list[Buffer] = []
        self._access: list[tuple[int, int, bool]] = []  # (op, buffer, write)

    def __len__(self) -> int:
        return self._count

    def stamp(self, piece: Piece, place: int, *actions: Tags) -> int:
        """Add a piece at a place, with what its actions are; returns the number of its first op."""
        first = self._count
        tags = np.array([(stage, microbatch, ACTIONS.index(kind)) for stage, microbatch, kind in actions], np.int64)
        self._stamps.append((piece, place, first, tags))
        self._count += len(piece)
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
        action: str | None = None,
    ) -> int:
        """Add one op on lanes (place, name) of any places; returns its number."""
        op, t = self._count, self.tables
        row = (t.kinds(kind), t.labels(name or kind), t.dtypes(dtype), t.groups(group))
        tag = -1 if action is None else ACTIONS.index(action)
        self._single.append((*row, round(size_bytes), stage, microbatch, layer, tag))
        self._single_at.append(op)
        self._shapes.append(tuple(shape))
        self._on += [(self._lane(place, t.lanes(lane)), op) for place, lane in lanes]
        self.wait(op, after)
        self._count += 1
        return op

    def wait(self, op: int, after: Iterable[int]) -> None:
        """An op waits for others besides."""
        self._deps += [(op, dep) for dep in after]

    def share(self, op: int, place: int, lane: str) -> None:
        """An op holds a lane of one more place."""
        self._on.append((self._lane(place, self.tables.lanes(lane)), op))

    def hold(self, name: str, place: int, size_bytes: int, writer: int, last: int) -> None:
        """A buffer from the start of one op to the end of another."""
        self._access += [(writer, len(self._buffers), True), (last, len(self._buffers), False)]
        self._buffers.append(Buffer(name, place, size_bytes))

    def _lane(self, place: int, name: int) -> int:
        return self._lanes.setdefault((place, name), len(self._lanes))

    def program(self) -> Program:
        """Freeze."""
        columns = {name: np.zeros(self._count, np.int64) for name in (*_COLUMNS, "lane")}
        tags = {name: np.full(self._count, -1, np.int64) for name in _TAGS}
        lane_maps = self._lane_maps()
        for piece, place, first, actions in self._stamps:
            part = slice(first, first + len(piece))
            for name in _COLUMNS:
                columns[name][part] = getattr(piece, name)
            columns["lane"][part] = lane_maps[place][piece.lane]
            tags["layer"][part] = piece.layer
            tags["stage"][part], tags["microbatch"][part], tags["action"][part] = actions[piece.action].T
        self._fill_single(columns, tags)
        t = self.tables
        return Program(
            places=self.places,
            lanes=tuple(Lane(place, t.lanes.values[name]) for place, name in self._lanes),
            buffers=tuple(self._buffers),
            pools=(),
            kinds=t.kinds.values,
            dtypes=t.dtypes.values,
            groups=t.groups.values,
            names=OpNames(t.labels.values, columns["label"], tags),  # type: ignore[arg-type]
            kind=columns["kind"],
            bytes=columns["bytes"],
            shape=self._ragged_of("shape", self._shapes),
            dtype=columns["dtype"],
            group=columns["group"],
            root=np.full(self._count, -1, np.int64),
            deps=self._all_deps(),
            accesses=self._accesses(),
            access_table=self._access_table(),
            acquires=_empty(self._count),
            releases=_empty(self._count),
            order=self._order(columns["lane"]),
            tags=tags,
        )

    def _lane_maps(self) -> list[Ints]:
        """For each place, the lane that every lane name is there."""
        for piece, place in {(id(piece), place): (piece, place) for piece, place, _, _ in self._stamps}.values():
            for name in np.unique(piece.lane).tolist():
                self._lane(place, name)
        maps = np.full((len(self.places), len(self.tables.lanes.index)), -1, np.int64)
        for (place, name), lane in self._lanes.items():
            maps[place, name] = lane
        return list(maps)

    def _fill_single(self, columns: Mapping[str, Ints], tags: Mapping[str, Ints]) -> None:
        if not self._single:
            return
        at = np.array(self._single_at, np.int64)
        rows = np.array(self._single, np.int64).T
        for name, row in zip(_COLUMNS, rows[:5], strict=True):
            columns[name][at] = row
        for name, row in zip(_TAGS, rows[5:], strict=True):
            tags[name][at] = row
        columns["lane"][at] = -1

    def _ragged_of(self, field: str, singles: Sequence[Sequence[int]]) -> Ragged:
        """Rows of a ragged column: those of pieces where they were stamped, those of single ops at theirs."""
        parts = [(first, getattr(piece, field)) for piece, _, first, _ in self._stamps]
        lengths = np.zeros(self._count, np.int64)
        for first, rows in parts:
            lengths[first : first + len(rows)] = np.diff(rows.start)
        lengths[np.array(self._single_at, np.int64)] = [len(row) for row in singles]
        values = [(first, rows.values) for first, rows in parts]
        values += [(op, np.array(row, np.int64)) for op, row in zip(self._single_at, singles, strict=True) if row]
        values.sort(key=lambda one: one[0])
        flat = np.concatenate([np.empty(0, np.int64), *(row for _, row in values)])
        return Ragged(np.concatenate(([0], np.cumsum(lengths))), flat)

    def _all_deps(self) -> Ragged:
        inside = [(rows.deps.row_of_value() + first, rows.deps.values + first) for rows, _, first, _ in self._stamps]
        own = np.array(self._deps, np.int64).reshape(-1, 2)
        op = np.concatenate([own[:, 0], *(op for op, _ in inside)])
        dep = np.concatenate([own[:, 1], *(dep for _, dep in inside)])
        return _grouped(op, dep, self._count)

    def _order(self, lane: Ints) -> Ragged:
        stamped = np.flatnonzero(lane >= 0)
        own = np.array(self._on, np.int64).reshape(-1, 2)
        lanes, ops = np.concatenate([lane[stamped], own[:, 0]]), np.concatenate([stamped, own[:, 1]])
        sorted_ = np.lexsort((ops, lanes))
        return Ragged(_starts(lanes, len(self._lanes)), ops[sorted_])

    def _accesses(self) -> Ragged:
        found = np.array([(op, i) for i, (op, _, _) in enumerate(self._access)], np.int64).reshape(-1, 2)
        return _grouped(found[:, 0], found[:, 1], self._count)

    def _access_table(self) -> tuple[Access, ...]:
        return tuple(Access(buffer, 0, self._buffers[buffer].bytes, write) for _, buffer, write in self._access)


def _grouped(row: Ints, value: Ints, rows: int) -> Ragged:
    return Ragged(_starts(row, rows), value[np.argsort(row, kind="stable")])


def _starts(row: Ints, rows: int) -> Ints:
    return np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))).astype(np.int64)


def _empty(rows: int) -> Ragged:
    return Ragged(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
