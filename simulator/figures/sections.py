"""A page in sections, each with a heading, text, facts, figures and tables; made and styled like every other page.

Tables keep line breaks in cells, print fractions with one decimal, and stand out where a row holds a `Marked` cell.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..base.files import write_atomic
from ..report.report import Table
from .page import PAGE, SCRIPT, STYLE, figure_html

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Marked(str):
    """Text of a cell that a reader shall not overlook."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of a page; `facts` are pairs of a name and what it is, figures go by what they show."""

    heading: str
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    figures: "Mapping[str, go.Figure]" = {}  # noqa: RUF012 - a Mapping, which nobody writes to
    tables: Sequence[Table] = ()


def sections_html(path: Path | str, title: str, sections: Sequence[Section]) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    write_atomic(path, sections_page(title, sections).encode())


def sections_page(title: str, sections: Sequence[Section]) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    links = "".join(f'<a href="#section-{i}">{escape(part.heading)}</a>' for i, part in enumerate(sections))
    parts = [f"<h1>{escape(title)}</h1>", f'<nav aria-label="Sections">{links}</nav>']
    drawn = 0
    for i, section in enumerate(sections):
        parts.append(_section(i, section, drawn))
        drawn += len(section.figures)
    body, style = "\n".join(parts), STYLE + _MORESTYLE
    return PAGE.format(title=escape(title), style=style, plotly=get_plotlyjs(), body=body, script=SCRIPT)


def _section(number: int, section: Section, drawn: int) -> str:
    """`drawn` is how many figures stand above."""
    parts = [
        f'<section id="section-{number}"><h2>{escape(section.heading)}</h2>',
        *(f"<p>{escape(text)}</p>" for text in section.text),
        _facts(section.facts),
        *(figure_html(i, alt, figure) for i, (alt, figure) in enumerate(section.figures.items(), start=drawn)),
        *(_table(table) for table in section.tables),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>{pairs}</dl>" if pairs else ""


def _table(table: Table) -> str:
    numeric = [_is_numeric(row[i] for row in table.rows) for i in range(len(table.headers))]
    head = "".join(
        f'<th scope="col"{_class("number" if right else "")}>{escape(header)}</th>'
        for header, right in zip(table.headers, numeric, strict=True)
    )
    rows = "\n".join(_row(row, numeric) for row in table.rows)
    return (
        f'<div class="wide"><table><caption>{escape(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _is_numeric(cells: Iterable[object]) -> bool:
    return any(isinstance(cell, int | float) for cell in cells)


def _row(row: Sequence[object], numeric: Sequence[bool]) -> str:
    marked = any(isinstance(cell, Marked) for cell in row)
    cells = "".join(f"<td{_class('number' if n else '')}>{_cell(c)}</td>" for c, n in zip(row, numeric, strict=True))
    return f"<tr{_class('marked' if marked else '')}>{cells}</tr>"


def _cell(value: object) -> str:
    if isinstance(value, Marked):
        return f"<strong>{escape(value)}</strong>"
    if isinstance(value, float):
        return f"{round(value, 1) + 0.0:,.1f}"  # no -0.0
    return f"{value:,d}" if isinstance(value, int) else escape(str(value))


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


_MORESTYLE = """
h2 { font-size: 1.2rem; margin: 40px 0 8px; }
p { max-width: 90ch; margin: 0 0 12px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; }
nav a { color: inherit; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0 0 16px; }
dt { font-weight: 600; }
dd { margin: 0; overflow-wrap: anywhere; }
td { vertical-align: top; white-space: pre-line; }
th { vertical-align: bottom; }
th.number { text-align: right; }
.wide { overflow-x: auto; }
.wide table { font-size: 0.87rem; }
.wide td:last-child:not(.number) { min-width: 9em; }
.marked td { background: rgba(213, 94, 0, 0.13); }
"""
