"""Many rows of a table, such as a Program's buffers or a cluster's links, as one array per field.

A row is made when asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_Row = TypeVar("_Row")


class Rows(Sequence[_Row]):
    """`row` makes a row of one value per column, in the order of the columns."""

    def __init__(self, row: Callable[..., _Row], columns: Mapping[str, NDArray[Any]]):
        self.row, self.columns = row, dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, at: int) -> _Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_Row, ...]: ...

    def __getitem__(self, at: int | slice) -> _Row | tuple[_Row, ...]:
        if isinstance(at, slice):
            return tuple(Rows(self.row, {name: column[at] for name, column in self.columns.items()}))
        return self.row(*(column[at : at + 1 or None].tolist()[0] for column in self.columns.values()))

    def __iter__(self) -> Iterator[_Row]:
        return map(self.row, *(column.tolist() for column in self.columns.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(len(self))


def column_of(rows: Sequence[Any], field: str, kind: type) -> NDArray[Any]:
    """A field of all rows; `kind` is the type of its values."""
    return rows.columns[field] if isinstance(rows, Rows) else np.array([getattr(row, field) for row in rows], kind)
