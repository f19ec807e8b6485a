"""A CycleExplanation in words and numbers for the terminal, and as a page; nothing is computed here."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...base.tables import align
from ...base.units import format_probability, format_seconds
from ...figures import Section, waterfall, write_html
from ...report.report import Table
from ...systems.rl_cycle.text import words
from .cycle import CycleExplanation, CycleLever

_SHOWN = 12
COLUMNS = ("what if", "saves", "90 %", "helps with", "step", "tokens/s", "what it is")


def cycle_lines(found: CycleExplanation) -> Iterator[str]:
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


def sentences(found: CycleExplanation) -> Iterator[str]:
    """Sentences on what steps wait for."""
    report = found.report
    shares = sorted(((seconds / report.makespan_s, phase) for phase, seconds in report.exposed.items()), reverse=True)
    parts = ", ".join(f"{phase} {share:.0%}" for share, phase in shares if share >= 0.005)
    yield f"The critical path is {parts}."
    yield f"In {report.tail_s / report.rollout_s:.0%} of a rollout less than half of the usable slots decode."


def _advice(found: CycleExplanation) -> Iterator[str]:
    best = found.best[:_SHOWN]
    yield from ("", "what to change first, by the time for as many tokens:" if best else "nothing that was tried helps")
    if best:
        yield from _aligned(COLUMNS, lever_rows(best))
    if left := len(found.best) - len(best):
        yield f"{left} more save less"
    if found.costly:
        yield f"worse: {'; '.join(f'{one.name} by {-one.gain:.1%}' for one in found.costly)}"
    if found.without_effect:
        yield f"without any effect: {'; '.join(found.without_effect)}"
    yield f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario"


def lever_rows(shown: Iterable[CycleLever]) -> list[tuple[str, ...]]:
    """A row for each lever."""
    return [
        (
            one.name, f"{one.gain:.1%}", "{:.0%} to {:.0%}".format(*one.gain_interval), format_probability(one.helps),
            format_seconds(one.step_time_s), f"{one.tokens_per_s:,.0f}", one.about,
        )
        for one in shown
    ]  # fmt: skip


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A table: words to the left at both ends, numbers to the right between."""
    yield from align([list(columns), *(list(map(str, row)) for row in rows)], range(1, len(columns) - 1))


def write_cycle_page(path: Path | str, found: CycleExplanation) -> None:
    """Write the page; a UserError if the file cannot be written."""
    write_html(path, f"{found.report.name}: why {format_seconds(found.report.step_time_s)}", _sections(found))


def _sections(found: CycleExplanation) -> list[Section]:
    said = words(found.report)
    facts = [
        (what, " ".join(amount.split())) for what, amount in (*said.rows, ("scenario", found.report.scenario_hash))
    ]
    per_step = {phase: seconds / (found.report.steps + found.report.warmup)
                for phase, seconds in found.report.exposed.items()}  # fmt: skip
    shown = [
        Section("In words", [found.report.question, *sentences(found)], facts),
        Section("What a step waits for", figures={"Waterfall": waterfall(per_step, "step")}, tables=[said.phases]),
    ]
    if found.quick:
        return shown
    effect = [one for one in found.tried if one.has_effect]
    tables = [
        Table("What-ifs, by the time for as many tokens", COLUMNS, lever_rows(effect)),
        Table("Without any effect", ("what if",), [(name,) for name in found.without_effect]),
        Table("Not allowed here", ("what if", "why"), [(one.name, one.reason) for one in found.refused]),
    ]
    return [*shown, Section("What to change first", tables=tables)]
