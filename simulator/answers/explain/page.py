"""An Explanation as a page: a tornado of its numbers, a waterfall of its phases, and tables."""

from pathlib import Path

from ...base.units import format_seconds
from ...figures import Section, tornado, waterfall, write_html
from ...report.report import Table
from .explanation import Explanation
from .text import (
    KNOB_COLUMNS,
    PART_COLUMNS,
    WHAT_IF_COLUMNS,
    headline,
    knob_label,
    knob_rows,
    part_rows,
    sentences,
    what_if_rows,
)

_BARS = 16


def write_page(path: Path | str, found: Explanation) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    title = f"{found.name}: why {format_seconds(found.total_s)}"
    write_html(path, title, sections(found))


def sections(found: Explanation) -> list[Section]:
    """What the page says, part by part."""
    refused = [(one.name, one.subject, one.reason) for one in found.refused]
    shown = [
        Section("In words", [found.question, headline(found), *sentences(found)], [("scenario", found.scenario_hash)]),
        Section(
            f"What the {found.what} is made of",
            figures={"Waterfall": waterfall(found.parts.split_s, found.what)},
            tables=[Table("Seconds and critical path", PART_COLUMNS, part_rows(found))],
        ),
        Section(
            "What each number is worth",
            figures={"Tornado": tornado(bars(found), found.total_s, found.what)},
            tables=[Table("A tenth better or worse", KNOB_COLUMNS, knob_rows(found.sensitivities))],
        ),
    ]
    if found.quick:
        return shown
    tables = [
        Table("What-ifs, by gain", WHAT_IF_COLUMNS, what_if_rows(found.tried, found)),
        Table("Not allowed here", ("what if", "subject", "why"), refused),
    ]
    return [*shown, Section("What would help", tables=tables)]


def bars(found: Explanation) -> dict[str, tuple[float, float]]:
    """Changes of the total in seconds by number, better and worse."""
    return {knob_label(one.knob): (one.better.change_s, one.worse.change_s) for one in found.sensitivities[:_BARS]}
