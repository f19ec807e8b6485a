"""A pipeline schedule as data: a Grid of Actions, one row per pipeline rank.

An action is one pass of one micro-batch through one stage, `2F4`: stage 2, forward, micro-batch 4. A cell is one action
or two that overlap, `2F4&1B0`. Rows say in which order ranks run their cells, never when: gaps follow from `needs`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from ..base.arrays import Ints
from ..base.errors import shorten

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
KINDS = (FORWARD, BACKWARD, INPUT, WEIGHT)
_ACTION = re.compile(r"(\d{1,6})([FBIW])(\d{1,6})", re.ASCII)
_NEARLY = re.compile(r"\d{0,8}[A-Za-z]?\W?\d{0,8}\W?|[\dFBIW,;:|&.-]+", re.ASCII)

_SHOWN = 40
"""Letters of a text that is no action that are shown."""


class Action(NamedTuple):
    """One pass of a micro-batch through a stage, as `2F4` in text."""

    stage: int  # 0 .. stages-1 in model order
    kind: str  # "F" forward, "B" full backward, "I" input gradient, "W" weight gradient
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def from_text(cls, text: str) -> "Action":
        """Inverts `str`; ValueError with the text that is no action, unless it may be anything, such as a password."""
        if not (found := _ACTION.fullmatch(text)):
            said = repr(shorten(text, _SHOWN)) if _NEARLY.fullmatch(text) else "what stands there"
            form = f"stage, {', '.join(KINDS)} and micro-batch, as in 2F4, numbers of 6 digits at most"
            raise ValueError(f"{said} is no action; expected {form}, with blanks between actions")
        return cls(int(found[1]), found[2], int(found[3]))


Cell = tuple[Action, ...]  # one action, or two that overlap: (forward, backward)
Row = Sequence[Cell]
_NONE = (-1, -1, -1)


class Cells(Sequence[Cell]):
    """A row as an array, whose actions are made when asked for: `columns[cell, i]` is its i-th action as number of the
    kind, stage and micro-batch; -1 where the cell has one action only.
    """

    def __init__(self, columns: Ints):
        self.columns = columns

    @classmethod
    def build(cls, row: Row) -> "Cells":
        """A row of cells as arrays; unknown kinds have the number -1."""
        if isinstance(row, Cells):
            return row
        number = {kind: i for i, kind in enumerate(KINDS)}
        actions = [[(number.get(one.kind, -1), one.stage, one.microbatch) for one in cell] for cell in row]
        return cls(np.array([[*cell, _NONE, _NONE][:2] for cell in actions], np.int64).reshape(-1, 2, 3))

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, cell: int) -> Cell: ...
    @overload
    def __getitem__(self, cell: slice) -> tuple[Cell, ...]: ...

    def __getitem__(self, cell: int | slice) -> Cell | tuple[Cell, ...]:
        if isinstance(cell, slice):
            return tuple(Cells(self.columns[cell]))
        return next(iter(Cells(self.columns[cell][None])))

    def __iter__(self) -> Iterator[Cell]:
        for cell in self.columns.tolist():
            yield tuple(Action(stage, KINDS[kind], microbatch) for kind, stage, microbatch in cell if kind >= 0)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cells):
            return np.array_equal(self.columns, other.columns)
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(len(self))


def weave(forward: Ints, backward: Ints, ahead: int, overlap: bool = False) -> Cells:
    """A row of so many forwards, then a forward and a backward in turn (or overlapped), then the rest of the backwards.

    Both are actions in order: shape [n, 3] of kind, stage and micro-batch.
    """
    n = len(forward)
    first = min(ahead, n)
    pairs = np.stack([forward[first:], backward[: n - first]], axis=1)
    if not overlap:
        pairs = _alone(pairs.reshape(-1, 3))
    return Cells(np.concatenate([_alone(forward[:first]), pairs, _alone(backward[n - first :])]))


def passes(kind: str, stage: int | Ints, microbatch: Ints) -> Ints:
    """Actions of a kind in order, as `weave` takes them."""
    columns = np.broadcast_arrays(KINDS.index(kind), stage, microbatch)
    return np.stack(columns, axis=1).astype(np.int64)


def _alone(actions: Ints) -> Ints:
    """A cell for each action."""
    return np.stack([actions, np.full_like(actions, -1)], axis=1)


@dataclass(frozen=True)
class Grid:
    """The actions of each pipeline rank, in order. Its text is a line per rank; `from_text` reads it back.

    Its micro-batches go through the pipeline in equal `passes`, each of which fills and empties it.
    """

    name: str
    rows: tuple[Row, ...]  # one per pipeline rank
    stages: int
    microbatches: int
    passes: int = 1

    def __str__(self) -> str:
        return "\n".join(" ".join(map(cell_text, row)) for row in self.rows)

    def __hash__(self) -> int:
        """A hash of the sizes only, as rows may hold a million actions; equality compares the rows."""
        return hash((self.name, self.stages, self.microbatches, len(self.rows)))

    @classmethod
    def from_text(cls, text: str, name: str = "") -> "Grid":
        """Inverts `str`; stages and micro-batches are counted."""
        rows = tuple(tuple(cell_of(cell) for cell in line.split()) for line in text.strip("\n").split("\n"))
        actions = [action for row in rows for cell in row for action in cell]
        stages = 1 + max((action.stage for action in actions), default=-1)
        return cls(name, rows, stages, 1 + max((action.microbatch for action in actions), default=-1))

    def repeat(self, passes: int) -> "Grid":
        """This schedule of one pass so many times: a rank begins the next pass as soon as it has ended its own."""
        if passes == 1:
            return self
        later = np.arange(passes)[:, None, None, None] * [0, 0, self.microbatches]
        rows = tuple(
            Cells(np.where(row >= 0, row + later, row).reshape(-1, 2, 3))  # -1 stays where a cell has one action
            for row in self.columns
        )
        return replace(self, rows=rows, microbatches=passes * self.microbatches, passes=passes)

    @property
    def ranks(self) -> int:
        """Number of pipeline ranks."""
        return len(self.rows)

    @property
    def cells(self) -> int:
        """Number of cells, of all ranks together."""
        return sum(map(len, self.rows))

    @cached_property
    def columns(self) -> tuple[Ints, ...]:
        """The rows as arrays, as in Cells."""
        return tuple(Cells.build(row).columns for row in self.rows)

    @cached_property
    def pairs(self) -> bool:
        """Whether any cell overlaps two actions."""
        return any(bool((row[:, 1, 0] >= 0).any()) for row in self.columns)

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank that runs this stage for this micro-batch; in DualPipe it depends on both."""
        return int(self.homes[stage, microbatch])

    @cached_property
    def homes(self) -> Ints:
        """The rank that runs each stage and micro-batch, as an array of both."""
        found = np.full((self.stages, self.microbatches), -1, np.int64)
        for rank, row in enumerate(self.columns):
            kind, stage, microbatch = row.reshape(-1, 3).T
            found[stage[kind >= 0], microbatch[kind >= 0]] = rank
        return found

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages whose parameters the rank holds, ascending."""
        return self._stages[rank]

    def actions(self, rank: int) -> Iterator[Action]:
        """The rank's actions in order, pairs opened."""
        return (action for cell in self.rows[rank] for action in cell)

    @cached_property
    def _stages(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(np.unique(row[row[:, :, 0] >= 0][:, 1]).tolist()) for row in self.columns)

    @cached_property
    def split(self) -> frozenset[tuple[int, int]]:
        """(stage, micro-batch) whose backward is split into input and weight gradient."""
        inputs = [row[row[:, :, 0] == KINDS.index(INPUT)][:, 1:] for row in self.columns]
        return frozenset((stage, microbatch) for row in inputs for stage, microbatch in row.tolist())


def needs(grid: Grid, action: Action) -> list[Action]:
    """The actions for which an action waits, on any rank: the previous stage's data, and its own earlier pass."""
    stage, kind, microbatch = action
    if kind == FORWARD:
        return [Action(stage - 1, FORWARD, microbatch)] if stage else []
    if kind == WEIGHT:
        return [Action(stage, INPUT, microbatch)]
    own = Action(stage, FORWARD, microbatch)
    if stage == grid.stages - 1:
        return [own]
    above = INPUT if (stage + 1, microbatch) in grid.split else BACKWARD
    return [own, Action(stage + 1, above, microbatch)]


def cell_text(cell: Cell) -> str:
    """`2F4`, or `2F4&1B0` for two that overlap."""
    return "&".join(map(str, cell))


def cell_of(text: str) -> Cell:
    """Inverts `cell_text`; a ValueError as `Action.from_text`."""
    return tuple(Action.from_text(action) for action in text.split("&"))
