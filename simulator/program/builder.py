"""Write a Program one op at a time; `build()` freezes the columns. No checks of meaning here (see `check`)."""

from collections.abc import Mapping, Sequence

import numpy as np

from .program import Access, Buffer, Lane, Place, Pool, Program
from .ragged import Ragged


class _Table:
    """Distinct values in the order of their first use, with their index."""

    def __init__(self) -> None:
        self.index: dict[object, int] = {}

    def __call__(self, value: object) -> int:
        index = self.index
        return index.setdefault(value, len(index))


class _Groups(_Table):
    """Groups of ranks; one that was seen already is known by its identity, as hashing a long tuple takes long."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[tuple[int, ...], int]] = {}

    def __call__(self, value: object) -> int:
        known = self._seen.get(id(value))
        if known is None:
            assert isinstance(value, tuple)
            known = self._seen[id(value)] = value, super().__call__(value)  # held, so that no other has its identity
        return known[1]


class _Rows:
    """A ragged column that grows one row at a time."""

    def __init__(self) -> None:
        self.start, self.values = [0], list[int]()

    def add(self, row: Sequence[int]) -> None:
        self.values.extend(row)
        self.start.append(len(self.values))

    def freeze(self) -> Ragged:
        return Ragged(np.array(self.start, np.int64), np.array(self.values, np.int64))


class ProgramBuilder:
    """Collects ops; a lane runs its ops in the order in which they were added."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._lanes: dict[tuple[int, str], int] = {}
        self._orders: list[list[int]] = []
        self._buffers: list[Buffer] = []
        self._pools: list[Pool] = []
        self._kinds, self._dtypes, self._groups, self._access_table = _Table(), _Table(), _Groups(), _Table()
        self._names: list[str] = []
        self._kind: list[int] = []
        self._bytes: list[int] = []
        self._dtype: list[int] = []
        self._group: list[int] = []
        self._root: list[int] = []
        self._shape, self._deps, self._accesses = _Rows(), _Rows(), _Rows()
        self._acquires, self._releases = _Rows(), _Rows()
        self._tags: dict[str, dict[int, int]] = {}

    def place(self, name: str, ranks: Sequence[int]) -> int:
        """A rank, or a class of ranks that act alike; returns its index."""
        self._places.append(Place(name, tuple(ranks)))
        return len(self._places) - 1

    def place_name(self, place: int) -> str:
        """The name that a place was given."""
        return self._places[place].name

    def lane(self, place: int, name: str) -> int:
        """The lane of that name at that place, made on first use."""
        lane = self._lanes.get((place, name))
        if lane is None:
            self._lanes[place, name] = lane = len(self._orders)
            self._orders.append([])
        return lane

    def buffer(self, name: str, place: int, size_bytes: int, memory: str = "device") -> int:
        """A buffer of `size_bytes` on each rank of the place; returns its index."""
        self._buffers.append(Buffer(name, place, size_bytes, memory))
        return len(self._buffers) - 1

    def pool(self, name: str, place: int, slots: int) -> int:
        """A pool of slots; returns its index."""
        self._pools.append(Pool(name, place, slots))
        return len(self._pools) - 1

    def op(
        self,
        kind: str,
        lanes: Sequence[int],
        after: Sequence[int] = (),
        *,
        name: str = "",
        size_bytes: int = 0,
        shape: Sequence[int] = (),
        dtype: str = "",
        group: tuple[int, ...] = (),
        root: int = -1,
        reads: Sequence[tuple[int, int, int]] = (),
        writes: Sequence[tuple[int, int, int]] = (),
        acquires: Sequence[int] = (),
        releases: Sequence[int] = (),
        tags: Mapping[str, int] | None = None,
    ) -> int:
        """Append an op to its lanes and return its index.

        `after` lists the ops it waits for; `reads` and `writes` are (buffer, offset, bytes); `acquires` and
        `releases` are pools, one slot per mention; `tags` are small integers.
        """
        op = len(self._names)
        for lane in lanes:
            self._orders[lane].append(op)
        self._names.append(name or f"{kind} {op}")
        self._kind.append(self._kinds(kind))
        self._bytes.append(size_bytes)
        self._dtype.append(self._dtypes(dtype))
        self._group.append(self._groups(group))
        self._root.append(root)
        self._shape.add(shape)
        self._deps.add(after)
        self._accesses.add(
            [self._access_table((*range_, False)) for range_ in reads]
            + [self._access_table((*range_, True)) for range_ in writes]
        )
        self._acquires.add(acquires)
        self._releases.add(releases)
        for key, value in (tags or {}).items():
            if value != -1:
                self._tags.setdefault(key, {})[op] = value
        return op

    def build(self) -> Program:
        """The Program so far; the builder may go on."""
        return self.build_with_order(self._orders)

    def build_with_order(self, orders: Sequence[Sequence[int]]) -> Program:
        """The Program with the order of each lane given, instead of the order in which its ops were added."""
        return Program(
            places=tuple(self._places),
            lanes=tuple(Lane(*lane) for lane in self._lanes),
            buffers=tuple(self._buffers),
            pools=tuple(self._pools),
            kinds=tuple(self._kinds.index),  # type: ignore[arg-type]
            dtypes=tuple(self._dtypes.index),  # type: ignore[arg-type]
            groups=tuple(self._groups.index),  # type: ignore[arg-type]
            names=tuple(self._names),
            kind=np.array(self._kind, np.int64),
            bytes=np.array(self._bytes, np.int64),
            shape=self._shape.freeze(),
            dtype=np.array(self._dtype, np.int64),
            group=np.array(self._group, np.int64),
            root=np.array(self._root, np.int64),
            deps=self._deps.freeze(),
            accesses=self._accesses.freeze(),
            access_table=tuple(Access(*access) for access in self._access_table.index),  # type: ignore[misc]
            acquires=self._acquires.freeze(),
            releases=self._releases.freeze(),
            order=Ragged.build(orders),
            tags={key: self._tag_column(values) for key, values in self._tags.items()},
        )

    def _tag_column(self, values: dict[int, int]) -> np.ndarray:
        column = np.full(len(self._names), -1, np.int64)
        column[list(values.keys())] = list(values.values())
        return column
