"""Collectives as a system: from a checked scenario to its prediction."""

from dataclasses import dataclass

import numpy as np

from ...program import ProgramBuilder
from ...timeline import Timeline
from ..system import System, SystemPrediction
from . import keys
from .report import TOTAL_NEEDS, CollectiveReport, make_report, total
from .resolve import ResolvedCollective
from .scenario import CollectiveScenario
from .text import words


@dataclass(frozen=True)
class CollectivePrediction(SystemPrediction):
    """A resolved collective, the terms of its best algorithm as a timeline, and its report."""

    resolved: ResolvedCollective
    report: CollectiveReport


def predict(resolved: ResolvedCollective) -> CollectivePrediction:
    """Price every size by every algorithm, and report on them."""
    return CollectivePrediction(resolved, _timeline(resolved), make_report(resolved))


def _timeline(resolved: ResolvedCollective) -> Timeline:
    """The launch, and the terms of the best closed form one after the other; or one op of a fitted curve."""
    net, op = resolved.net, resolved.keys.op
    spans = [("launch", net.launch_s)]
    spans += [(f"{term.steps:g} steps {' and '.join(term.hops)}", seconds) for term, seconds in resolved.terms]
    if not resolved.terms:
        spans = [("fitted curve", resolved.best.seconds)]
    builder = ProgramBuilder()
    lane = builder.lane(builder.place("ranks", [0]), "comm")
    for name, _ in spans:
        builder.op(op, [lane], (), name=name)
    end_s = np.cumsum([seconds for _, seconds in spans])
    many = len(spans)
    return Timeline(builder.build(), np.array([0.0, *end_s[:-1]]), end_s, np.full(many, -1), np.zeros(many, bool))


SYSTEM = System(
    kind="collective", title="a collective", short="collective", best="busbw_bytes_per_s",
    schema=CollectiveScenario, resolve=ResolvedCollective, predict=predict,
    report=CollectiveReport, words=words, total=total, total_needs=TOTAL_NEEDS,
    parts=None, what_ifs=(),
    needs=keys.NEEDS, rivals=keys.RIVALS, pins=keys.PINS,
)  # fmt: skip
