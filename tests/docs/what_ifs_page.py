"""docs/what-ifs.md as it must be: its tables say which runs they show; `python tests/docs/what_ifs_page.py` fills them.

A table belongs to the last command above it. Code in the head of a column and in the first cell of a row are `--set`
changes to that command; the words after the code in the head name what is shown.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runcast.simulator import UserError, simulate

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/what-ifs.md"
GIB = 2**30

SHOWN: Mapping[str, Callable[[Any], str]] = {
    "s": lambda report: f"{report.update_time_s:.2f}",
    "90 % interval": lambda report: f"{report.interval_low_s:.1f} to {report.interval_high_s:.1f}",
    "bound by": lambda report: report.bound_by,
    "bucket GiB": lambda report: f"{report.bucket_bytes / GIB:.2f}",
    "buckets": lambda report: f"{report.buckets:,}",
    "GiB per device": lambda report: f"{report.peak.bytes / GIB:.1f}",
    "busiest link": lambda report: f"`{report.busiest_link}`, {report.busiest_link_share:.0%}",
    "step s": lambda report: f"{report.step_time_s:.0f}",
    "rollout s": lambda report: f"{report.rollout_s:.0f}",
    "train s": lambda report: f"{report.train_s:.0f}",
    "update s": lambda report: f"{report.update_s:.1f}",
    "trainer idle": lambda report: f"{report.trainer_idle:.0%}",
    "engines idle": lambda report: f"{report.rollout_idle:.0%}",
}
"""What a column may show, by its name."""

_BLOCK = re.compile(r"^```console\n(.*?)^```|^(\|.*?)(?=^[^|]|\Z)", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands of all console blocks, in order."""
    return [line[2:] for block, _ in _BLOCK.findall(text) for line in block.splitlines() if line.startswith("$ ")]


def tables(text: str) -> list[tuple[str, str]]:
    """Each table with the command that it belongs to."""
    found, command = [], ""
    for block, table in _BLOCK.findall(text):
        if table:
            found.append((command, table))
        else:
            command = commands(f"```console\n{block}```")[-1]
    return found


def filled(command: str, table: str) -> str:
    """The table with every cell as the code gives it now."""
    head, line, *rows = table.splitlines()
    columns = [(_changes(cell), _words(cell)) for cell in _cells(head)[1:]]
    return "".join(f"{text}\n" for text in (head, line, *(_row(command, row, columns) for row in rows)))


def page() -> str:
    """The whole page with every table filled."""
    text = PAGE.read_text()
    for command, table in tables(text):
        text = text.replace(table, filled(command, table))
    return text


def _row(command: str, row: str, columns: list[tuple[tuple[str, ...], str]]) -> str:
    first = _cells(row)[0]
    shown = [_cell(command, (*_changes(first), *changes), words) for changes, words in columns]
    return f"| {' | '.join([first, *shown])} |"


def _cell(command: str, changes: tuple[str, ...], words: str) -> str:
    try:
        return SHOWN[words](_report(command, changes))
    except UserError:
        return "refused"


@cache
def _report(command: str, changes: tuple[str, ...]) -> Any:
    _, verb, file, *rest = shlex.split(command)
    given = rest[1::2]
    assert (verb, rest[::2]) == ("simulate", ["--set"] * len(given)), command
    return simulate(ROOT / file, [*given, *changes]).report


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _changes(cell: str) -> tuple[str, ...]:
    return tuple("".join(shlex.split(code)) for code in re.findall(r"`([^`]+=[^`]+)`", cell))


def _words(cell: str) -> str:
    return re.sub(r"`[^`]*`", "", cell).strip()


if __name__ == "__main__":
    PAGE.write_text(page())
