"""Rows of different lengths in two flat arrays (compressed sparse rows): the column type for lists per op."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row `i` is `values[start[i]:start[i + 1]]`."""

    start: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def build(cls, rows: Iterable[Iterable[int]]) -> "Ragged":
        """A Ragged with one row per sequence."""
        start, values = [0], list[int]()
        for row in rows:
            values.extend(row)
            start.append(len(values))
        return cls(np.array(start, np.int64), np.array(values, np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, row: int | np.signedinteger) -> NDArray[np.int64]:
        return self.values[self.start[row] : self.start[row + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Ragged)
            and np.array_equal(self.start, other.start)
            and np.array_equal(self.values, other.values)
        )

    def row_of_value(self) -> NDArray[np.int64]:
        """For each value, the row that it stands in."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def positions(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions in `values` of these rows, one row after another; the index in `rows` of each position)."""
        counts = np.diff(self.start)[rows]
        of = np.repeat(np.arange(len(rows)), counts)
        return np.arange(len(of)) + (self.start[rows] - np.cumsum(counts) + counts)[of], of

    def transpose(self, rows: int) -> "Ragged":
        """Row `v` of the result lists the rows that hold value `v`, ascending; `rows` is the number of values."""
        order = np.argsort(self.values, kind="stable")
        counts = np.bincount(self.values, minlength=rows)
        return Ragged(np.concatenate(([0], np.cumsum(counts))), self.row_of_value()[order])


def group_equal(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group equal keys, which must be >= 0: (the first index of each group, the group of each index).

    Groups are in ascending order of their keys. Where keys are small, a table of them takes less time than sorting.
    """
    if keys.max(initial=0) > 16 * len(keys):
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        return first, which
    number = np.bincount(keys).astype(bool).cumsum() - 1
    which = number[keys]
    first = np.empty(which.max(initial=-1) + 1, np.int64)
    first[which[::-1]] = np.arange(len(keys))[::-1]
    return first, which
