"""The terminal summary of a Report: words and numbers first, then a table of phases. Prints; computes nothing."""

import sys

from rich import table as rich
from rich.console import Console

from ...report.report import Report, Table, lines_above, lines_below
from ...systems.registry import SYSTEMS


def print_summary(report: Report, console: Console | None = None) -> None:
    """Print the headline, what bounds it, the phases, memory and provenance."""
    console = console or Console(highlight=False, soft_wrap=True, no_color=not sys.stdout.isatty())
    words = SYSTEMS[report.kind].words(report)
    for line in lines_above(report, words):
        console.print(line, markup=False)
    console.print(_drawn(words.phases))
    for line in lines_below(report, words):
        console.print(line, markup=False)


def _drawn(table: Table) -> rich.Table:
    """Words at both ends, numbers between."""
    drawn = rich.Table(box=None, pad_edge=False)
    for i, name in enumerate(table.headers):
        drawn.add_column(name, justify="right" if 0 < i < len(table.headers) - 1 else "left")
    for row in table.rows:
        drawn.add_row(*map(str, row))
    return drawn
