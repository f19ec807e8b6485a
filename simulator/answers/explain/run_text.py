"""A RunExplanation in words and numbers for the terminal, and as a page; nothing is computed here."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ...base.units import format_long, format_seconds
from ...figures import Section, waterfall, write_html
from ...systems.run.history import CAUSES
from ...systems.run.text import words
from .by_levers import advice, closing, opening, sections
from .run import QUEUE, Lever, RunExplanation

_SHOWN = 10
_DAY_S = 86_400.0


def run_lines(found: RunExplanation) -> Iterator[str]:
    """The whole of it."""
    yield from opening(found, words(found.report), sentences(found))
    if not found.quick:
        yield from advice(found, found.aim, _SHOWN, lever_columns(found), lambda shown: lever_rows(shown, found))
        if hidden := [one.name for one in found.best[:_SHOWN] if found.is_beyond_chance(one) is False]:
            yield f"less than chance, so that one run does not show it: {'; '.join(hidden)}"
        yield from closing(found, digits=2)
    yield f"scenario {found.report.scenario_hash}"


def sentences(found: RunExplanation) -> Iterator[str]:
    """Sentences on where the time goes, and on what chance does."""
    shares = {cause: seconds / (found.report.wall_s or 1.0) for cause, seconds in _seconds(found)}
    yield f"Computing takes {shares.get('compute', 0.0):.1%} of the time."
    if (most := found.largest_loss) is not None:
        yield f"The largest part of the rest is {most}, {shares[most]:.1%}: {CAUSES[most]}."
    if found.chance is not None:
        size = f"{found.chance:.0%}" if found.chance > 0.1 else f"{100 * found.chance:.2g}%"
        yield f"By chance {found.aim} is up to {size} longer or shorter (90 % of runs, from {found.seeds} of them)."


def _seconds(found: RunExplanation) -> Iterable[tuple[str, float]]:
    return found.report.history.breakdown_s.items()


def lever_columns(found: RunExplanation) -> tuple[str, ...]:
    """The columns of `lever_rows`."""
    return ("what if", "saves", "by seed", _result_name(found), "what it is")


def lever_rows(shown: Iterable[Lever], found: RunExplanation) -> list[tuple[str, ...]]:
    """A row for each lever."""
    return [(one.name, f"{one.gain:.2%}", _by_seed(one), _result(one, found), one.about) for one in shown]


def _by_seed(one: Lever) -> str:
    low, high = f"{min(one.gains):.2%}", f"{max(one.gains):.2%}"
    return low if low == high else f"{low} to {high}"


def _result_name(found: RunExplanation) -> str:
    if QUEUE in found.report.history.counts:
        return "mean wait"
    return f"{found.report.unit}/s" if found.report.wall_is_given else "wall clock"


def _result(one: Lever, found: RunExplanation) -> str:
    if one.queue_s is not None:
        return _format(one.queue_s)
    return f"{one.samples_per_s:,.5g}" if found.report.wall_is_given else _format(one.wall_s)


def _format(seconds: float) -> str:
    """A duration with digits that tell levers apart."""
    return f"{seconds / _DAY_S:,.4g} days" if seconds >= 2 * _DAY_S else format_seconds(seconds, 4)


def write_run_page(path: Path | str, found: RunExplanation) -> None:
    """Write the page; a UserError if the file cannot be written."""
    write_html(path, f"{found.report.name}: why {format_long(found.report.wall_s)}", _sections(found))


def _sections(found: RunExplanation) -> list[Section]:
    said = words(found.report)
    drawn = {"Waterfall": waterfall(found.report.history.breakdown_s, "run")}
    parts = Section("What the run is made of", figures=drawn, tables=[said.phases])
    columns = lever_columns(found)
    return sections(found, said, sentences(found), parts, found.aim, columns, lambda shown: lever_rows(shown, found))
