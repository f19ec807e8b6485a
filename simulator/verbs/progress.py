"""Progress of long verbs on stderr: a bar on a terminal, a line per tenth of a phase elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

Show = Callable[[str, int, int, str], None]
"""Shows a phase (may be empty), how many are done, how many there are, and details."""


@contextmanager
def show_progress(unit: str, lines: bool = True) -> Iterator[Show]:
    """A function that shows progress, counted in this unit; without `lines` it shows nothing where there is no bar."""
    if sys.stderr.isatty():
        yield from _bar()
        return
    shown = ("", -1)

    def show(phase: str, done: int, total: int, details: str) -> None:
        nonlocal shown
        if lines and (now := (phase, 10 * done // max(total, 1))) != shown:
            shown = now
            typer.echo(f"{phase}{': ' if phase else ''}{done:,} of {total:,} {unit}{details}", err=True)

    yield show


def _bar() -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.fields[rate]}{task.fields[details]}", markup=False)
    left = TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *left, words)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="", details="")

        def show(phase: str, done: int, total: int, details: str) -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:,.1f}/s" if speed else ""
            bar.update(task, description=phase, total=total, completed=done, rate=rate, details=details)

        yield show
