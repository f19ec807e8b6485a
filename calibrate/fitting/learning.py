"""The posterior of ln(factor) of each cause, from measured runs and a prior.

A run is a sum of parts. Causes make parts longer or shorter: a part takes exp(u) as long for each cause that moves it.
A measured run is off by `sigma` about the right factors, with the tails of Student's t, so that a run which contradicts
the others counts little. The maximum a posteriori comes from Gauss-Newton steps: first with equal weights, so that runs
which agree are believed however far from the prior.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, log
from typing import Any

import numpy as np

from ...simulator.base.arrays import Floats
from .ledger import student_weights

_TURNS = 100
_MOST_CHANGE = 0.5


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


def learn(parts: Parts, measured_s: Floats, prior: Floats, sigma: float) -> Posterior:
    """The factors of causes.

    `prior` is the covariance of ln(factor), `sigma` the standard deviation of ln(measured) about the right factors.
    """
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
        noise = np.diag(1 / weights(error) ** 2)
        gain = prior @ slopes.T @ np.linalg.inv(slopes @ prior @ slopes.T + noise)
        change = np.clip(gain @ (slopes @ found.u - error) - found.u, -_MOST_CHANGE, _MOST_CHANGE)
        found = Posterior(found.u + change, prior - gain @ slopes @ prior)
        if np.abs(change).max(initial=0.0) < 1e-6:
            break
    return found


def leave_one_out(parts: Parts, measured_s: Floats, prior: Floats, sigma: float) -> tuple[Floats, Floats]:
    """For each run by what the other runs say: (ln(predicted / measured), its standard deviation)."""
    found = []
    for run in range(len(measured_s)):
        others = np.arange(len(measured_s)) != run
        known = learn(parts.choose(others), measured_s[others], prior, sigma)
        seconds, slopes = parts.choose([run]).predict(known.u)
        deviation = hypot(sigma, float(np.sqrt(slopes[0] @ known.covariance @ slopes[0])))
        found.append((log(seconds[0] / measured_s[run]), deviation))
    error, deviation_of = np.array(found).T
    return error, deviation_of
