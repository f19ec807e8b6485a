"""Pieces that pages are made of: numbers with their names, figures with a heading, choices, alerts, notes, links."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import dash_mantine_components as dmc
from dash import dcc, html

from ..simulator.base.units import (
    format_bytes,
    format_energy,
    format_long,
    format_named,
    format_probability,
    format_rate,
    format_seconds,
    format_usd,
)
from ..simulator.report.report import Metric, Report

if TYPE_CHECKING:
    from dash.development.base_component import Component

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"],
}
_BY_UNIT = {"s": format_seconds, "B": format_bytes, "B/s": format_rate, "USD": format_usd, "J": format_energy,
            "1/s": "{:,.0f}".format}  # fmt: skip
_NAMES = {
    "mfu": "MFU", "peak_memory_bytes": "Memory", "effective_bytes_per_s": "Rate", "tokens_per_s": "Throughput",
    "algbw_bytes_per_s": "Algorithm bandwidth", "busbw_bytes_per_s": "Bus bandwidth", "seconds": "Time",
}  # fmt: skip
"""Of metrics that people call otherwise than their columns."""


class Card(NamedTuple):
    """A number with its name, small print below it, and what it means; `bad` is one that must not be overlooked."""

    name: str
    value: str
    small: str = ""
    meaning: str = ""
    bad: bool = False


def cards(report: Report, notes: Mapping[str, str]) -> list[Card]:
    """Metrics of a report by their names, with small print for each."""
    metrics = {one.name: one for one in report.shown_metrics()}
    return [Card(_name(name), _value(metrics[name], report), note, metrics[name].meaning)
            for name, note in notes.items()]  # fmt: skip


def _name(metric: str) -> str:
    words = re.sub("_(s|usd|j|bytes|fraction)$", "", metric).replace("_", " ")
    return _NAMES.get(metric, words.capitalize())


def _value(metric: Metric, report: Report) -> str:
    value = metric.value(report)
    if value is None or isinstance(value, str):
        return value or "unknown"
    return _BY_UNIT[metric.unit](value) if metric.unit in _BY_UNIT else format_named(metric.name, value)


def headline(report: Report, found: "Iterable[Card | tuple[str, ...]]", lines: Iterable[str] = ()) -> "list[Component]":
    """The answer of a report first, its other numbers, what was asked and more `lines`, and notes that one opens."""
    said = [*report.interval_notes, *report.notes, f"scenario {report.scenario_hash}"]
    opened = html.Details([html.Summary(f"{len(said)} notes: intervals and assumptions"), notes(said)])
    return [headed_numbers(found), notes([report.question, *lines]), opened]


def headed_numbers(found: "Iterable[Card | tuple[str, ...]]") -> "Component":
    """Cards of which the first is the answer."""
    return html.Div(numbers(found), className="headline")


def numbers(found: Iterable[Card | tuple[str, ...]]) -> "Component":
    """Cards beside each other; what a number means is told under the mouse."""
    drawn = [
        html.Div([html.Dt(name), html.Dd([value, html.Small(unbroken(small)) if small else None])],
                 className="number bad" if bad else "number", **({"title": meaning} if meaning else {}))
        for name, value, small, meaning, bad in (Card(*one) for one in found)
    ]  # fmt: skip
    return html.Dl(drawn, className="numbers")


def unbroken(text: str) -> str:
    """Text in which no line ends between a number and its unit."""
    return re.sub(r"(?<=\d) (?=[%A-Za-z])", "\u00a0", text)


def interval(low_s: float, high_s: float) -> str:
    """The 90 % interval of a time."""
    return f"90 %: {format_long(low_s)} to {format_long(high_s)}"


def fits(fitting: bool, probability: float | None) -> str:
    """Whether all devices have enough memory; `probability` is None where memory has no interval."""
    if not fitting:
        return "does not fit"
    return "fits" if probability is None else f"fits with probability {format_probability(probability)}"


def shortage(report: Report) -> Iterator[Card]:
    """A card that says what lacks memory, where anything does."""
    if report.shortage:
        yield Card("Memory", "does not fit", report.shortage, bad=True)


def heading(caption: str, level: int = 2) -> "Component":
    """The heading of a section with a figure, and buttons that save this one (assets/saves.js)."""
    buttons = [
        dmc.Button(kind, size="xs", variant="default",
                   **{"data-save": kind.lower(), "data-name": caption, "aria-label": f"{caption} as {kind}"})
        for kind in ("PNG", "SVG")
    ]  # fmt: skip
    title = (html.H2 if level == 2 else html.H3)(caption)
    return html.Div([title, html.Div(buttons, className="saves")], className="headed")


def figure(
    caption: str, drawn: Any, *above: "Component", around: str = "wide", level: int = 2, hint: str = "", **graph: Any
) -> "Component":
    """A plotly figure below its heading, a hint how to use it and what else stands `above` it; `graph` are further
    properties of the Graph.
    """
    scrolled = {"tabIndex": 0, "role": "region", "aria-label": caption}
    inside = html.Div(dcc.Graph(figure=drawn, **({"config": CONFIG} | graph)), className=around, **scrolled)
    return html.Section([heading(caption, level), notes([hint]) if hint else None, *above, inside])


def figures(drawn: Mapping[str, Any]) -> "list[Component]":
    """Plotly figures below their headings."""
    return [figure(caption, one) for caption, one in drawn.items()]


def choice(id: Any, label: str, data: Any, value: Any, **more: Any) -> "Component":
    """A choice that one finds by typing; `data` are texts, or as `groups` and `options` give them."""
    return dmc.Select(
        id=id, label=label, data=data, value=value, **({"searchable": True, "allowDeselect": False} | more)
    )


def options(labels: Mapping[str, str]) -> list[dict[str, str]]:
    """Values of a choice, and what each is called."""
    return [{"value": value, "label": label} for value, label in labels.items()]


def groups(labels: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Options below captions; those without any are left out."""
    return [{"group": caption, "items": options(some)} for caption, some in labels.items() if some]


def button(text: str, id: Any, **more: Any) -> "Component":
    """A small button of plain looks."""
    return dmc.Button(text, id=id, **({"variant": "default", "size": "xs"} | more))


def without_folders(line: str) -> str:
    """A message in which files go by their names alone: where they are is nobody's business in a browser."""
    return re.sub(r"(?<![\w.])/(?:[^/\s:][^/\n:]*/)+", "", line)


def alert(title: str, lines: "Iterable[str | Component]", color: str = "red", **more: Any) -> "Component":
    """A box with errors or missing things, one line each, as text."""
    said = [without_folders(line) if isinstance(line, str) else line for line in lines]
    return dmc.Alert([html.P(line) for line in said], title=title, color=color, **more)


def notes(lines: Iterable[str]) -> "Component":
    """Small print, one line each."""
    return html.Div([html.P(line, className="said") for line in lines])


def link_row(caption: str, links: "Sequence[Component]", of: str = "") -> "Component":
    """Links behind a caption; `of` tells them apart, for screen readers, from others of the page with this caption."""
    items = html.Ul([html.Li(link) for link in links])
    label = f"{caption}: {of}" if of else caption
    return html.Nav([html.Span(caption), items], className="links", **{"aria-label": label})
