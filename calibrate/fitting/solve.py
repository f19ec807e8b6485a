"""Robust fits of one formula: soft-L1 of log(predicted/measured), logarithms of bounded coefficients, several starts.

Soft-L1 keeps single bad rows from pulling the fit; logarithms make 10 % of a microsecond count as much as 10 % of a
second. Each coefficient is pulled towards its start as by so many samples as its start is trusted.
"""

from functools import partial

import numpy as np
from scipy.optimize import least_squares

from ...simulator.hardware import Limits
from ...simulator.profile.forms import Coefficients, Columns, Floats, Form

_MOST_ROWS = 1500
"""More rows do not change a fit of a dozen coefficients, but cost time; a seeded choice of them stands for all."""

_STARTS = 4
_OUTLIER = 0.1
"""Log ratio beyond which a row counts by its distance, not by its square."""


def solve(form: Form, x: Columns, seconds: Floats, limits: Limits) -> Coefficients:
    """The coefficients that fit best; the same samples give the same coefficients."""
    random = np.random.default_rng(0)
    x, seconds = _thinned(x, seconds, random)
    names = [c.name for c in form.coefficients]
    low, high, start = np.log([(c.low, c.high, c.start) for c in form.coefficients]).T
    pull = np.sqrt([c.trust for c in form.coefficients])
    measured = np.log(seconds)

    def residuals(logs: Floats) -> Floats:
        predicted = form.seconds(x, limits, dict(zip(names, np.exp(logs), strict=True)))
        return np.concatenate([np.log(predicted) - measured, pull * (logs - start)])

    inside = np.clip(start, low + 1e-3, high - 1e-3)
    starts = [inside, *(np.clip(inside + random.normal(0, 0.7, len(start)), low, high) for _ in range(_STARTS - 1))]
    # tiles and waves make steps, which a wide difference looks across
    step = np.full(len(start), 1e-3)
    fit = partial(least_squares, residuals, bounds=(low, high), loss="soft_l1", f_scale=_OUTLIER, diff_step=step)
    fits = [fit(s, max_nfev=100) for s in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


def _thinned(x: Columns, seconds: Floats, random: np.random.Generator) -> tuple[Columns, Floats]:
    if len(seconds) <= _MOST_ROWS:
        return x, seconds
    rows = np.sort(random.choice(len(seconds), _MOST_ROWS, replace=False))
    return {name: column[rows] for name, column in x.items()}, seconds[rows]
