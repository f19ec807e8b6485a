"""The error model: the errors of op times, and which errors are common to several ops.

The error of an op's time is the product of
- the factors of its phase, one error per parameter of software and device (`factors`);
- the error of its cost class, common to all ops of the class and scaled by each op's own spread (`of_class`);
- its own error (`of_op`), independent from op to op.
The factors were fitted to steps of the ledger, so they already include errors that all kernels of a device share. The
rest of a spread then differs from op to op, except the part of awkward shapes, which occur in no step of the ledger.
Devices without steps in the ledger, phases without a factor, and updates have no such fit: there the class shares a
spread.

In addition, the uneven load of experts is one error of their phases, and `floor` is an error of the whole step.

The first-order interval of a prediction uses the errors of the ops on its critical path, which is held fixed. Intervals
are multiplicative: a time is never negative, errors are stated and fitted as logarithms, and a factor of two is
as far up as down. To first order in a small error this equals addition.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, log1p, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..costs import PHASES, Costs
from ..insight import CriticalPath
from ..profile import Z90, Profile
from .budget import Budget
from .factors import NO_ERRORS, PhaseErrors

CRITICAL = "critical path"


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors of op times; arrays have one entry per op, unless stated otherwise.

    `of_phases` are the errors of the logarithms of the factors of phases. `phase` indexes PHASES. An op that is a whole
    action has a number in `part` (others -1); `mix` holds the share of each phase in the time of each part, shape
    [parts, len(PHASES)]. `of_class` and `of_op` are relative standard deviations around a mean of 1: ops of one
    `cost_class`, which indexes the names in `classes`, share the former error, each op has its own of the latter.
    `floor` is the standard deviation of the logarithm of the total, and `common` the part of it that like
    configurations have.
    """

    of_phases: PhaseErrors
    phase: NDArray[np.int64]
    part: NDArray[np.int64]
    mix: Floats
    of_class: Floats
    cost_class: NDArray[np.int64]
    classes: tuple[str, ...]
    of_op: Floats
    floor: float = 0.0
    common: float = 0.0

    def seconds_by_phase(self, ops: NDArray[np.int64], seconds: Floats) -> Floats:
        """The seconds of these ops summed by phase; whole actions are split by `mix`."""
        part = self.part[ops]
        found = np.bincount(self.phase[ops], seconds * (part < 0), minlength=len(PHASES))
        mixed: Floats = found + seconds[part >= 0] @ self.mix[part[part >= 0]]
        return mixed

    def factor_of_op(self, factor: Floats) -> Floats:
        """The factor of each op's time, given a factor for each phase."""
        found = factor[self.phase]
        whole = self.part >= 0
        found[whole] = (self.mix @ factor)[self.part[whole]]
        return found


def errors_of_costs(costs: Costs, profile: str) -> Errors:
    """The errors of costs without fitted factors: ops of a class share one error, scaled by each op's own spread.

    `profile` names where the costs are from: its classes are off together wherever they are used.
    """
    ops = len(costs.spread)
    return Errors(
        of_phases=NO_ERRORS,
        phase=np.zeros(ops, np.int64),
        part=np.full(ops, -1, np.int64),
        mix=np.zeros((0, len(PHASES))),
        of_class=costs.spread,
        cost_class=costs.cost_class,
        classes=tuple(f"ops: {kind} of {profile}" for kind in costs.classes),
        of_op=np.zeros(ops),
    )


@dataclass(frozen=True)
class Interval:
    """A 90 % interval in seconds: it should contain nine of ten measurements."""

    low_s: float
    high_s: float


def chain_intervals(path: CriticalPath, lanes: Mapping[str, CriticalPath], errors: Errors) -> dict[str, Interval]:
    """The intervals of chains of ops by name: of the critical path, the first one, and of the work of lanes.

    A prediction takes no less than any of them. With other errors another one may be the longest.
    """
    chains = {CRITICAL: path, **lanes}
    return {name: path_interval(chain, errors, float(chain.seconds.sum())) for name, chain in chains.items()}


