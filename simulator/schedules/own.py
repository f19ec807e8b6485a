"""A schedule of one's own from a text: a line per pipeline rank, its actions in order.

    # 1F1B, two ranks, three micro-batches
    0F0 0F1 0B0 0F2 0B1 0B2
    1F0 1B0 1F1 1B1 1F2 1B2

`#` begins a comment; empty lines count for nothing. Everything else is the text of a Grid (`Grid.from_text`).
"""

from collections.abc import Iterator
from pathlib import Path

from ..base.errors import UserError
from ..base.files import read_text
from .check import faults
from .grid import Action, Grid, cell_of

_SHOWN = 5
"""Faults that are told; a slip in a text can make hundreds."""


_MOST_BYTES = 2**26  # of a text: some million actions


def load_grid(path: Path) -> Grid:
    """The Grid of a file, named as the file; a UserError if it cannot be read or run, as `read_grid`."""
    text = read_text(path, "a schedule", _MOST_BYTES)
    try:
        return read_grid(text, path.stem)
    except ValueError as error:
        raise UserError(*(f"{path}: {line}" for line in str(error).splitlines())) from None


def read_grid(text: str, name: str) -> Grid:
    """The Grid of a text, checked: every pass once, each stage on one rank, in an order that can run.

    Raises:
        ValueError: a line for each of the first faults, with line and place in the text, or rank and action.
    """
    lines = [(number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1)]
    rows = [tuple(_cells(number, words)) for number, words in lines if words]
    if not rows:
        raise ValueError("holds no actions; expected a line for each pipeline rank, such as 0F0 0F1 0B0 0B1")
    actions = [action for row in rows for cell in row for action in cell]
    _check_counts(actions)
    grid = Grid(name, tuple(rows), *_counts(actions))
    if found := [*_split_stages(grid), *faults(grid)]:
        more = [f"{len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else []
        raise ValueError("\n".join([*found[:_SHOWN], *more]))
    return grid


def _cells(number: int, words: list[str]) -> Iterator[tuple[Action, ...]]:
    for place, word in enumerate(words, 1):
        try:
            yield cell_of(word)
        except ValueError as error:
            raise ValueError(f"line {number}, action {place}: {error}") from None


def _check_counts(actions: list[Action]) -> None:
    """Refuse numbers so large that most stages or micro-batches have no action, before anything is counted by them."""
    stages, microbatches = _counts(actions)
    if (least := 2 * stages * microbatches) > len(actions):
        counted = (
            f"{stages:,} stages and {microbatches:,} micro-batches, counted from 0, need {least:,} actions or more"
        )
        first = next(_missing(actions, stages, microbatches))
        raise ValueError(f"{counted}, a forward and a backward each; there are {len(actions):,}: {first} is missing")


def _counts(actions: list[Action]) -> tuple[int, int]:
    """(stages, micro-batches)."""
    return 1 + max(one.stage for one in actions), 1 + max(one.microbatch for one in actions)


def _missing(actions: list[Action], stages: int, microbatches: int) -> Iterator[str]:
    """The passes of which there is none, the forward before its backward."""
    there = {(one.stage, one.microbatch, one.kind == "F") for one in actions}
    for stage in range(stages):
        for microbatch in range(microbatches):
            for forward in (True, False):
                if (stage, microbatch, forward) not in there:
                    yield f"{stage}{'F' if forward else 'B'}{microbatch}"


def _split_stages(grid: Grid) -> Iterator[str]:
    """Stages on several ranks."""
    ranks: dict[int, set[int]] = {}
    for rank in range(grid.ranks):
        for stage in grid.stages_of(rank):
            ranks.setdefault(stage, set()).add(rank)
    for stage, of in sorted(ranks.items()):
        if len(of) > 1:
            where = ", ".join(map(str, sorted(of)))
            yield f"stage {stage} is on ranks {where}; expected one rank, which holds its weights"
