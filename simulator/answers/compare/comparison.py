"""Two results as data: the time of each as terms that sum to it, its inputs and other metrics; and what differs.

Words are in `text`, a page in `page`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...base.errors import UserError
from ...base.tables import csv_text
from ...report.answer import Answer
from ...report.report import ROUNDING
from ...schedules import Grid
from ...systems.machines import stamp
from ...systems.registry import SYSTEMS
from ...timeline import Timeline
from ...uncertainty import Budget, Difference, difference

if TYPE_CHECKING:
    import pandas as pd

Source = Literal["scenario", "report", "trace", "spans", "run"]
"""Simulated now, or earlier (its report, its trace); executed by `runcast execute`; a real run's trace or log."""

UNNAMED = "unnamed"
"""Of a total: what is smaller is no term."""


class Drawn(NamedTuple):
    """What a figure draws of a side: its Timeline, and a training step's schedule or else the ranks to show."""

    timeline: Timeline
    grid: Grid | None = None
    ranks: Sequence[int] | None = None


@dataclass(frozen=True)
class Side:
    """A result; seconds in `total_s`, `interval` (90 %) and `terms`, which sum to the total or are empty.

    `work` are the tokens or samples that the time is for; None where it tells of none, or of a target that is reached
    with any number of them. `rate_interval` is that of the work per second, None where it is as wide as `interval`.
    `budget` is the error budget of the time, None where it is not known. `inputs` go by keys of a scenario, with dots,
    and by names of a report; `all_inputs` says that none is missing. `metrics` go by the names of a report, units in
    the names; `fits` is False where devices lack memory. `not_in_interval` is as in reports. `rests_on` are the inputs
    that reproduce a prediction.
    """

    where: str
    source: Source
    label: str
    kind: str
    total_s: float
    interval: tuple[float, float] | None = None
    work: float | None = None
    rate_interval: tuple[float, float] | None = None
    budget: Budget | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    all_inputs: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    fits: bool = True
    hash: str | None = None
    question: str = ""
    notes: tuple[str, ...] = ()
    not_in_interval: tuple[str, ...] = ()
    drawn: Drawn | None = None
    rests_on: Mapping[str, Any] | None = None

    @property
    def measured(self) -> bool:
        """Whether this happened on real machines."""
        return self.source in ("spans", "run")

    def to_json(self) -> dict[str, Any]:
        """The side as plain values."""
        low, high = self.interval or (None, None)
        return {"where": self.where, "source": self.source, "label": self.label, "kind": self.kind,
                "question": self.question, "scenario_hash": self.hash, "total_s": self.total_s, "interval_low_s": low,
                "interval_high_s": high, "work": self.work, "fits": self.fits, "notes": list(self.notes),
                "not_in_interval": list(self.not_in_interval), "inputs": self.rests_on}  # fmt: skip


def complete(terms: Mapping[str, float], total_s: float) -> dict[str, float]:
    """The terms, with what they leave of the total as one of its own unless that is rounding."""
    rest_s = total_s - sum(terms.values())
    return {**terms, UNNAMED: rest_s} if terms and abs(rest_s) > ROUNDING * abs(total_s) else dict(terms)


MOST = 0.8
"""What share of a gap the terms hold that are said to make up most of it."""
NOTHING = 1e-6
"""Of the total: smaller differences are rounding, as traces hold whole nanoseconds of each op."""
MILLION = 1e6
_LAST_STEP = 1e-3
"""Of the work: a run ends with a whole step, so that two that are asked for the same may differ by less than this."""


class Input(NamedTuple):
    """A key whose values differ; None where a side has no such key."""

    key: str
    a: object
    b: object


class Metric(NamedTuple):
    """A number that at least one side has."""

    name: str
    a: float | None
    b: float | None


class Term(NamedTuple):
    """A part of the time, in seconds."""

    name: str
    a_s: float
    b_s: float

    @property
    def difference_s(self) -> float:
        """What B takes longer."""
        return self.b_s - self.a_s


