"""What differs between two Sides, as data: inputs, terms, metrics, the total. Words are in `text`, a page in `page`."""

from collections.abc import Mapping
from csv import writer
from dataclasses import dataclass
from io import StringIO
from typing import Any, NamedTuple

from ...base.errors import UserError
from ...systems.registry import SYSTEMS
from .side import Side

MOST = 0.8
"""What share of a gap the terms hold that are said to make up most of it."""
NOTHING = 1e-6
"""Of the total: smaller differences are rounding, as traces hold whole nanoseconds of each op."""


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
class Comparison:
    """B held against A; the differences of `terms`, largest first, sum to that of the totals."""

    a: Side
    b: Side
    inputs: tuple[Input, ...]
    terms: tuple[Term, ...]
    metrics: tuple[Metric, ...]

    @property
    def difference_s(self) -> float:
        """What B takes longer."""
        return self.b.total_s - self.a.total_s

    @property
    def same(self) -> bool:
        """Whether both take the same time, but for rounding."""
        return abs(self.difference_s) <= NOTHING * self.a.total_s

    def is_nothing(self, term: Term) -> bool:
        """Whether a term is the same on both sides, but for rounding."""
        return abs(term.difference_s) <= NOTHING * self.a.total_s

    @property
    def ratio(self) -> float:
        """B's time over A's."""
        return self.b.total_s / self.a.total_s

    @property
    def within_uncertainty(self) -> bool | None:
        """Whether the 90 % intervals overlap; a side without one is a point. None where neither has one."""
        if self.a.interval is None and self.b.interval is None:
            return None
        (a_low, a_high), (b_low, b_high) = (side.interval or (side.total_s,) * 2 for side in (self.a, self.b))
        return a_low <= b_high and b_low <= a_high

    @property
    def same_numbers(self) -> bool:
        """Whether both are predicted from one profile and one stack."""
        return self.a.all_inputs and self.b.all_inputs and not {"profile", "stack"} & {row.key for row in self.inputs}

    @property
    def predicted_and_measured(self) -> tuple[Side, Side] | None:
        """The prediction and the measurement, where there is one of each."""
        if self.a.measured == self.b.measured:
            return None
        return (self.b, self.a) if self.a.measured else (self.a, self.b)

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        if self.predicted_and_measured is None:
            return None
        predicted, measured = self.predicted_and_measured
        return predicted.total_s / measured.total_s - 1

    def error_of(self, term: Term) -> float | None:
        """The same for one term; None where nothing was measured of it."""
        predicted_s, measured_s = (term.b_s, term.a_s) if self.a.measured else (term.a_s, term.b_s)
        there = self.predicted_and_measured is not None and measured_s > NOTHING * self.a.total_s
        return predicted_s / measured_s - 1 if there else None

    def share(self, term: Term) -> float | None:
        """What share of the difference of totals a term is; below zero where it goes the other way."""
        return None if self.same or self.is_nothing(term) else term.difference_s / self.difference_s

    @property
    def largest(self) -> tuple[Term, ...]:
        """The fewest terms that hold MOST of what goes the way of the difference."""
        along = [term for term in self.terms if not self.is_nothing(term) and term.difference_s * self.difference_s > 0]
        whole, found = sum(abs(term.difference_s) for term in along), list[Term]()
        for term in along:
            if sum(abs(one.difference_s) for one in found) < MOST * whole:
                found.append(term)
        return tuple(found)

    @property
    def opposed(self) -> tuple[Term, ...]:
        """Terms that go the other way."""
        return tuple(term for term in self.terms if term.difference_s * self.difference_s < 0)

    def to_json(self) -> dict[str, Any]:
        """Plain values; durations in seconds, `share` and `error` as fractions."""
        return {
            "a": _side(self.a),
            "b": _side(self.b),
            "difference_s": self.difference_s,
            "ratio": self.ratio,
            "error": self.error,
            "within_uncertainty": self.within_uncertainty,
            "inputs": [row._asdict() for row in self.inputs],
            "terms": [
                {"term": term.name, "a_s": term.a_s, "b_s": term.b_s, "difference_s": term.difference_s,
                 "share": self.share(term), "error": self.error_of(term)}
                for term in self.terms
            ],
            "metrics": [row._asdict() for row in self.metrics],
        }  # fmt: skip

    def to_csv(self) -> str:
        """A row per term and one of the totals."""
        text = StringIO()
        out = writer(text, lineterminator="\n")
        out.writerow(["term", "a_s", "b_s", "difference_s", "share", "error"])
        for term in self.terms:
            out.writerow([*term, term.difference_s, self.share(term), self.error_of(term)])
        out.writerow(["total", self.a.total_s, self.b.total_s, self.difference_s, 1.0, self.error])
        return text.getvalue()


def compare(a: Side, b: Side) -> Comparison:
    """Hold two sides of one kind against each other.

    Inputs are compared by all keys where both sides know all of theirs, else by those that both have.

    Raises:
        UserError: the two are of different kinds.
    """
    if a.kind != b.kind:
        (one, other) = (f"{side.where} is {SYSTEMS[side.kind].title}" for side in (a, b))
        raise UserError(f"{one}, but {other}: expected two of one kind")
    return Comparison(a, b, _inputs(a, b), _terms(a, b), _metrics(a, b))


def _inputs(a: Side, b: Side) -> tuple[Input, ...]:
    whole = a.all_inputs and b.all_inputs
    keys = (key for key in _either(a.inputs, b.inputs) if whole or (key in a.inputs and key in b.inputs))
    rows = (Input(key, a.inputs.get(key), b.inputs.get(key)) for key in keys)
    return tuple(row for row in rows if row.a != row.b)


def _terms(a: Side, b: Side) -> tuple[Term, ...]:
    if not a.terms or not b.terms:
        return ()
    rows = (Term(name, a.terms.get(name, 0.0), b.terms.get(name, 0.0)) for name in _either(a.terms, b.terms))
    nothing_s = NOTHING * a.total_s
    present = [row for row in rows if row.a_s or row.b_s]
    return tuple(sorted(present, key=lambda row: -abs(row.difference_s) if abs(row.difference_s) > nothing_s else 0.0))


def _metrics(a: Side, b: Side) -> tuple[Metric, ...]:
    rows = (Metric(name, a.metrics.get(name), b.metrics.get(name)) for name in _either(a.metrics, b.metrics))
    return tuple(row for row in rows if row.a or row.b)


def _either(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*a, *b]))


def _side(side: Side) -> dict[str, Any]:
    low, high = side.interval or (None, None)
    return {"where": side.where, "source": side.source, "label": side.label, "kind": side.kind,
            "question": side.question, "scenario_hash": side.hash, "total_s": side.total_s, "interval_low_s": low,
            "interval_high_s": high, "fits": side.fits, "notes": list(side.notes)}  # fmt: skip
