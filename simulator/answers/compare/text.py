"""A Comparison in words and tables for the terminal, and as an HTML page with both timelines on one axis."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import shorten
from ...base.tables import align
from ...base.units import digits_apart, format_long, format_named, format_probability
from ...figures import Section, Window, compare_steps, difference, draw_timeline, look_at, write_html
from ...report.report import NOT_IN_INTERVAL, Table
from ...uncertainty import Difference
from .comparison import NOTHING, Comparison, Drawn, Side, Term

MOST_INPUTS = 24
"""How many inputs that differ a terminal shows."""
_WIDEST = 44  # characters of a value
_SMALL = 0.0005
_FACTOR = 9.0
_LONG = 1e9  # tokens: more of them are told by their power of ten
_SOURCES = {
    "scenario": "simulated", "report": "a report", "spans": "executed", "run": "measured",
    "trace": "a simulation's trace",
}  # fmt: skip
Row = tuple[str, ...]


def lines(found: Comparison) -> Iterator[str]:
    """The two sides, what differs in them, terms, metrics, and what it comes to."""
    for name, side in (("A", found.a), ("B", found.b)):
        yield f"{name}  {side.label}  ({_SOURCES[side.source]}, {side.where})"
        if side.question:
            yield f"   {side.question}"
    yield from _titled(inputs_title(found), ("key", "A", "B"), input_rows(found)[:MOST_INPUTS])
    if (more := len(found.inputs) - MOST_INPUTS) > 0:
        yield f"and {more} more, all in --html and --json"
    yield from _titled("", term_columns(found), [*term_rows(found), term_row(found, found.total)], right=True)
    yield from _titled("", ("metric", "A", "B", "B to A"), metric_rows(found), right=True)
    yield from metrics_of_one(found)
    yield ""
    yield from sentences(found)


def sentences(found: Comparison) -> Iterator[str]:
    """The difference, which terms make it, how sure it is, and what there is to know of the sides."""
    sure = _uncertainty(found)
    if found.different_work:
        yield from filter(None, (_work_line(found), sure))
    yield headline(found)
    if not found.is_nothing(found.total) and found.largest_terms:
        yield _parts(found)
    if not found.different_work and sure is not None:
        yield sure
    if found.error is not None and found.inputs:
        keys = [row.key for row in found.inputs]
        some = f"{', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''}"
        yield f"the two do not ask the same ({some}): the error is not the prediction's alone"
    yield from (f"{name} does not fit its devices" for name, side in (("A", found.a), ("B", found.b)) if not side.fits)
    for name, side in (("A", found.a), ("B", found.b)):
        yield from (f"{name}, {NOT_IN_INTERVAL.format(line)}" for line in side.not_in_interval)
    if not found.terms:
        without = " and ".join(name for name, side in (("A", found.a), ("B", found.b)) if not side.terms)
        yield f"{without} {'have' if ' ' in without else 'has'} no terms: only totals and metrics are compared"
    for name, side in (("A", found.a), ("B", found.b)):
        if side.source != "scenario":
            yield from (f"note on {name}: {note}" for note in side.notes)


def inputs_title(found: Comparison) -> str:
    """The title of the table of inputs, or the reason why there is none."""
    if found.inputs:
        return "inputs that differ:"
    if found.a.all_inputs and found.b.all_inputs:
        return "no input differs"
    if found.a.hash is not None and found.a.hash == found.b.hash:
        return "both are of one scenario, by its hash"
    common = [key for key in found.a.inputs if key in found.b.inputs]
    return "no input that both sides tell of differs" if common else "the sides tell of no inputs in common"


def input_rows(found: Comparison) -> list[Row]:
    """Key and both values."""
    return [(row.key, _value(row.key, row.a), _value(row.key, row.b)) for row in found.inputs]


def term_columns(found: Comparison) -> Row:
    """Heads of `term_rows`."""
    return ("term", "A", "B", "B - A", "share") + (("error",) if found.error is not None else ())


def term_rows(found: Comparison) -> list[Row]:
    """A row per term: both times, their difference, its share of the total, and the error of a prediction."""
    seen_s = NOTHING * found.a.total_s
    return [term_row(found, term) for term in found.terms if max(abs(term.a_s), abs(term.b_s)) > seen_s]


def metric_rows(found: Comparison) -> list[Row]:
    """A row per metric that both sides have: both values, and B over A."""
    return [
        (row.name, _value(row.name, row.a), _value(row.name, row.b), f"{row.b / row.a:.3f}" if row.a else "-")
        for row in found.metrics
        if row.a is not None and row.b is not None
    ]


def metrics_of_one(found: Comparison) -> list[str]:
    """A line per side that has metrics which the other lacks."""
    only = {"A": [row.name for row in found.metrics if row.b is None],
            "B": [row.name for row in found.metrics if row.a is None]}  # fmt: skip
    return [f"only {side} tells of {', '.join(names)}" for side, names in only.items() if names]


def signed_seconds(seconds: float) -> str:
    """A difference, with its sign."""
    return f"{'+' if seconds > 0 else ''}{format_long(seconds)}"


def term_row(found: Comparison, term: Term) -> Row:
    """A row of `term_rows`, also of the total."""
    share, error = found.share(term), found.error_of(term)
    errors = () if found.error is None else ("-" if error is None else _percent(error),)
    difference = "0 s" if found.is_nothing(term) else signed_seconds(term.difference_s)
    times = format_long(term.a_s), format_long(term.b_s), difference
    return (term.name, *times, "-" if share is None else f"{round(share, 2) + 0.0:.0%}", *errors)


def headline(found: Comparison) -> str:
    """Both totals, and how far they are apart: the error of a prediction, or a difference."""
    digits = digits_apart(found.a.total_s, [found.b.total_s], NOTHING)
    a, b = (format_long(side.total_s, digits) for side in (found.a, found.b))
    if found.error is not None:
        predicted, measured = (a, b) if found.b.measured else (b, a)
        far = found.error >= _FACTOR
        off = f"{found.error + 1:.3g} times as long" if far else f"{_percent(found.error)} off"
        return f"predicted {predicted}, measured {measured}: the prediction is {off}"
    whole = "in all " if found.different_work else ""
    if found.is_nothing(found.total):
        return f"{whole}A and B take the same time, {a}"
    return f"{whole}A takes {a}, B {b}: {_change(found.total)}"


def _work_line(found: Comparison) -> str:
    """That the sides do different work, and how far they are apart for as much of it."""
    unit, (a_s, b_s) = "samples" if found.a.kind == "run" else "tokens", found.verdict[1:]
    digits = digits_apart(a_s, [b_s], NOTHING)
    a, b = (format_long(seconds, digits) for seconds in (a_s, b_s))
    works = " and ".join(f"{work:,.0f}" if work < _LONG else f"{work:.4g}" for work in _works(found))
    change = "the same" if found.same else _change(found.verdict)
    return f"A and B do different work, {works} {unit}; for a million A takes {a}, B {b}: {change}"


def _works(found: Comparison) -> list[float]:
    return [side.work or 0.0 for side in (found.a, found.b)]


def _change(times: Term) -> str:
    """What B takes longer or less."""
    ratio = times.b_s / times.a_s
    change = f"{ratio - 1:+.1%}" if 0.5 <= ratio < 2 else f"{ratio:.3g} times A"
    return f"{format_long(abs(times.difference_s))} {'longer' if times.difference_s > 0 else 'less'} ({change})"


def _parts(found: Comparison) -> str:
    largest = " and ".join(f"{term.name} ({signed_seconds(term.difference_s)})" for term in found.largest_terms)
    text = f"most of it is {largest}"
    against = [term for term in found.opposite_terms if abs(term.difference_s) > _SMALL * abs(found.difference_s)]
    if against:
        text += f"; {', '.join(f'{term.name} ({signed_seconds(term.difference_s)})' for term in against)} the other way"
    return text


def _uncertainty(found: Comparison) -> str | None:
    if found.within_uncertainty is None or (found.same and found.error is None):
        return None
    a, b = found.interval_of(found.a), found.interval_of(found.b)
    if a is None or b is None:
        point, other = ("A", b) if a is None else ("B", a)
        where = "inside" if found.within_uncertainty else "outside"
        return f"{point} is {where} the 90 % interval of the prediction, {_interval(other)}"
    if found.difference is not None:
        return difference_text(found.difference)
    both = f"{_interval(a)} and {_interval(b)}"
    if not found.within_uncertainty:
        return f"the 90 % intervals, {both}, lie apart: more than the uncertainty of the predictions"
    return f"the 90 % intervals, {both}, overlap: within the uncertainty of the predictions"


def difference_text(found: Difference) -> str:
    """How sure a difference is; errors that both sides share do not count."""
    faster, probability = (
        ("B", found.faster_probability) if found.faster_probability >= 0.5 else ("A", 1 - found.faster_probability)
    )
    low, high = found.low - 1, found.high - 1
    between = f"between {low:+.1%} and {high:+.1%} (90 %, without the errors that both share)"
    return f"{faster} is faster with probability {format_probability(probability)}: B takes {between}"


def _interval(interval: tuple[float, float] | None) -> str:
    return " to ".join(map(format_long, interval or ()))


def _value(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shorten(value if isinstance(value, str) else json.dumps(value), _WIDEST)
    return format_named(key, value)


def _percent(error: float) -> str:
    """An error, with its sign; as a factor where it is no small thing."""
    return f"{error:+.1%}" if error < _FACTOR else f"x{error + 1:.3g}"


def _titled(title: str, head: Row, rows: Sequence[Row], right: bool = False) -> Iterator[str]:
    """A table below a title; numbers to the right."""
    if title or rows:
        yield ""
    if title:
        yield title
    if rows:
        yield from align([head, *rows], range(1, len(head)) if right else ())


# As a page: what it comes to, a waterfall, terms, inputs, metrics, both timelines.

Figures = dict[str, Any]
"""Plotly figures by what they show."""
Draw = Callable[[Window | None], Any]
"""A figure of the seconds that are seen, None for all."""


def write_page(found: Comparison, path: Path) -> None:
    """Write the page; a UserError if the file cannot be written."""
    write_html(path, f"{found.a.label} and {found.b.label}", sections(found))


def sections(found: Comparison) -> list[Section]:
    """The parts of the page; those with nothing to show are left out."""
    facts = [(name, f"{side.label}: {side.question or side.where}") for name, side in (("A", found.a), ("B", found.b))]
    inputs, metrics = input_rows(found), metric_rows(found)
    parts = [
        Section("What it comes to", tuple(sentences(found)), facts),
        Section("From A to B", figures=waterfall(found), tables=[
            Table("Seconds by term", term_columns(found), [*term_rows(found), term_row(found, found.total)])
        ]),
        Section("What went in", (inputs_title(found),), tables=[Table("", ("key", "A", "B"), inputs)][: len(inputs)]),
        Section("What else came out", metrics_of_one(found),
                tables=[Table("", ("metric", "A", "B", "B to A"), metrics)][: len(metrics)]),
    ]  # fmt: skip
    drawn = {caption: draw(None) for caption, draw in timelines({"A": found.a, "B": found.b}).items()}
    return parts + ([Section("Timelines", figures=drawn)] if drawn else [])


def waterfall(found: Comparison, caption: str = "Waterfall from A to B") -> Figures:
    """A waterfall of the terms' differences; empty if the sides are equal."""
    if not found.terms or found.is_nothing(found.total):
        return {}
    moved = [(term.name, term.difference_s) for term in found.terms if not found.is_nothing(term)]
    return {caption: difference(moved, found.a.total_s, found.b.total_s)}


