"""Which step to measure next: the one after which the times of all steps at hand are known best.

To first order a run with shares s of phases leaves the covariance C - C s s' C / (s' C s + sigma^2) of ln(factor). The
best run is that with the least mean variance of ln(seconds) over all steps (I-optimal design), whatever it will take.
"""

import numpy as np

from ...simulator.base.arrays import Floats


def choose_runs(shares: Floats, covariance: Floats, sigma: float, many: int) -> list[int]:
    """The steps to measure, best first, at most `many`.

    `shares` are those of phases in each step, shape [steps, phases], `covariance` that of ln(factor) of phases, and
    `sigma` the standard deviation of ln(measured) about the right factors.
    """
    chosen: list[int] = []
    for _ in range(min(many, len(shares))):
        gain = _gains(shares, covariance, sigma)
        gain[chosen] = -np.inf
        best = int(gain.argmax())
        chosen.append(best)
        covariance = after(shares[best], covariance, sigma)
    return chosen


def after(share: Floats, covariance: Floats, sigma: float) -> Floats:
    """The covariance of ln(factor) that a run with these shares of phases leaves."""
    moved = covariance @ share
    found: Floats = covariance - np.outer(moved, moved) / (share @ moved + sigma**2)
    return found


def open_part(shares: Floats, covariance: Floats) -> float:
    """The root mean square over steps of the standard deviation of ln(seconds)."""
    return float(np.sqrt(np.mean(np.sum(shares @ covariance * shares, axis=1))))


def _gains(shares: Floats, covariance: Floats, sigma: float) -> Floats:
    """By how much a run of each step lowers the sum of variances of all steps."""
    moved = shares @ covariance @ shares.T
    found: Floats = (moved**2).sum(axis=0) / (np.diag(moved) + sigma**2)
    return found
