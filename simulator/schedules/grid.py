"""A pipeline schedule as data: a Grid of Actions, one row per pipeline rank.

An action is one pass of one micro-batch through one stage, `2F4`: stage 2, forward, micro-batch 4. A cell is one action
or two that overlap, `2F4&1B0`. Rows say in which order ranks run their cells, never when: gaps follow from `needs`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
KINDS = (FORWARD, BACKWARD, INPUT, WEIGHT)
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


class Action(NamedTuple):
    """One pass of a micro-batch through a stage, as `2F4` in text."""

    stage: int  # 0 .. stages-1 in model order
    kind: str  # "F" forward, "B" full backward, "I" input gradient, "W" weight gradient
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def from_text(cls, text: str) -> "Action":
        """Inverts `str`; ValueError with the text that is no action."""
        if not (found := _ACTION.fullmatch(text)):
            raise ValueError(f"{text!r} is no action; expected stage, {', '.join(KINDS)} and micro-batch, as in 2F4")
        return cls(int(found[1]), found[2], int(found[3]))


Cell = tuple[Action, ...]  # one action, or two that overlap: (forward, backward)
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Grid:
    """What each pipeline rank runs, in order. Its text is a line per rank; `from_text` reads it back."""

    name: str
    rows: tuple[Row, ...]  # one per pipeline rank
    stages: int
    microbatches: int

    def __str__(self) -> str:
        return "\n".join(" ".join(map(cell_text, row)) for row in self.rows)

    def __hash__(self) -> int:
        """Of its sizes, as rows may hold a million actions; equality looks at those."""
        return hash((self.name, self.stages, self.microbatches, len(self.rows)))

    @classmethod
    def from_text(cls, text: str, name: str = "") -> "Grid":
        """Inverts `str`; stages and micro-batches are counted."""
        rows = tuple(tuple(_cell(cell) for cell in line.split()) for line in text.strip("\n").split("\n"))
        actions = [action for row in rows for cell in row for action in cell]
        stages = 1 + max((action.stage for action in actions), default=-1)
        return cls(name, rows, stages, 1 + max((action.microbatch for action in actions), default=-1))

    @property
    def ranks(self) -> int:
        """Number of pipeline ranks."""
        return len(self.rows)

    @property
    def cells(self) -> int:
        """Number of cells, of all ranks together."""
        return sum(map(len, self.rows))

    @cached_property
    def pairs(self) -> bool:
        """Whether any cell overlaps two actions."""
        return any(len(cell) > 1 for row in self.rows for cell in row)

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank that runs this stage for this micro-batch; in DualPipe it depends on both."""
        ranks = self._homes[stage]
        return ranks[0] if len(ranks) == 1 else self._ranks[stage, microbatch]

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages whose parameters the rank holds, ascending."""
        return self._stages[rank]

    def actions(self, rank: int) -> Iterator[Action]:
        """The rank's actions in order, pairs opened."""
        return (action for cell in self.rows[rank] for action in cell)

    @cached_property
    def _stages(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted({one.stage for one in self.actions(rank)})) for rank in range(self.ranks))

    @cached_property
    def _homes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that run each stage."""
        return tuple(tuple(r for r in range(self.ranks) if stage in self._stages[r]) for stage in range(self.stages))

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], int]:
        return {(a.stage, a.microbatch): rank for rank in range(self.ranks) for a in self.actions(rank)}

    @cached_property
    def split(self) -> frozenset[tuple[int, int]]:
        """(stage, micro-batch) whose backward is split into input and weight gradient."""
        ranks = range(self.ranks)
        return frozenset((a.stage, a.microbatch) for rank in ranks for a in self.actions(rank) if a.kind == INPUT)


def needs(grid: Grid, action: Action) -> list[Action]:
    """What an action waits for, on whatever rank: data from the stage before it, and its own earlier pass."""
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


def _cell(text: str) -> Cell:
    return tuple(Action.from_text(action) for action in text.split("&"))
