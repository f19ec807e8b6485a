"""A dry run as text: a line per rank, time to the right."""

from .dry_run import Dry
from .grid import Action


def chart(dry: Dry, unit: float = 1.0) -> str:
    """One column per `unit` of time: `F3` forward of micro-batch 3, `F3'` on the rank's second stage, `.` idle.

    `-` is an action that goes on. Starts between two columns are drawn in the earlier one.
    """
    shown = [_row(dry, rank, unit) for rank in range(dry.grid.ranks)]
    width = max(len(text) for row in shown for text in row)
    return "\n".join(" ".join(text.ljust(width) for text in row).rstrip() for row in shown)


def _row(dry: Dry, rank: int, unit: float) -> list[str]:
    stages = dry.grid.stages_of(rank)
    columns = ["."] * round(dry.makespan / unit)
    for cell in dry.grid.rows[rank]:
        first, end = (int(time[cell[0]] / unit + 1e-9) for time in (dry.start, dry.end))
        columns[first:end] = ["-"] * (end - first)
        columns[first] = "&".join(_label(action, stages.index(action.stage)) for action in cell)
    return columns


def _label(action: Action, chunk: int) -> str:
    return f"{action.kind}{action.microbatch}{chr(39) * chunk}"
