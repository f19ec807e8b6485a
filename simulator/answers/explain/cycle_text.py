"""A CycleExplanation in words and numbers; nothing is computed here."""

from collections.abc import Iterator

from ...base.units import format_probability, format_seconds
from ...systems.rl_cycle.text import words
from .by_levers import LeverWords
from .cycle import CycleExplanation, CycleLever


def cycle_words(found: CycleExplanation) -> LeverWords[CycleLever]:
    """The explanation in words."""
    report = found.report
    return LeverWords(
        title=f"{report.name}: why {format_seconds(report.step_time_s)}",
        said=words(report),
        sentences=tuple(_sentences(found)),
        parts_title="What a step waits for",
        whole="step",
        parts_s={phase: seconds / (report.steps + report.warmup) for phase, seconds in report.exposed.items()},
        aim="the time for as many tokens",
        columns=("what if", "saves", "90 %", "helps with", "step", "tokens/s", "what it is"),
        row=_row,
        most=12,
        digits=1,
    )


def _sentences(found: CycleExplanation) -> Iterator[str]:
    """Sentences on what steps wait for."""
    report = found.report
    shares = sorted(((seconds / report.makespan_s, phase) for phase, seconds in report.exposed.items()), reverse=True)
    parts = ", ".join(f"{phase} {share:.0%}" for share, phase in shares if share >= 0.005)
    yield f"The critical path is {parts}."
    yield f"In {report.tail_s / report.rollout_s:.0%} of a rollout less than half of the usable slots decode."


def _row(one: CycleLever) -> tuple[str, ...]:
    return (
        one.name, f"{one.gain:.1%}", "{:.0%} to {:.0%}".format(*one.gain_interval), format_probability(one.helps),
        format_seconds(one.step_time_s), f"{one.tokens_per_s:,.0f}", one.about,
    )  # fmt: skip
