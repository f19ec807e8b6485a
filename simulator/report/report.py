"""A Report: what a prediction says, whatever its system, as JSON and in words."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple

from ..base.tables import align

# A metric: one number of a report, or numbers by name, with its unit, its definition, and which way is better.
#
# Each system lists its metrics once. JSON reports, the columns of sweeps, what `compare` sets side by side and
# docs/reports.md are made from those lists.

Better = Literal["", "lower", "higher"]
Role = Literal["result", "input", "time", "again"]


@dataclass(frozen=True)
class Metric:
    """One metric of a report.

    `unit` is SI, "USD", "1" for counts and shares, or "" for words. `role` says what it is beside other reports: a
    result, an input that results are of, a part of the time that is compared, or what another metric says again.
    `names` are those of numbers by name, of which a `sparse` metric leaves out what is nothing; `by_rank` is a list, or
    lists, of a number for each pipeline rank, and `inner` the kind of a report inside the report. `of` takes it from a
    report: by default the attribute of its name.
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
        """As JSON has it: a number, words, a list, or a table."""
        found = (self.of or attrgetter(self.name))(report)
        return dict(found) if isinstance(found, Mapping) else list(found) if isinstance(found, tuple) else found


def spending(of: str, when: str, suffix: str = "", gpus: str = "all GPUs") -> tuple[Metric, ...]:
    """Money and energy: the amounts of the attribute `of`, a Spending; the names end in `suffix`."""
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


# What a step or an update is made of: seconds by phase and by kind of op, what is exposed, bubble, host.


@dataclass(frozen=True)
class Parts:
    """Seconds of a total by phase, in the order of its waterfall, and what else one asks of them.

    `split_s` sums to the total: of a training step the mean over pipeline ranks of what their compute lanes do or wait
    for, of an update its critical path. `path_s` is the critical path by phase, `class_s` by kind of op.
    `exposed_s` is communication in `split_s`: waits for exchanges of tp, cp, ep, dp and fsdp, or the copies, broadcasts
    and writes of an update; `exposed_path_s` is that on the critical path, sends between stages counted too.
    `bubble_s` is waiting for other stages (None: an update), `host_s` the work of host threads on the critical path,
    `slowed_s` how much longer ops on that of a step take because of what runs beside them.
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
        """As plain values."""
        return vars(self) | {name: dict(getattr(self, name)) for name in ("split_s", "path_s", "class_s", "slowed_s")}


def sum_of(seconds: Mapping[str, float], phases: Iterable[str]) -> float:
    """Seconds of some phases."""
    return sum(seconds.get(phase, 0.0) for phase in phases)


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


def lines(report: Report, words: Words) -> Iterator[str]:
    """A report for a terminal: what was asked, the answer, phases, details, what it rests on, and what was assumed."""
    yield report.name
    yield f"  {report.question}"
    yield from (f"  {what:<14}{amount}" for what, amount in words.rows)
    yield ""
    phases = [list(map(str, row)) for row in (words.phases.headers, *words.phases.rows)]
    yield from align(phases, range(1, len(words.phases.headers) - 1))  # words at both ends, numbers between
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
