"""How often a part fails on average that is new at the start of a run and after each failure."""

from functools import cache
from math import gamma, inf

import numpy as np

from ....base.arrays import Floats

_POINTS = 1000  # shapes of 0.1 to 20 are then within 0.1 % of simulations
_FAR = 10.0  # mean lives, behind which it does not matter that a part was new


def failures_per_s(mtbf_s: float, shape: float, length_s: float) -> float:
    """The failures of one part per second of a run of this length, each life being Weibull with this mean and shape.

    They are `1 / mtbf_s` at a constant rate (shape 1), and in a run without end.
    """
    if shape == 1 or length_s == inf:
        return 1 / mtbf_s
    lives = min(length_s / mtbf_s, _FAR)
    first = _renewals(lives * gamma(1 + 1 / shape), shape)
    return (first + (length_s / mtbf_s - lives)) / length_s


@cache
def _renewals(until: float, shape: float) -> float:
    """The renewal function m of a Weibull distribution F with the scale 1: m = F + (m convolved with dF) (Cox 1962).

    Of m's steps on a grid each is taken to lie in the middle, from where F says how likely the next failure has come
    (Xie, Communications in Statistics 18, 1989): no density is needed, which has no bound at 0 for shapes below 1.
    """
    ends = np.linspace(0, until, _POINTS + 1)[1:]
    whole, half = _fail_by(ends, shape), _fail_by(ends - ends[0] / 2, shape)
    steps = np.zeros(_POINTS)
    for i in range(_POINTS):
        steps[i] = (whole[i] + steps[:i] @ (half[i:0:-1] - 1)) / (1 - half[0])
    return float(steps.sum())


def _fail_by(age: Floats, shape: float) -> Floats:
    """The Weibull distribution."""
    return np.asarray(-np.expm1(-(age**shape)))
