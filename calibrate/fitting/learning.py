"""The posterior of ln(factor) of each cause, from measured runs and a prior.

A run is a sum of parts. Causes make parts longer or shorter: a part takes exp(u) as long for each cause that moves it.
A measured run is off by `sigma` about the right factors, with the tails of Student's t, so that a run which contradicts
the others counts little. The maximum a posteriori comes from Gauss-Newton steps, first with equal weights. Where most
runs are farther off to the same side than the prior has it, the prior is too narrow, not each run odd (`widen`). Where
most are farther off to both sides than the others and `sigma` have it, `sigma` is too small (`scatter_of`).
Repeats of one configuration count as one run, which takes their geometric mean: what a configuration takes beyond its
factors is most of `sigma`, and all its repeats have that in common (`average`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from typing import Any

import numpy as np

from ...simulator.base.arrays import Floats
from .ledger import student_weights

_EXPECTED = 2.0  # standard deviations of the prior that most runs together may be off
_TURNS = 100
_MOST_CHANGE = 0.5
_MEDIAN = 0.6745  # of the absolute value of a standard normal
_PASSES = 2  # runs that contradict each other are nearer to what the others say once `sigma` allows it
_USUAL_RUNS = 4.0
"""Runs with the usual scatter that are counted beside one's own: the median of a few of these says little."""
_LEAST = 3.0  # standard deviations of its logarithm below 1 of a factor


@dataclass(frozen=True, eq=False)
class Parts:
    """What runs consist of.

    `seconds` of each part at u = 0 has shape [runs, parts]. `moved` is 1 where a cause moves a part of a run, else 0;
    shape [runs, parts, causes].
    """

    seconds: Floats
    moved: Floats

    @classmethod
    def one_cause_each(cls, seconds: Floats) -> "Parts":
        """Parts that have a cause each."""
        parts = seconds.shape[1]
        return cls(seconds, np.broadcast_to(np.eye(parts), (len(seconds), parts, parts)))

    def choose(self, runs: Any) -> "Parts":
        """Those of some runs, by an index of numpy."""
        return Parts(self.seconds[runs], self.moved[runs])

    def predict(self, u: Floats) -> tuple[Floats, Floats]:
        """(seconds of runs, their shares that each cause moves: d ln(seconds) / du, shape [runs, causes])."""
        seconds = self.seconds * np.exp(self.moved @ u)
        total = seconds.sum(axis=1)
        return total, np.einsum("rp,rpc->rc", seconds, self.moved) / total[:, None]


@dataclass(frozen=True, eq=False)
class Posterior:
    """What runs say of ln(factor) by cause: the most likely values, and their covariance."""

    u: Floats
    covariance: Floats


Learn = Callable[[Parts, Floats, Floats, float], Posterior]
"""From parts, measured seconds, the covariance of ln(factor) and the standard deviation of ln(measured) about the right
factors to what the runs say."""

Predict = Callable[[int, Floats], float]
"""Seconds of a run by its number, for ln(factor) of all causes."""


def widen(parts: Parts, measured_s: Floats, prior: Floats, sigma: float) -> Floats:
    """The prior, with one factor of all parts as wide as most runs are off to the same side beyond what it expects."""
    seconds, slopes = parts.predict(np.zeros(len(prior)))
    expected = np.sqrt(np.einsum("rc,cd,rd->r", slopes, prior, slopes) + sigma**2)
    off = np.sort(np.log(measured_s / seconds) / expected)
    middle = len(off) // 2
    shared = max(off[-1 - middle], -off[middle], 0.0)  # more than half are off at least so much
    beyond = max((shared / _EXPECTED) ** 2 - 1, 0.0) * float(np.median(expected)) ** 2
    each: Floats = _move_each_once(parts) * (np.diag(prior) > 0)
    return prior + beyond * np.outer(each, each)


def _move_each_once(parts: Parts) -> Floats:
    """ln(factor) of causes that makes every part e times as long."""
    moved = parts.moved.reshape(-1, parts.moved.shape[-1])
    return np.asarray(np.linalg.lstsq(moved, np.ones(len(moved)), rcond=None)[0], np.float64)


def learn_products(parts: Parts, measured_s: Floats, prior: Floats, sigma: float) -> Posterior:
    """The most likely ln(factor) of causes that may move a part together."""
    start = Posterior(np.zeros(len(prior)), prior)
    even = _settle(start, parts, measured_s, prior, lambda error: np.full(len(error), 1 / sigma))
    return _settle(even, parts, measured_s, prior, lambda error: student_weights(error, sigma))


def _settle(
    found: Posterior, parts: Parts, measured_s: Floats, prior: Floats, weights: Callable[[Floats], Floats]
) -> Posterior:
    """Gauss-Newton steps until nothing moves; `weights` gives 1 / standard deviation of each run by its log error."""
    for _ in range(_TURNS):
        seconds, slopes = parts.predict(found.u)
        error = np.log(seconds / measured_s)
        gain = _gain(prior, slopes, weights(error))
        change = np.clip(gain @ (slopes @ found.u - error) - found.u, -_MOST_CHANGE, _MOST_CHANGE)
        found = Posterior(found.u + change, prior - gain @ slopes @ prior)
        if np.abs(change).max(initial=0.0) < 1e-6:
            break
    return found


