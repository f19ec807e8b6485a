"""A Report: what a prediction says, whatever its system, as JSON and in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from .metric import Metric


class Table(NamedTuple):
    """A table of a report or a page; cells are shown as they print, numbers to the right."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Report:
    """What every report has; a system adds its numbers, and lists them in `metrics`.

    `exposed` is the critical path in seconds by phase, `provenance` the share of it that rests on numbers of which
    source, `notes` what was assumed where the scenario is silent.
    """

    name: str
    scenario_hash: str
    question: str
    exposed: Mapping[str, float]
    provenance: Mapping[str, float]
    notes: tuple[str, ...]

    kind: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path."""
        return max(self.exposed, key=lambda phase: self.exposed[phase])

    def shown(self) -> tuple[Metric, ...]:
        """The metrics that this report has."""
        return self.metrics

    def to_json(self) -> dict[str, Any]:
        """Plain values in SI units; shares are fractions."""
        who = {"kind": self.kind, "name": self.name, "question": self.question, "scenario_hash": self.scenario_hash}
        return who | {one.name: one.value(self) for one in self.shown()} | {"notes": list(self.notes)}


ROUNDING = 1e-9
"""Shares of a total below this are nothing."""

Interval = tuple[float, float]


class Total(NamedTuple):
    """The time that reports of a kind are compared by: seconds, their 90 % interval, and what they are the sum of."""

    seconds: float
    interval: Interval | None
    terms: Mapping[str, float]


@dataclass(frozen=True)
class Words:
    """A report in words: rows of what and how much, the table of phases, lines below it, and tables for a page.

    `answer` is the time that was asked for, in words.
    """

    answer: str
    rows: Sequence[tuple[str, str]]
    phases: Table
    below: Sequence[str]
    tables: Sequence[Table]


def lines_above(report: Report, words: Words) -> Iterator[str]:
    """What was asked and the answer."""
    yield report.name
    yield f"  {report.question}"
    yield from (f"  {what:<14}{amount}" for what, amount in words.rows)
    yield ""


def lines_below(report: Report, words: Words) -> Iterator[str]:
    """Details, what the numbers rest on, and what was assumed."""
    yield from words.below
    shares = ", ".join(f"{share:.0%} {name}" for name, share in report.provenance.items() if share >= 0.005)
    yield f"the critical path rests on numbers that are {shares}"
    yield from (f"note: {note}" for note in report.notes)
    yield f"scenario {report.scenario_hash}"


def page_tables(report: Report, words: Words) -> list[Table]:
    """All tables of a page."""
    basis = [(name, f"{share:.1%}") for name, share in report.provenance.items()]
    amounts = [(what, " ".join(amount.split())) for what, amount in words.rows]
    rows = [("what", report.question), *amounts, ("scenario", report.scenario_hash)]
    return [
        Table("Result", ("what", "value"), rows),
        words.phases,
        *words.tables,
        Table("What the critical path rests on", ("provenance", "share"), basis),
        Table("Notes", ("assumed where the scenario is silent",), [(note,) for note in report.notes]),
    ]
