"""A RunExplanation in words and numbers for the terminal, and as a page; nothing is computed here."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...base.tables import align
from ...base.units import format_long, format_seconds
from ...figures import Section, waterfall, write_html
from ...report.report import Table
from ...systems.run.history import CAUSES
from ...systems.run.text import words
from .run import QUEUE, Lever, RunExplanation

_SHOWN = 10
_DAY_S = 86_400.0


def run_lines(found: RunExplanation) -> Iterator[str]:
    """The whole of it."""
    said = words(found.report)
    yield found.report.name
    yield f"  {found.report.question}"
    yield from (f"  {what:<14}{amount}" for what, amount in said.rows)
    yield ""
    yield from sentences(found)
    yield ""
    yield from _aligned(said.phases.headers, said.phases.rows)
    if not found.quick:
        yield from _advice(found)
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


def _advice(found: RunExplanation) -> Iterator[str]:
    best = found.best[:_SHOWN]
    yield from ("", f"what to change first, by {found.aim}:" if best else "nothing that was tried helps")
    if best:
        yield from _aligned(lever_columns(found), lever_rows(best, found))
    if left := len(found.best) - len(best):
        yield f"{left} more save less"
    if hidden := [one.name for one in best if found.is_beyond_chance(one) is False]:
        yield f"less than chance, so that one run does not show it: {'; '.join(hidden)}"
    if found.costly:
        yield f"worse: {'; '.join(f'{one.name} by {-one.gain:.2%}' for one in found.costly)}"
    if found.without_effect:
        yield f"without any effect: {'; '.join(found.without_effect)}"
    yield f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario"


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


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A table: words to the left at both ends, numbers to the right between."""
    yield from align([list(columns), *(list(map(str, row)) for row in rows)], range(1, len(columns) - 1))


def write_run_page(path: Path | str, found: RunExplanation) -> None:
    """Write the page; a UserError if the file cannot be written."""
    write_html(path, f"{found.report.name}: why {format_long(found.report.wall_s)}", _sections(found))


def _sections(found: RunExplanation) -> list[Section]:
    said = words(found.report)
    rows = [*said.rows, ("scenario", found.report.scenario_hash)]
    facts = [(what, " ".join(amount.split())) for what, amount in rows]
    shown = [
        Section("In words", [found.report.question, *sentences(found)], facts),
        Section(
            "What the run is made of",
            figures={"Waterfall": waterfall(found.report.history.breakdown_s, "run")},
            tables=[said.phases],
        ),
    ]
    if found.quick:
        return shown
    effect = [one for one in found.tried if one.has_effect]
    refused = [(one.name, one.reason) for one in found.refused]
    tables = [
        Table(f"What-ifs, by {found.aim}", lever_columns(found), lever_rows(effect, found)),
        Table("Without any effect", ("what if",), [(name,) for name in found.without_effect]),
        Table("Not allowed here", ("what if", "why"), refused),
    ]
    return [*shown, Section("What to change first", tables=tables)]
