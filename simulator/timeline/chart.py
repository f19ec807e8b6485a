"""Gantt charts as data: the row on which each op is drawn, its label; and the chart as text. Figures draw it elsewhere.

The rows of a weight update are buffers, as in the design: an op stands on the buffer that it writes, a reload on the
half that it reads, and all that only prepares, synchronises or cleans up in a row of its own. Rows of other Programs
are lanes.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from string import ascii_letters
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..program import Program
from .ranks import spans_of_ranks
from .timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

ROW_OF_BUFFER = {"h2d": "H2D buffer", "ipc0": "IPC half 0", "ipc1": "IPC half 1"}
STEPS = "other steps"
LABEL = {
    ("h2d", ""): "H2D",
    ("copy", ""): "copy",
    ("broadcast", "src"): "broadcast (source)",
    ("broadcast", "dst"): "broadcast (destination)",
    ("reload", ""): "reload",
}
STEP = "set-up, sync, clean-up"
MINOR = frozenset({
    "pause", "begin", "allocate", "init_group", "register_tensors", "send_meta", "wait_worker", "post_hook", "barrier",
    "resume",
})  # fmt: skip
"""Kinds that only prepare, synchronise or clean up in updates that start at trainers; their rows are lanes."""
LETTER = {"H2D": "H", "copy": "C", "broadcast (source)": "S", "broadcast (destination)": "d", "reload": "L", STEP: "x"}


def by_buffers(program: Program) -> bool:
    """Whether the rows of the Program's chart are buffers: it has the two halves of a weight update."""
    return {"ipc0", "ipc1"} <= {buffer.name for buffer in program.buffers}


def chart(timeline: Timeline, ranks: Sequence[int] | None = None) -> "pd.DataFrame":
    """The rows of `spans_of_ranks` with `row` and `label`; with buffers as rows, each op stands once per rank."""
    spans = spans_of_ranks(timeline, ranks)
    if not by_buffers(timeline.program):
        return spans.assign(row=spans.lane, label=[_label(timeline.program, kind) for kind in spans.kind])
    spans = spans.drop_duplicates(["rank", "op"], ignore_index=True)
    labels = [LABEL.get(key, STEP) for key in zip(spans.kind, spans.role, strict=True)]
    return spans.assign(row=_rows_of_ops(timeline.program)[spans.op], label=labels)


def row_names(program: Program) -> list[str]:
    """The rows that a rank may have, from top to bottom."""
    if by_buffers(program):
        return [*ROW_OF_BUFFER.values(), STEPS]
    return list(dict.fromkeys(lane.name for lane in program.lanes))


def labels(program: Program) -> list[str]:
    """The labels that ops may have, in the order of a legend."""
    if by_buffers(program):
        return [*LABEL.values(), STEP]
    return list(dict.fromkeys(_label(program, kind) for kind in program.kinds))


def _label(program: Program, kind: str) -> str:
    return STEP if kind in MINOR and "begin" in program.kinds else kind


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
    bars: "pd.DataFrame", names: Sequence[str], letters: Mapping[str, str], unit_s: float, columns: int
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


def _rows_of_ops(program: Program) -> NDArray[np.object_]:
    """The row of each op: its buffer's if it moves weights, else that of the other steps."""
    op, access = program.accesses.row_of_value(), program.accesses.values
    names = [ROW_OF_BUFFER.get(buffer.name, "") for buffer in program.buffers]
    row = np.array([names[access.buffer] for access in program.access_table], object)[access]
    writes = np.array([access.write for access in program.access_table], bool)[access]
    wanted = (row != "") & (program.of_kind("reload")[op] != writes)
    rows = np.full(len(program), STEPS, object)
    rows[op[wanted]] = row[wanted]
    rows[~program.of_kind(*(kind for kind, _ in LABEL))] = STEPS
    return rows


def _cells(bars: "pd.DataFrame", letters: Mapping[str, str], unit_s: float, columns: int) -> str:
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
