"""The interval of a prediction to first order: errors of the ops on its critical path, which is taken as given.

Intervals are multiplicative: a time is never negative, errors are stated and fitted as logarithms, and a factor of two
is as far up as it is down. To first order in a small error that is the same as adding.
"""

from dataclasses import dataclass
from math import exp, log1p, sqrt

import numpy as np

from ..profile import Z90
from ..timeline.insight import CriticalPath
from .errors import Errors


@dataclass(frozen=True)
class Interval:
    """Seconds between which nine of ten measurements should lie."""

    low_s: float
    high_s: float


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


def variances(path: CriticalPath, errors: Errors, answer_s: float) -> tuple[float, float]:
    """Of seconds over `answer_s` by spreads of ops, and of ln(seconds) by factors of phases and of the whole."""
    share = path.seconds / answer_s
    by_class = np.bincount(errors.cost_class[path.ops], share * errors.of_class[path.ops])
    alone = share * errors.of_op[path.ops]
    by_phase = errors.seconds_by_phase(path.ops, share)
    factors = float(by_phase @ errors.by_phase @ by_phase)
    return float((by_class**2).sum() + (alone**2).sum()), factors + errors.floor**2
