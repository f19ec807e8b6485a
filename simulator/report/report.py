"""A Report: the result of a prediction of any system, as JSON and in words."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple

from ..base.tables import align

# A metric: one number of a report, or numbers by name, with its unit, its definition, and which way is better.
#
# Each system lists its metrics once. JSON reports, the columns of sweeps, the terms of `compare` and docs/reports.md
# are made from these lists.

Better = Literal["", "lower", "higher"]
Role = Literal["result", "input", "time", "again"]


@dataclass(frozen=True)
class Metric:
    """One metric of a report.

    `unit` is SI, "USD", "1" for counts and shares, or "" for words. `role` is its role in comparisons: a result, an
    input, a part of the compared time, or a repetition of another metric ("again"). `names` are the keys of a metric
    that is a table; a `sparse` table omits zeros. `by_rank`: it is a list (or lists) with a number for each pipeline
    rank. `inner` is the kind of a report inside the report. `of` reads the metric from a report (default: the attribute
    of its name).
    """

    name: str
    unit: str
    meaning: str
    better: Better = ""
    role: Role = "result"
    names: tuple[str, ...] = ()
    sparse: bool = False
    by_rank: bool = False
    inner: str | None = None
    of: Callable[[Any], Any] | None = None

    def value(self, report: Any) -> Any:
        """The metric's value for JSON: a number, words, a list, or a table."""
        found = (self.of or attrgetter(self.name))(report)
        return dict(found) if isinstance(found, Mapping) else list(found) if isinstance(found, tuple) else found


def spending(of: str, when: str, suffix: str = "", gpus: str = "all GPUs") -> tuple[Metric, ...]:
    """The metrics of money and energy of a report's attribute `of`, a Spending. Their names end in `suffix`."""
    return (
        Metric(f"cost_usd{suffix}", "USD", f"what {gpus} cost {when}", "lower", of=attrgetter(f"{of}.cost_usd")),
        Metric(
            f"energy_j{suffix}", "J", f"the most that {gpus} and their servers draw {when}", "lower",
            "result" if suffix == "_total" else "again", of=attrgetter(f"{of}.energy_j"),
        ),
        Metric(
            f"energy_kwh{suffix}", "kWh", "the same in kilowatt-hours", "lower",
            of=attrgetter(f"{of}.energy_kwh"),
        ),
    )  # fmt: skip


PRICE = Metric(
    "price_usd_per_gpu_hour", "USD/h", "mean price of a GPU", role="input", of=attrgetter("rates.usd_per_gpu_hour")
)


# The parts of a step or an update: seconds by phase and by kind of op, exposed communication, bubble, host.


@dataclass(frozen=True)
class Parts:
    """The parts of a total time in seconds, by phase in the order of the waterfall chart, and sums of some of them.

    `split_s` sums to the total: for a training step it is the mean over pipeline ranks of what their compute lanes do
    or wait for, for an update its critical path. `path_s` is the critical path by phase, `class_s` by kind of op.
    `exposed_s` is the exposed communication in `split_s`: waits for exchanges of tp, cp, ep, dp and fsdp, or copies,
    broadcasts and writes of an update. `exposed_path_s` is exposed communication on the critical path, including sends
    between stages. `bubble_s` is waiting for other stages (None for an update). `host_s` is host work on the critical
    path, and `slowed_s` the extra time of ops on a step's critical path because of ops beside them.
    """

    split_s: Mapping[str, float]
    path_s: Mapping[str, float]
    class_s: Mapping[str, float]
    exposed_s: float
    exposed_path_s: float
    bubble_s: float | None
    host_s: float
    slowed_s: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The parts as plain values for JSON."""
        return vars(self) | {name: dict(getattr(self, name)) for name in ("split_s", "path_s", "class_s", "slowed_s")}


def sum_of(seconds: Mapping[str, float], phases: Iterable[str]) -> float:
    """The sum of the seconds of these phases."""
    return sum(seconds.get(phase, 0.0) for phase in phases)


class Table(NamedTuple):
    """A table of a report or a page. Cells are shown by `str`; numbers are right-aligned."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Report:
    """The fields of every report. A system adds its numbers and lists them in `metrics`.

    `exposed` is the critical path in seconds by phase, `provenance` its share by provenance of the numbers. `notes`
    state assumptions for keys that the scenario does not set, `not_in_interval` what may move the time further than its
    interval says.
    """

    name: str
    scenario_hash: str
    question: str
    exposed: Mapping[str, float]
    provenance: Mapping[str, float]
    notes: tuple[str, ...]
    not_in_interval: tuple[str, ...] = field(default=(), kw_only=True)

    kind: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    optional: ClassVar[tuple[Metric, ...]] = ()
    """Those of the metrics that only some reports of the kind show."""

    @property
    def bound_by(self) -> str:
        """The phase with the largest part of the critical path."""
        return max(self.exposed, key=lambda phase: self.exposed[phase])

    @property
    def interval_notes(self) -> tuple[str, ...]:
        """What makes the interval of the time as wide as it is, one line each; empty where a system does not say."""
        return ()

    @property
    def fits(self) -> bool | None:
        """Whether devices, and hosts that hold what they offload, have enough memory; None where none is predicted."""
        return None

    @property
    def shortage(self) -> str:
        """What needs more memory than there is, in words; empty where all fits, or no memory is predicted."""
        return ""

    @property
    def fits_probability(self) -> float | None:
        """The probability that all devices have enough memory; None where memory has no interval."""
        return None

    def shown_metrics(self) -> tuple[Metric, ...]:
        """The metrics that this report shows."""
        return self.metrics

    def to_json(self) -> dict[str, Any]:
        """The report as plain values in SI units; shares are fractions."""
        who = {"kind": self.kind, "name": self.name, "question": self.question, "scenario_hash": self.scenario_hash}
        return who | {one.name: one.value(self) for one in self.shown_metrics()} | {"notes": list(self.notes)}


NOT_IN_INTERVAL = "not in the interval: {}"

ROUNDING = 1e-9
"""Shares of a total below this count as zero."""

Interval = tuple[float, float]


class Total(NamedTuple):
    """The time by which reports of a kind are compared: seconds, their 90 % interval, and their parts by phase."""

    seconds: float
    interval: Interval | None
    terms: Mapping[str, float]


@dataclass(frozen=True)
class Words:
    """A report in words: (name, amount) rows, the table of phases, lines below it, and tables for a page.

    `answer` is the predicted time in words.
    """

    answer: str
    rows: Sequence[tuple[str, str]]
    phases: Table
    below: Sequence[str]
    tables: Sequence[Table]


def lines(report: Report, words: Words) -> Iterator[str]:
    """The lines of a report for a terminal: question, answer, phases, details, provenance, and notes."""
    yield report.name
    yield f"  {report.question}"
    yield from (f"  {what:<14}{amount}" for what, amount in words.rows)
    yield ""
    phases = [list(map(str, row)) for row in (words.phases.headers, *words.phases.rows)]
    yield from align(phases, range(1, len(words.phases.headers) - 1))  # words at both ends
    yield from words.below
    shares = ", ".join(f"{share:.0%} {name}" for name, share in report.provenance.items() if share >= 0.005)
    yield f"the critical path rests on numbers that are {shares}"
    yield from (f"note: {note}" for note in report.notes)
    yield f"scenario {report.scenario_hash}"


def page_tables(report: Report, words: Words) -> list[Table]:
    """All tables of a report's page."""
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
