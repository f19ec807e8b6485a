"""The interval of a prediction to first order: errors of the ops on its critical path, which is taken as given.

Intervals are multiplicative: a time is never negative, errors are stated and fitted as logarithms, and a factor of two
is as far up as it is down. To first order in a small error that is the same as adding.
"""

from dataclasses import dataclass
from math import exp, log1p, sqrt

import numpy as np

from ..insight import CriticalPath, critical_path
from ..profile import Z90
from ..scenario import Resolved, ResolvedTrain
from ..timeline import Timeline
from .errors import Errors, errors_of


@dataclass(frozen=True)
class Interval:
    """Seconds between which nine of ten measurements should lie."""

    low_s: float
    high_s: float


def interval(resolved: Resolved | ResolvedTrain, timeline: Timeline, path: CriticalPath | None = None) -> Interval:
    """Of a step, or of an update as its report counts it; `path` is its critical path, if that is known."""
    answer = answered_s(resolved, timeline)
    path = path or critical_path(timeline, timeline.makespan_s - answer)
    return of_path(path, errors_of(resolved), answer)


def of_path(path: CriticalPath, errors: Errors, answer_s: float) -> Interval:
    """The interval of a path that takes `answer_s`.

    Spreads are relative standard deviations about a mean, factors of phases are so about a median: the sum of the
    former is taken as a lognormal of equal mean and deviation (Fenton and Wilkinson), whose median lies lower.
    """
    if answer_s <= 0:
        return Interval(0.0, 0.0)
    spreads, logs = variances(path, errors, answer_s)
    log_spread = log1p(spreads)
    middle, reach = answer_s * exp(-log_spread / 2), exp(Z90 * sqrt(log_spread + logs))
    return Interval(middle / reach, middle * reach)


def answered_s(resolved: Resolved | ResolvedTrain, timeline: Timeline) -> float:
    """Seconds that the report of a scenario leads with: of a step all, of an update what is timed as the update."""
    if isinstance(resolved, ResolvedTrain):
        return timeline.makespan_s
    return timeline.makespan_s - timeline.span_of(resolved.opening)[1]


def variances(path: CriticalPath, errors: Errors, answer_s: float) -> tuple[float, float]:
    """Of seconds over `answer_s` by spreads of ops, and of ln(seconds) by factors of phases and of the whole."""
    share = path.seconds / answer_s
    by_class = np.bincount(errors.cost_class[path.ops], share * errors.of_class[path.ops])
    alone = share * errors.of_op[path.ops]
    by_phase = errors.seconds_by_phase(path.ops, share)
    factors = float(by_phase @ errors.by_phase @ by_phase)
    return float((by_class**2).sum() + (alone**2).sum()), factors + errors.floor**2