@dataclass(frozen=True)
class Comparison(Answer):
    """B held against A; the differences of `terms`, largest first, sum to that of the totals."""

    a: Side
    b: Side
    inputs: tuple[Input, ...]
    terms: tuple[Term, ...]
    metrics: tuple[Metric, ...]

    @property
    def total(self) -> Term:
        """The times of both sides as a term."""
        return Term("total", self.a.total_s, self.b.total_s)

    @property
    def difference_s(self) -> float:
        """What B takes longer."""
        return self.total.difference_s

    @property
    def different_work(self) -> bool:
        """Whether both times are known to be for another number of tokens or samples, and both are predicted."""
        a, b = self.a.work, self.b.work
        return self.error is None and bool(a and b) and abs((b or 0.0) / (a or 1.0) - 1) > _LAST_STEP

    @property
    def verdict(self) -> Term:
        """The times that say which side is faster: those of both, or for a million tokens where their work differs."""
        if not self.different_work:
            return self.total
        return Term("a million", *(MILLION * side.total_s / (side.work or 1.0) for side in (self.a, self.b)))

    @property
    def same(self) -> bool:
        """Whether both take the same time, for as much work, but for rounding."""
        return abs(self.verdict.difference_s) <= NOTHING * self.verdict.a_s

    def is_nothing(self, term: Term) -> bool:
        """Whether a term is the same on both sides, but for rounding."""
        return abs(term.difference_s) <= NOTHING * self.a.total_s

    @property
    def ratio(self) -> float:
        """B's time over A's, for as much work."""
        return self.verdict.b_s / self.verdict.a_s

    def interval_of(self, side: Side) -> tuple[float, float] | None:
        """The 90 % interval of a side's time in the verdict."""
        if not self.different_work or side.interval is None:
            return side.interval
        work = side.work or 1.0
        slow, fast = side.rate_interval or (work / seconds for seconds in reversed(side.interval))
        return MILLION / fast, MILLION / slow

    @property
    def within_uncertainty(self) -> bool | None:
        """Whether the sides may be equal: no difference lies in its 90 % interval, or else in both sides' intervals.

        A side without an interval is a point. None where neither has one.
        """
        if self.difference is not None:
            return self.difference.low <= 1.0 <= self.difference.high
        a, b = self.interval_of(self.a), self.interval_of(self.b)
        if a is None and b is None:
            return None
        (a_low, a_high), (b_low, b_high) = a or (self.verdict.a_s,) * 2, b or (self.verdict.b_s,) * 2
        return a_low <= b_high and b_low <= a_high

    @property
    def difference(self) -> Difference | None:
        """B's time over A's, for as much work, with its interval: errors that both share cancel.

        None unless both errors are known.
        """
        if self.a.budget is None or self.b.budget is None:
            return None
        return difference(self.verdict.a_s, self.verdict.b_s, self.a.budget, self.b.budget)

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; None unless there is one of each."""
        return self.error_of(self.total)

    def error_of(self, term: Term) -> float | None:
        """The relative error of the prediction of one term; None if the term was not measured."""
        predicted_s, measured_s = (term.b_s, term.a_s) if self.a.measured else (term.a_s, term.b_s)
        there = self.a.measured != self.b.measured and measured_s > NOTHING * self.a.total_s
        return predicted_s / measured_s - 1 if there else None

    def share(self, term: Term) -> float | None:
        """A term's share of the difference of totals; negative if it goes the other way."""
        return None if self.is_nothing(self.total) or self.is_nothing(term) else term.difference_s / self.difference_s

    @property
    def largest_terms(self) -> tuple[Term, ...]:
        """The fewest terms that hold MOST of what goes the way of the difference."""
        along = [term for term in self.terms if not self.is_nothing(term) and term.difference_s * self.difference_s > 0]
        whole, found = sum(abs(term.difference_s) for term in along), list[Term]()
        for term in along:
            if sum(abs(one.difference_s) for one in found) < MOST * whole:
                found.append(term)
        return tuple(found)

    @property
    def opposite_terms(self) -> tuple[Term, ...]:
        """Terms that go the other way."""
        return tuple(term for term in self.terms if term.difference_s * self.difference_s < 0)

    def to_json(self) -> dict[str, Any]:
        """Plain values; durations in seconds, `share` and `error` as fractions."""
        content = {
            "kind": "comparison",
            "of": self.a.kind,
            "a": self.a.to_json(),
            "b": self.b.to_json(),
            "difference_s": self.difference_s,
            "different_work": self.different_work,
            "ratio": self.ratio,
            "error": self.error,
            "within_uncertainty": self.within_uncertainty,
            "ratio_low": self.difference and self.difference.low,
            "ratio_high": self.difference and self.difference.high,
            "b_faster_probability": self.difference and self.difference.faster_probability,
            "inputs": [row._asdict() for row in self.inputs],
            "terms": [
                {"term": term.name, "a_s": term.a_s, "b_s": term.b_s, "difference_s": term.difference_s,
                 "share": self.share(term), "error": self.error_of(term)}
                for term in self.terms
            ],
            "metrics": [row._asdict() for row in self.metrics],
        }  # fmt: skip
        return stamp("comparison", content)

    def frame(self) -> "pd.DataFrame":
        """A row per term and one of the totals."""
        import pandas as pd

        return pd.read_csv(StringIO(self.to_csv()))

    def lines(self) -> Iterator[str]:
        """What `runcast compare` prints."""
        from .text import lines

        return lines(self)

    def to_csv(self) -> str:
        """A row per term and one of the totals."""
        rows = [(*term, term.difference_s, self.share(term), self.error_of(term)) for term in self.terms]
        rows.append((*self.total, self.difference_s, 1.0, self.error))
        return csv_text(("term", "a_s", "b_s", "difference_s", "share", "error"), rows)


def compare(a: Side, b: Side) -> Comparison:
    """Hold two sides of one kind against each other; a UserError if they are of different kinds.

    Inputs are compared by all keys where both sides know all of theirs, else by those that both have.
    """
    if a.kind != b.kind:
        (one, other) = (f"{side.where} is {SYSTEMS[side.kind].title}" for side in (a, b))
        raise UserError(f"{one}, but {other}: expected two of one kind")
    whole = a.all_inputs and b.all_inputs
    keys = [key for key in {**a.inputs, **b.inputs} if whole or (key in a.inputs and key in b.inputs)]
    inputs = (Input(key, a.inputs.get(key), b.inputs.get(key)) for key in keys)
    metrics = (Metric(name, a.metrics.get(name), b.metrics.get(name)) for name in {**a.metrics, **b.metrics})
    names = {**a.terms, **b.terms} if a.terms and b.terms else {}
    terms = [Term(name, a.terms.get(name, 0.0), b.terms.get(name, 0.0)) for name in names]
    sizes = {term: abs(term.difference_s) for term in terms if term.a_s or term.b_s}
    ranked = sorted(sizes, key=lambda term: -sizes[term] if sizes[term] > NOTHING * a.total_s else 0.0)
    different = tuple(row for row in inputs if row.a != row.b)
    return Comparison(a, b, different, tuple(ranked), tuple(row for row in metrics if row.a or row.b))
