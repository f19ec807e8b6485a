"""Collectives as a system: from a checked scenario to its prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...collectives import MEASURED
from ...collectives.algorithms.messages import Term
from ...program import ProgramBuilder
from ...timeline import Timeline
from ..system import System, SystemPrediction
from . import keys
from .jobs import ResolvedJobs, resolve
from .report import TOTAL_NEEDS, CollectiveReport, make_report, total
from .resolve import ResolvedCollective
from .scenario import CollectiveScenario
from .text import words


@dataclass(frozen=True)
class CollectivePrediction(SystemPrediction):
    """A resolved collective, its best algorithm as a timeline, and its report."""

    resolved: ResolvedCollective
    report: CollectiveReport


def predict(resolved: ResolvedCollective) -> CollectivePrediction:
    """Price every size by every algorithm, and report on them."""
    return CollectivePrediction(resolved, _timeline(resolved), make_report(resolved))


class _Span(NamedTuple):
    """A part of a collective, on a lane of its ranks."""

    name: str
    start_s: float
    end_s: float
    lane: str = "comm"


def _timeline(resolved: ResolvedCollective) -> Timeline:
    """The launch and what follows it, on one place for all ranks; its last span ends with the best collective."""
    spans, builder = list(_spans(resolved)), ProgramBuilder()
    ranks = builder.place("ranks", [0])
    lanes = {lane: builder.lane(ranks, lane) for lane in dict.fromkeys(span.lane for span in spans)}
    for span in spans:
        builder.op(resolved.keys.op, [lanes[span.lane]], (), name=span.name)
    start_s, end_s = (np.array([getattr(span, end) for span in spans]) for end in ("start_s", "end_s"))
    many = len(spans)
    return Timeline(builder.build(), start_s, end_s, np.full(many, -1), np.zeros(many, bool))


def _spans(resolved: ResolvedCollective) -> Iterator[_Span]:
    """One span of a fitted curve; else the launch, and the terms of a closed form or all messages together.

    Of jobs it is one span each, the last of which ends last. Of several draws of hashes it is all messages: the terms
    are those of the first one.
    """
    if isinstance(resolved, ResolvedJobs):
        rows = sorted(resolved.job_rows, key=lambda row: row.end_s)
        yield from (_Span(row.algorithm, row.start_s, row.end_s, row.job) for row in rows)
        return
    best = resolved.best
    if best.level == MEASURED:
        yield _Span("fitted curve", 0.0, best.seconds)
        return
    launch_s = resolved.best_net.launch_s
    yield _Span("launch", 0.0, launch_s)
    if best.level == "chunks" or best.draws_low_s is not None:
        yield _Span("messages", launch_s, best.seconds)
    else:
        yield from _spans_of_terms(launch_s, resolved.terms)


def _spans_of_terms(launch_s: float, terms: Sequence[tuple[Term, float]]) -> Iterator[_Span]:
    """One term after the other; those that run beside the one before start with it, on a lane of their own."""
    start_s = end_s = launch_s
    for term, seconds in terms:
        start_s = start_s if term.beside else end_s
        end_s = max(end_s, start_s + seconds)
        name, lane = f"{term.steps:g} steps {' and '.join(term.hops)}", "comm 2" if term.beside else "comm"
        yield _Span(name, start_s, start_s + seconds, lane)


SYSTEM = System(
    kind="collective", title="a collective", short="collective", best="busbw_bytes_per_s",
    schema=CollectiveScenario, resolve=resolve, predict=predict,
    report=CollectiveReport, words=words, total=total, total_needs=TOTAL_NEEDS,
    parts=None, what_ifs=(),
    needs=keys.NEEDS, rivals=keys.RIVALS, pins=keys.PINS,
)  # fmt: skip
