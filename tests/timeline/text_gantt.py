"""Gantt charts in letters, for goldens that a human can read."""

from collections.abc import Mapping, Sequence
from itertools import chain
from string import ascii_letters

import numpy as np
import pandas as pd
from runcast.simulator.program import Program
from runcast.simulator.timeline import Timeline, chart
from runcast.simulator.timeline.chart import STEP, labels, row_names

LETTER = {"H2D": "H", "copy": "C", "broadcast (source)": "S", "broadcast (destination)": "d", "reload": "L", STEP: "x"}


def text_gantt(timeline: Timeline, unit_s: float, ranks: Sequence[int] | None = None) -> str:
    """The chart in letters, one column per `unit_s`: what runs at the middle of it, `.` where nothing does.

    Rows in which nothing takes time are left out; the last line says what the letters mean.
    """
    bars = chart(timeline, ranks)
    bars = bars[bars.end_s > bars.start_s]
    letters = _letters(timeline.program)
    lines = _lines(bars, row_names(timeline.program), letters, unit_s, round(timeline.makespan_s / unit_s))
    legend = ", ".join(f"{letter} = {label}" for label, letter in letters.items() if label in set(bars.label))
    return "\n".join([*lines, "", legend, ""])


def _lines(
    bars: pd.DataFrame, names: Sequence[str], letters: Mapping[str, str], unit_s: float, columns: int
) -> list[str]:
    """A ruler, and per rank its rows in the order of `names`; the first of them names the device."""
    table = [("time", "", _ruler(columns, unit_s))]
    for rank in sorted(set(bars["rank"])):
        own = bars[bars["rank"] == rank]
        rows = [name for name in names if name in set(own.row)]
        heads = [f"dev {rank}", *[""] * len(rows)]
        table += [
            (head, row, _cells(own[own.row == row], letters, unit_s, columns))
            for head, row in zip(heads, rows, strict=False)
        ]
    left, middle = (max(len(line[i]) for line in table) + 2 for i in (0, 1))
    return [f"{head:{left}}{row:{middle}}{cells}".rstrip() for head, row, cells in table]


def _cells(bars: pd.DataFrame, letters: Mapping[str, str], unit_s: float, columns: int) -> str:
    cells = ["."] * columns
    middle = (np.arange(columns) + 0.5) * unit_s
    first, last = np.searchsorted(middle, bars.start_s), np.searchsorted(middle, bars.end_s)
    for start, end, label in zip(first.tolist(), last.tolist(), bars.label, strict=True):
        cells[start:end] = letters[label] * (end - start)
    return "".join(cells)


def _letters(program: Program) -> dict[str, str]:
    """A letter for each label: its own if free, else any that is left."""
    letters: dict[str, str] = {}
    for label in labels(program):
        wishes = chain(LETTER.get(label, ""), label, label.upper(), ascii_letters)
        letters[label] = next((x for x in wishes if x.isalpha() and x not in letters.values()), "?")
    return letters


def _ruler(columns: int, unit_s: float) -> str:
    """Times above every fourth column, or fewer where they would touch."""
    step = next(n for n in (4, 8, 16, 32) if n > len(f"{columns * unit_s:g}") or n == 32)
    return "".join(f"{column * unit_s:<{step}g}" for column in range(0, columns + 1, step)).rstrip()
