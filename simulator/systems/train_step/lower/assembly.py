"""Assembly: stamps pieces and single ops into the columns of one Program, by whole arrays.

Ops are numbered in the order in which they are added, and lanes run theirs in that order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.rows import Rows
from ....program import Access, Buffer, Lane, Place, Program, Ragged
from .names import OpNames
from .piece import Ints, Piece, Tables

_COLUMNS = ("kind", "label", "dtype", "group", "bytes")
_TAGS = ("stage", "microbatch", "layer", "action")
ACTIONS = ("F", "B", "I", "W", "FB")  # the last one of a pair that is one op
Tags = tuple[int, int, str]  # stage, micro-batch, action


class Template(NamedTuple):
    """A cell that is written many times, for other micro-batches: ops of a piece, if any, and single ops behind it.

    Of each of its actions stage and kind; of each single op its row of columns, its shape, the numbers of its lanes,
    the template's ops that it waits for, and of which action it is.
    """

    piece: Piece | None
    place: int
    actions: Sequence[tuple[int, str]]
    rows: Sequence[tuple[int, ...]] = ()
    shapes: Sequence[tuple[int, ...]] = ()
    lanes: Sequence[tuple[int, ...]] = ()
    deps: Sequence[tuple[int, ...]] = ()
    of: Sequence[int] = ()

    @property
    def size(self) -> int:
        """Ops of one such cell."""
        return len(self.rows) + (len(self.piece) if self.piece else 0)


class _Stamps(NamedTuple):
    """Where a piece was stamped at a place: first ops, and of each of its actions stage, micro-batch and kind."""

    piece: Piece
    place: int
    first: list[Ints]
    actions: list[Ints]  # [stamps, actions, 3]


class Assembly:
    """A Program in the making."""

    def __init__(self, tables: Tables, places: Sequence[Place]):
        self.tables, self.places = tables, tuple(places)
        self._count = 0
        self._stamps: dict[tuple[int, int], _Stamps] = {}  # by identity of the piece, and place
        self._single: list[tuple[int, ...]] = []
        self._single_at: list[int] = []
        self._shapes: list[tuple[int, ...]] = []
        self._lanes: dict[tuple[int, int], int] = {}
        self._on: list[tuple[int, int]] = []  # (lane, op) of single ops, and of others the lanes that they share
        self._deps: list[tuple[int, int]] = []  # (op, what it waits for) beyond those inside pieces
        self._many: list[tuple[Template, Ints, Ints]] = []  # with first single ops, and micro-batches of actions
        self._waits: list[tuple[Ints, Ints]] = []
        self._buffers: list[Rows[Buffer]] = []
        self._held: list[Ints] = []  # of each of their buffers its writer and its last reader

    def __len__(self) -> int:
        return self._count

    def stamp(self, piece: Piece, place: int, *actions: Tags) -> int:
        """Add a piece at a place, with what its actions are; returns the number of its first op."""
        first = self._count
        tags = [(stage, microbatch, ACTIONS.index(kind)) for stage, microbatch, kind in actions]
        self._stamp(piece, place, np.array([first]), np.array([tags], np.int64))
        self._count += len(piece)
        return first

    def _stamp(self, piece: Piece, place: int, first: Ints, actions: Ints) -> None:
        stamps = self._stamps.setdefault((id(piece), place), _Stamps(piece, place, [], []))
        stamps.first.append(first)
        stamps.actions.append(actions)

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
        op = self._count
        self._single.append(self.row(kind, name, size_bytes, dtype, group, (stage, microbatch, layer), action))
        self._single_at.append(op)
        self._shapes.append(tuple(shape))
        self._on += [(self.lane(place, lane), op) for place, lane in lanes]
        self.wait(op, after)
        self._count += 1
        return op

    def row(
        self, kind: str, name: str, size_bytes: float, dtype: str, group: tuple[int, ...], at: tuple[int, int, int],
        action: str | None = None,
    ) -> tuple[int, ...]:  # fmt: skip
        """The columns of a single op; `at` is its stage, micro-batch and layer."""
        t, tag = self.tables, -1 if action is None else ACTIONS.index(action)
        return t.kinds(kind), t.labels(name or kind), t.dtypes(dtype), t.groups(group), round(size_bytes), *at, tag

    def repeat(self, templates: Sequence[Template], which: Ints, microbatches: Ints) -> Ints:
        """Add cells in a row, each for the micro-batches `[cells, actions]`; returns the first op of each."""
        sizes = np.array([template.size for template in templates], np.int64)[which]
        first = self._count + np.cumsum(sizes) - sizes
        self._count += int(sizes.sum())
        for number, template in enumerate(templates):
            begin, own = first[which == number], microbatches[which == number]
            if template.piece:
                at = [(stage, -1, ACTIONS.index(kind)) for stage, kind in template.actions]
                actions = np.repeat(np.array([at], np.int64), len(begin), axis=0)
                actions[:, :, 1] = own[:, : len(at)]
                self._stamp(template.piece, template.place, begin, actions)
            self._many.append((template, begin + template.size - len(template.rows), own))
        return first

    def wait_each(self, ops: Ints, after: Ints) -> None:
        """Each of these ops waits for the one beside it."""
        self._waits.append((ops, after))

    def wait(self, op: int, after: Iterable[int]) -> None:
        """An op waits for others besides."""
        self._deps += [(op, dep) for dep in after]

    def share(self, op: int, place: int, lane: str) -> None:
        """An op holds a lane of one more place."""
        self._on.append((self.lane(place, lane), op))

    def hold_each(
        self, names: Sequence[str], name: Ints, place: Ints | int, size_bytes: Ints, writer: Ints, last: Ints
    ) -> None:
        """Buffers on devices, each from the start of one op to the end of another; `name` indexes `names`."""
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
        """Freeze."""
        columns = {name: np.zeros(self._count, np.int64) for name in (*_COLUMNS, "lane")}
        tags = {name: np.full(self._count, -1, np.int64) for name in _TAGS}
        lane_maps = self._lane_maps()
        for piece, place, first, actions in self._all_stamps():
            part = first[:, None] + np.arange(len(piece))
            for name in _COLUMNS:
                columns[name][part] = getattr(piece, name)
            columns["lane"][part] = lane_maps[place][piece.lane]
            tags["layer"][part] = piece.layer
            for i, name in enumerate(("stage", "microbatch", "action")):
                tags[name][part] = actions[:, piece.action, i]
        self._fill_single(columns, tags)
        t = self.tables
        return Program(
            places=self.places,
            lanes=tuple(Lane(place, t.lanes.values[name]) for place, name in self._lanes),
            buffers=self._all_buffers(),
            pools=(),
            kinds=t.kinds.values,
            dtypes=t.dtypes.values,
            groups=t.groups.values,
            names=OpNames(t.labels.values, columns["label"], tags),  # type: ignore[arg-type]
            kind=columns["kind"],
            bytes=columns["bytes"],
            shape=self._all_shapes(),
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

    def _all_stamps(self) -> Iterator[tuple[Piece, int, Ints, Ints]]:
        for piece, place, first, actions in self._stamps.values():
            yield piece, place, np.concatenate(first), np.concatenate(actions)

    def _lane_maps(self) -> list[Ints]:
        """For each place, the lane that every lane name is there."""
        for piece, place, _, _ in self._stamps.values():
            for name in np.unique(piece.lane).tolist():
                self._lane(place, name)
        maps = np.full((len(self.places), len(self.tables.lanes.index)), -1, np.int64)
        for (place, name), lane in self._lanes.items():
            maps[place, name] = lane
        return list(maps)

    def _fill_single(self, columns: Mapping[str, Ints], tags: Mapping[str, Ints]) -> None:
        into = [*(columns[name] for name in _COLUMNS), *(tags[name] for name in _TAGS)]
        if self._single:
            at = np.array(self._single_at, np.int64)
            for column, values in zip(into, np.array(self._single, np.int64).T, strict=True):
                column[at] = values
            columns["lane"][at] = -1
        many = [(row, first + i, microbatch[:, template.of[i]]) for template, first, microbatch in self._many
                for i, row in enumerate(template.rows)]  # fmt: skip
        if many:
            rows, ops, microbatches = zip(*many, strict=True)
            at, times = np.concatenate(ops), [len(some) for some in ops]
            for column, values in zip(into, np.array(rows, np.int64).T, strict=True):
                column[at] = np.repeat(values, times)
            tags["microbatch"][at] = np.concatenate(microbatches)
            columns["lane"][at] = -1

    def _all_shapes(self) -> Ragged:
        """Those of pieces where they were stamped, those of single ops at theirs."""
        lengths = np.zeros(self._count, np.int64)
        for piece, _, first, _ in self._all_stamps():
            lengths[first[:, None] + np.arange(len(piece))] = np.diff(piece.shape.start)
        for shape, at in (singles := list(self._single_shapes())):
            lengths[at] = len(shape)
        start = np.concatenate(([0], np.cumsum(lengths)))
        flat = np.empty(start[-1], np.int64)
        for piece, _, first, _ in self._all_stamps():
            flat[start[first][:, None] + np.arange(len(piece.shape.values))] = piece.shape.values
        for shape, at in singles:
            for i, value in enumerate(shape):
                flat[start[at] + i] = value
        return Ragged(start, flat)

    def _single_shapes(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Shapes, and the op or the ops that have them."""
        yield from ((shape, op) for shape, op in zip(self._shapes, self._single_at, strict=True) if shape)
        for template, first, _ in self._many:
            yield from ((shape, first + i) for i, shape in enumerate(template.shapes) if shape)

    def _all_deps(self) -> Ragged:
        own = np.array(self._deps, np.int64).reshape(-1, 2)
        parts = [(own[:, 0], own[:, 1]), *self._waits]
        parts += [(first + i, first + len(template.rows) - template.size + dep) for template, first, _ in self._many
                  for i, deps in enumerate(template.deps) for dep in deps]  # fmt: skip
        for piece, _, stamped, _ in self._all_stamps():
            after, before = ((stamped[:, None] + column).ravel() for column in piece.edges)
            parts.append((after, before))
        op, dep = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _grouped(op, dep, self._count)

    def _order(self, lane: Ints) -> Ragged:
        stamped = np.flatnonzero(lane >= 0)
        own = np.array(self._on, np.int64).reshape(-1, 2)
        parts = [(lane[stamped], stamped), (own[:, 0], own[:, 1])]
        parts += [(np.full(len(first), on), first + op) for template, first, _ in self._many
                  for op, lanes in enumerate(template.lanes) for on in lanes]  # fmt: skip
        lanes, ops = (np.concatenate(column) for column in zip(*parts, strict=True))
        sorted_ = np.lexsort((ops, lanes))
        return Ragged(_starts(lanes, len(self._lanes)), ops[sorted_])

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


def _grouped(row: Ints, value: Ints, rows: int) -> Ragged:
    return Ragged(_starts(row, rows), value[np.argsort(row, kind="stable")])


def _starts(row: Ints, rows: int) -> Ints:
    return np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))).astype(np.int64)


def _empty(rows: int) -> Ragged:
    return Ragged(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
