"""A CycleExplanation in words and numbers for the terminal, and as a page; nothing is computed here."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ...base.units import format_probability, format_seconds
from ...figures import Section, waterfall, write_html
from ...systems.rl_cycle.text import words
from .by_levers import advice, closing, opening, sections
from .cycle import CycleExplanation, CycleLever

_SHOWN = 12
_AIM = "the time for as many tokens"
COLUMNS = ("what if", "saves", "90 %", "helps with", "step", "tokens/s", "what it is")


def cycle_lines(found: CycleExplanation) -> Iterator[str]:
    """The whole of it."""
    yield from opening(found, words(found.report), sentences(found))
    if not found.quick:
        yield from advice(found, _AIM, _SHOWN, COLUMNS, lever_rows)
        yield from closing(found, digits=1)
    yield f"scenario {found.report.scenario_hash}"


def sentences(found: CycleExplanation) -> Iterator[str]:
    """Sentences on what steps wait for."""
    report = found.report
    shares = sorted(((seconds / report.makespan_s, phase) for phase, seconds in report.exposed.items()), reverse=True)
    parts = ", ".join(f"{phase} {share:.0%}" for share, phase in shares if share >= 0.005)
    yield f"The critical path is {parts}."
    yield f"In {report.tail_s / report.rollout_s:.0%} of a rollout less than half of the usable slots decode."


def lever_rows(shown: Iterable[CycleLever]) -> list[tuple[str, ...]]:
    """A row for each lever."""
    return [
        (
            one.name, f"{one.gain:.1%}", "{:.0%} to {:.0%}".format(*one.gain_interval), format_probability(one.helps),
            format_seconds(one.step_time_s), f"{one.tokens_per_s:,.0f}", one.about,
        )
        for one in shown
    ]  # fmt: skip


def write_cycle_page(path: Path | str, found: CycleExplanation) -> None:
    """Write the page; a UserError if the file cannot be written."""
    write_html(path, f"{found.report.name}: why {format_seconds(found.report.step_time_s)}", _sections(found))


def _sections(found: CycleExplanation) -> list[Section]:
    said, report = words(found.report), found.report
    per_step = {phase: seconds / (report.steps + report.warmup) for phase, seconds in report.exposed.items()}
    parts = Section("What a step waits for", figures={"Waterfall": waterfall(per_step, "step")}, tables=[said.phases])
    return sections(found, said, sentences(found), parts, _AIM, COLUMNS, lever_rows)