def _gain(covariance: Floats, slopes: Floats, weights: Floats) -> Floats:
    """The best linear estimate of causes per unit by which runs are off; shape [causes, runs].

    `weights` are 1 / standard deviation of each run. C S' (S C S' + W^-2)^-1 is written with a matrix of causes and not
    of runs, of which there may be hundreds.
    """
    weighted = slopes.T * weights**2
    spread = covariance @ weighted
    return np.asarray(np.linalg.solve(np.eye(len(covariance)) + spread @ slopes, spread), np.float64)


def learn_sums(parts: Parts, measured_s: Floats, prior: Floats, sigma: float) -> Posterior:
    """The factors of causes that move a part each: the best linear estimate, of factors and not of their logarithms.

    The most likely logarithms give all that is unexpected of a run to the part of which least is known, however small
    it is: a factor of 20 may be as likely there as one of 3 of a large part. The mean shares it by the variances of the
    parts' seconds.
    """
    covariance, factors = np.expm1(prior), np.ones(len(prior))  # of lognormals with a mean of 1
    weight = np.full(len(measured_s), 1 / sigma)
    for _ in range(_TURNS):
        gain = _gain(covariance, parts.seconds, weight / measured_s)
        found = 1 + gain @ (measured_s - parts.seconds.sum(axis=1))
        found = np.maximum(found, np.exp(-_LEAST * np.sqrt(np.diag(prior))))
        moved, factors = np.abs(found - factors).max(initial=0.0), found
        weight = student_weights(np.log(parts.seconds @ factors / measured_s), sigma)
        if moved < 1e-6:
            break
    left = covariance - gain @ parts.seconds @ covariance
    return Posterior(np.log(factors), left / np.outer(factors, factors))


def learn(
    parts: Parts, measured_s: Floats, prior: Floats, sigma: float, alike: Sequence[str] = (), by: Learn = learn_products
) -> Posterior:
    """The factors of causes, as `by` finds them.

    `prior` is the covariance of ln(factor), `sigma` the standard deviation of ln(measured) about the right factors, and
    `alike` names the configuration of each run; where it is empty, all differ.
    """
    alike = alike or list(map(str, range(len(measured_s))))
    return by(*average(parts, measured_s, alike), _believe(parts, measured_s, prior, sigma, alike), sigma)


def leave_one_out(
    parts: Parts,
    measured_s: Floats,
    prior: Floats,
    sigma: float,
    alike: Sequence[str],
    by: Learn = learn_products,
    predict: Predict | None = None,
) -> tuple[Floats, Floats]:
    """For each run by what runs of other configurations say: (ln(predicted / measured), its standard deviation).

    It is predicted by the sum of its parts unless `predict` says otherwise.
    """
    found, prior = [], _believe(parts, measured_s, prior, sigma, alike)
    for run, configuration in enumerate(alike):
        others = [other for other, of in enumerate(alike) if of != configuration]
        known = by(*average(parts.choose(others), measured_s[others], [alike[at] for at in others]), prior, sigma)
        summed, slopes = parts.choose([run]).predict(known.u)
        seconds = predict(run, known.u) if predict else summed[0]
        deviation = hypot(sigma, float(np.sqrt(slopes[0] @ known.covariance @ slopes[0])))
        found.append((log(seconds / measured_s[run]), deviation))
    error, deviation_of = np.array(found).T
    return error, deviation_of


def scatter_of(
    parts: Parts, measured_s: Floats, prior: Floats, usual: float, alike: Sequence[str], by: Learn = learn_products
) -> float:
    """The standard deviation of ln(measured) about the right factors: the usual one, or more where runs need it.

    It is told by the median of how far each is from what the others say, so one odd run changes little.
    """
    sigma, count = usual, len(set(alike))
    for _ in range(_PASSES if count > 1 else 0):
        error, deviation = leave_one_out(parts, measured_s, prior, sigma, alike, by)
        told = sigma * float(np.median(np.abs(error) / deviation)) / _MEDIAN
        sigma = max(usual, sqrt((_USUAL_RUNS * usual**2 + count * told**2) / (_USUAL_RUNS + count)))
        if sigma == usual:
            break
    return sigma


def average(parts: Parts, measured_s: Floats, alike: Sequence[str]) -> tuple[Parts, Floats]:
    """One run of each configuration: its parts, and the geometric mean of what its repeats took."""
    repeats = dict[str, list[int]]()
    for run, configuration in enumerate(alike):
        repeats.setdefault(configuration, []).append(run)
    means = [
        measured_s[runs[0]] if len(runs) == 1 else exp(np.log(measured_s[runs]).mean()) for runs in repeats.values()
    ]
    return parts.choose([runs[0] for runs in repeats.values()]), np.array(means, np.float64)


def _believe(parts: Parts, measured_s: Floats, prior: Floats, sigma: float, alike: Sequence[str]) -> Floats:
    """The prior as wide as runs that agree need it (`widen`), repeats included.

    One run alone agrees with none: whether it is odd or the prior is, it does not say.
    """
    return prior if len(measured_s) < 2 else widen(*average(parts, measured_s, alike), prior, sigma)
