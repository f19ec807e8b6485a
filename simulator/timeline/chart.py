"""Gantt charts as data: the row on which each op is drawn, its label; figures draw it elsewhere.

The rows of a weight update are buffers, as in the design: an op stands on the buffer that it writes, a reload on the
half that it reads, and all that only prepares, synchronises or cleans up in a row of its own. Rows of other Programs
are lanes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.op_kinds import KINDS
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
MINOR = frozenset(name for name, kind in KINDS.items() if kind.minor)
"""Kinds that only prepare, synchronise or clean up in updates that start at trainers; their rows are lanes."""


def has_buffer_rows(program: Program) -> bool:
    """Whether the rows of the Program's chart are buffers: it has the two halves of a weight update."""
    return {"ipc0", "ipc1"} <= {buffer.name for buffer in program.buffers}


def chart(timeline: Timeline, ranks: Sequence[int] | None = None) -> "pd.DataFrame":
    """The rows of `spans_of_ranks` with `row` and `label`; with buffers as rows, each op stands once per rank."""
    spans = spans_of_ranks(timeline, ranks)
    if not has_buffer_rows(timeline.program):
        return spans.assign(row=spans.lane, label=[_label(timeline.program, kind) for kind in spans.kind])
    spans = spans.drop_duplicates(["rank", "op"], ignore_index=True)
    labels = [LABEL.get(key, STEP) for key in zip(spans.kind, spans.role, strict=True)]
    return spans.assign(row=_rows_of_ops(timeline.program)[spans.op], label=labels)


def row_names(program: Program) -> list[str]:
    """The rows that a rank may have, from top to bottom."""
    if has_buffer_rows(program):
        return [*ROW_OF_BUFFER.values(), STEPS]
    return list(dict.fromkeys(lane.name for lane in program.lanes))


def labels(program: Program) -> list[str]:
    """The labels that ops may have, in the order of a legend."""
    if has_buffer_rows(program):
        return [*LABEL.values(), STEP]
    return list(dict.fromkeys(_label(program, kind) for kind in program.kinds))


def _label(program: Program, kind: str) -> str:
    return STEP if kind in MINOR and "begin" in program.kinds else kind


def _rows_of_ops(program: Program) -> NDArray[np.object_]:
    """The row of each op: its buffer's if it moves weights, else that of the other steps."""
    op, access = program.accesses.row_of_value(), program.accesses.values
    names = [ROW_OF_BUFFER.get(buffer.name, "") for buffer in program.buffers]
    row = np.array([names[access.buffer] for access in program.access_table], object)[access]
    writes = np.array([access.write for access in program.access_table], bool)[access]
    wanted = (row != "") & (program.is_kind("reload")[op] != writes)
    rows = np.full(len(program), STEPS, object)
    rows[op[wanted]] = row[wanted]
    rows[~program.is_kind(*(kind for kind, _ in LABEL))] = STEPS
    return rows