def latest(intervals: Iterable[Interval]) -> Interval:
    """The interval of what ends with the last of several chains of ops, given those of the chains.

    Each of its ends is that of the chain that reaches farthest, as if the chains were off together.
    """
    low_s, high_s = zip(*((one.low_s, one.high_s) for one in intervals), strict=True)
    return Interval(max(low_s), max(high_s))


def path_interval(path: CriticalPath, errors: Errors, answer_s: float) -> Interval:
    """The 90 % interval of a critical path, or other ops that follow one another, that takes `answer_s` seconds.

    Spreads are relative standard deviations around a mean; factors of phases are lognormal around a median. So the sum
    of spreads is taken as a lognormal of equal mean and deviation (Fenton and Wilkinson), whose median is lower.
    """
    if answer_s <= 0:
        return Interval(0.0, 0.0)
    middle = answer_s * exp(-_log_spread(_relative(path, errors, answer_s)) / 2)
    reach = exp(Z90 * path_budget(path, errors, answer_s).deviation)
    return Interval(middle / reach, middle * reach)


def path_budget(path: CriticalPath, errors: Errors, answer_s: float) -> Budget:
    """The error budget of a critical path that takes `answer_s` seconds."""
    by_phase = errors.seconds_by_phase(path.ops, path.seconds / max(answer_s, 1e-30))
    of_phases = errors.of_phases.sizes @ by_phase
    by_class, alone = spreads = _relative(path, errors, answer_s)
    squares = float((by_class**2).sum() + (alone**2).sum())
    as_log = sqrt(_log_spread(spreads) / squares) if squares else 1.0
    named = [*zip(errors.of_phases.names, of_phases.tolist(), strict=True)]
    named += zip(errors.classes, (as_log * by_class).tolist(), strict=True)
    own = sqrt(errors.floor**2 + as_log**2 * float((alone**2).sum()))
    shares = {phase: share for phase, share in zip(PHASES, by_phase.tolist(), strict=True) if share}
    return Budget({name: size for name, size in named if size}, own, errors.common, shares)


def _relative(path: CriticalPath, errors: Errors, answer_s: float) -> tuple[Floats, Floats]:
    """Relative standard deviations of a path by the spreads of ops: by class, and of each op of the path."""
    share = path.seconds / max(answer_s, 1e-30)
    of_class = share * errors.of_class[path.ops]
    by_class = np.bincount(errors.cost_class[path.ops], of_class, minlength=len(errors.classes))
    return np.asarray(by_class, np.float64), share * errors.of_op[path.ops]


def _log_spread(spreads: tuple[Floats, Floats]) -> float:
    """The variance of the logarithm of a lognormal with independent errors of these relative standard deviations."""
    return log1p(sum(float((each**2).sum()) for each in spreads))


# Effects that grow with the number of GPUs and are not simulated: stragglers, and collisions of many flows.
#
# Steps of one plan at several numbers of GPUs take longer with each doubling than predicted (docs/training.md, "What
# grows with the number of GPUs"). Rows of all plans show no such slope, so steps stay as simulated and errors grow.

DOUBLING, _GPUS = "scale.doubling_fraction", "scale.gpus"
_LEAST = 0.01
"""The report has a note if the relative error is at least this."""


def size_error(profile: Profile, gpus: int) -> float:
    """The relative error of a step: a fraction for each doubling of the GPUs beyond the size of the fitted runs."""
    return profile.value_or(DOUBLING, 0.0) * max(log2(gpus / profile.value_or(_GPUS, 1.0)), 0.0)


def size_notes(profile: Profile, gpus: int) -> Iterator[str]:
    """The note of a report on `size_error`, if it is large enough."""
    error = size_error(profile, gpus)
    if error >= _LEAST:
        yield (
            f"stragglers and failures among {gpus:,} GPUs are not simulated: published steps of one plan lose "
            f"{profile.value(DOUBLING):.1%} per doubling, {error:.1%} beyond {profile.value(_GPUS):,.0f} GPUs, "
            f"for which the interval is wider"
        )
