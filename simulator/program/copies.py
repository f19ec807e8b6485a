"""Programs that grow: copies of ops at the tail of their lanes, as a run submits them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .program import Program
from .ragged import Ragged


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