def timelines(sides: Mapping[str, Side], most_spans: int | None = None) -> dict[str, Draw]:
    """Sides of one kind by name, drawn the same way over the same seconds; nothing where one has no Timeline.

    Each is drawn for what is seen of it, None for all; `most_spans` as `pipeline` has it.
    """
    drawn = {name: side.drawn for name, side in sides.items() if side.drawn is not None}
    if len(drawn) < len(sides):
        return {}
    *names, last = sides
    together = " and ".join(filter(None, (", ".join(names), last)))
    if all(side.kind == "train_step" for side in sides.values()) and not all(one.grid for one in drawn.values()):
        steps = {name: (one.timeline, one.ranks) for name, one in drawn.items()}
        return {f"Timelines of {together}": lambda window_s: compare_steps(steps, window_s=window_s)}
    whole_s = Window(0.0, max(one.timeline.makespan_s for one in drawn.values()))
    return {f"Timeline of {name}": partial(_drawn, f"{name}: {sides[name].label}", sides[name].kind, one, whole_s,
                                           most_spans)
            for name, one in drawn.items()}  # fmt: skip


def _drawn(
    title: str, kind: str, drawn: Drawn, whole_s: Window, most_spans: int | None, window_s: Window | None
) -> Any:
    figure = draw_timeline(kind, drawn.timeline, drawn.grid, drawn.ranks, title, window_s, most_spans)
    look_at(figure, whole_s, window_s)
    figure.layout.updatemenus = ()  # buttons would move one axis without the other
    return figure
