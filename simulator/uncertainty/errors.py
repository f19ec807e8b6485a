"""The model of error: what the seconds of ops may be off by, and which of them are off together.

The time of an op is off by the product of
- the factor of its phase, one error per parameter of software and device (`factors`);
- the error of its cost class, one for all ops of the class, each as far as its own spread says (`of_class`);
- its own error (`of_op`), independent from op to op.
Steps of the ledger fitted the factors, and so took in what kernels of a device share; there what is left of a spread
differs from op to op, but for what awkward shapes add, which no step of the ledger had. A device that no step ran on,
phases without a factor, and updates have no such fit: there a spread is shared by the class.

Beside that the uneven load of experts is one error of their phases, and the step as a whole is off by `floor`.

The interval of a prediction to first order is by the errors of the ops on its critical path, which is taken as given.
Intervals are multiplicative: a time is never negative, errors are stated and fitted as logarithms, and a factor of two
is as far up as it is down. To first order in a small error that is the same as adding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log1p, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from ..costs import PHASES, Costs
from ..insight import CriticalPath
from ..profile import Z90, Profile

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Errors:
    """One entry per op unless said otherwise. `by_phase` and `floor` are of logarithms, `of_class` and `of_op` relative
    standard deviations about a mean of 1.

    `by_phase` is the covariance of the factors of phases, shape [len(PHASES), len(PHASES)]. `phase` indexes PHASES; an
    op that is a whole action has its number in `part`, others -1, and `mix` the shares of phases in the time of each
    part, shape [parts, len(PHASES)]. `of_class` is shared by ops of one `cost_class`, `of_op` by none. `floor` is of
    the whole.
    """

    by_phase: Floats
    phase: NDArray[np.int64]
    part: NDArray[np.int64]
    mix: Floats
    of_class: Floats
    cost_class: NDArray[np.int64]
    of_op: Floats
    floor: float

    def seconds_by_phase(self, ops: NDArray[np.int64], seconds: Floats) -> Floats:
        """Seconds of some ops by phase, whole actions by their mix."""
        part = self.part[ops]
        found = np.bincount(self.phase[ops], seconds * (part < 0), minlength=len(PHASES))
        mixed: Floats = found + seconds[part >= 0] @ self.mix[part[part >= 0]]
        return mixed

    def factor_of_op(self, factor: Floats) -> Floats:
        """How many times as long each op takes if phases take so many times as long."""
        found = factor[self.phase]
        whole = self.part >= 0
        found[whole] = (self.mix @ factor)[self.part[whole]]
        return found


def spread_errors(costs: Costs) -> Errors:
    """Of costs alone: ops of a class share one error, each as far as its own spread says."""
    ops = len(costs.spread)
    return Errors(
        by_phase=np.zeros((len(PHASES), len(PHASES))),
        phase=np.zeros(ops, np.int64),
        part=np.full(ops, -1, np.int64),
        mix=np.zeros((0, len(PHASES))),
        of_class=costs.spread,
        cost_class=costs.cost_class,
        of_op=np.zeros(ops),
        floor=0.0,
    )


@dataclass(frozen=True)
class Interval:
    """Seconds between which nine of ten measurements should lie."""

    low_s: float
    high_s: float


def path_interval(path: CriticalPath, errors: Errors, answer_s: float) -> Interval:
    """The interval of a path that takes `answer_s`.

    Spreads are relative standard deviations about a mean, factors of phases are so about a median: the sum of the
    former is taken as a lognormal of equal mean and deviation (Fenton and Wilkinson), whose median lies lower.
    """
    if answer_s <= 0:
        return Interval(0.0, 0.0)
    share = path.seconds / answer_s
    by_class = np.bincount(errors.cost_class[path.ops], share * errors.of_class[path.ops])
    alone = share * errors.of_op[path.ops]
    log_spread = log1p(float((by_class**2).sum() + (alone**2).sum()))
    by_phase = errors.seconds_by_phase(path.ops, share)
    logs = float(by_phase @ errors.by_phase @ by_phase) + errors.floor**2
    middle, reach = answer_s * exp(-log_spread / 2), exp(Z90 * sqrt(log_spread + logs))
    return Interval(middle / reach, middle * reach)


# What grows with the number of GPUs and is not simulated: stragglers, and what many flows do to each other.
#
# Steps of one plan at several numbers of GPUs take longer with each doubling than predicted (docs/training.md, "What
# grows with the number of GPUs"). Rows of all plans show no such slope, so steps stay as simulated and errors grow.

_DOUBLING, _GPUS = "scale.doubling_fraction", "scale.gpus"
_LEAST = 0.01
"""Relative error from which on the report says so."""


def size_error(profile: Profile, gpus: int) -> float:
    """Relative error of a step on so many GPUs: a fraction for each doubling beyond those that stacks are fitted at."""
    return profile.value_or(_DOUBLING, 0.0) * max(log2(gpus / profile.value_or(_GPUS, 1.0)), 0.0)


def size_notes(profile: Profile, gpus: int) -> Iterator[str]:
    """What a report says of it."""
    error = size_error(profile, gpus)
    if error >= _LEAST:
        yield (
            f"stragglers and failures among {gpus:,} GPUs are not simulated: published steps of one plan lose "
            f"{profile.value(_DOUBLING):.1%} per doubling, {error:.1%} beyond {profile.value(_GPUS):,.0f} GPUs, "
            f"for which the interval is wider"
        )
