"""One model: a cost class, as one library runs it on one device, from the samples of both."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ...simulator.base.arrays import Floats
from ...simulator.formats.samples import features_of
from ...simulator.hardware import Limits
from ...simulator.profile import Errors, Model, errors_of
from ...simulator.profile.forms import Coefficients, Columns, Curve, Form
from ...simulator.profile.forms import cost_class as find_class
from .errors import Mask, bands, cross_validate, growth


def fit_model(kind: str, library: str, table: pd.DataFrame, limits: Limits, source: str) -> Model:
    """The model of a class from its rows of a table of samples (`simulator.samples`), with its held-out errors."""
    cost_class = find_class(kind)
    assert cost_class is not None, kind
    x = cost_class.columns(features_of(table, cost_class), limits)
    seconds = table["seconds"].to_numpy(float)
    groups = table["group"].to_numpy(object)

    def predict(rows: Mask) -> Floats:
        return _bare(kind, library, {n: c[rows] for n, c in x.items()}, seconds[rows], limits).seconds(x, limits)

    everything = np.ones(len(seconds), bool)
    model = _bare(kind, library, x, seconds, limits)
    missed, how = cross_validate(cost_class, x, seconds, groups, predict)
    scored = np.isfinite(missed)
    core = scored & (cost_class.core(x) if cost_class.core is not None else everything)
    core = core if core.any() else scored  # all rows are beside the core, such as two nodes alone
    by_band = bands(cost_class, x, missed)
    wider = table["wider"].max() if "wider" in table and table["wider"].notna().any() else 0.0
    values = {axis: value_of(x) for axis, value_of in cost_class.axes.items()}
    return replace(
        model,
        range={axis: (float(value.min()), float(value.max())) for axis, value in values.items()},
        growth=growth(cost_class, x, seconds, by_band[-1].spread, predict),
        fitted=errors_of(np.log(model.seconds(x, limits) / seconds)),
        held_out=errors_of(missed[core]),
        groups=len(set(groups)),
        bands=by_band,
        source=source,
        wider=float(wider),
        left_out=how if core.any() else "nothing",
    )


def _bare(kind: str, library: str, x: Columns, seconds: Floats, limits: Limits) -> Model:
    """Coefficients and curves alone, as one fit gives them."""
    cost_class = find_class(kind)
    assert cost_class is not None, kind
    rows = np.ones(len(seconds), bool)
    if cost_class.core is not None and cost_class.fit_core:  # the core alone, where there are enough rows of it
        core = cost_class.core(x)
        rows = core if core.sum() >= 2 * len(cost_class.form.coefficients) else rows
    coefficients = solve(cost_class.form, {n: c[rows] for n, c in x.items()}, seconds[rows], limits)
    curves = _curves(x, seconds) if cost_class.curves else {}
    none = Errors(0, 0.0, 0.0, 0.0)
    return Model(kind, library, coefficients, {}, {}, none, none, 0, (), limits, "", curves)


def _curves(x: Columns, seconds: Floats) -> dict[float, Curve]:
    """A curve for each number of GPUs that was measured at several sizes."""
    curves = {}
    for gpus in np.unique(x["gpus"]).tolist():
        rows = x["gpus"] == gpus
        sizes = np.unique(x["bytes"][rows])
        if len(sizes) > _LEAST_SIZES and sizes[-1] > 2 * sizes[0]:
            curves[gpus] = Curve.fit(x["bytes"][rows], seconds[rows])
    return curves


_LEAST_SIZES = 4
"""A curve through fewer sizes than this knows less than the formula."""


_MOST_ROWS = 1500
"""More rows do not change a fit of a dozen coefficients, but cost time; a seeded choice of them stands for all."""

_STARTS = 4
_OUTLIER = 0.1
"""Log ratio beyond which a row counts by its distance, not by its square."""


def solve(form: Form, x: Columns, seconds: Floats, limits: Limits) -> Coefficients:
    """The coefficients that fit best; the same samples give the same coefficients.

    Those that the samples cannot tell stay at their start, or at its ratio to another one (`Coefficient.like`): free,
    they would take up what other ones miss, and run away where another value of their feature is asked for.
    """
    random = np.random.default_rng(0)
    if len(seconds) > _MOST_ROWS:
        rows = np.sort(random.choice(len(seconds), _MOST_ROWS, replace=False))
        x, seconds = {name: column[rows] for name, column in x.items()}, seconds[rows]
    free = [c for c in form.coefficients if c.shows_in(x)]
    low, high, start = np.log([(c.low, c.high, c.start) for c in free]).T
    pull = np.sqrt([c.trust for c in free])
    measured = np.log(seconds)

    def coefficients(logs: Floats) -> Coefficients:
        return form.with_alike(dict(zip((c.name for c in free), np.exp(logs).tolist(), strict=True)))

    def residuals(logs: Floats) -> Floats:
        predicted = form.seconds(x, limits, coefficients(logs))
        return np.concatenate([np.log(predicted) - measured, pull * (logs - start)])

    inside = np.clip(start, low + 1e-3, high - 1e-3)
    starts = [inside, *(np.clip(inside + random.normal(0, 0.7, len(start)), low, high) for _ in range(_STARTS - 1))]
    # tiles and waves make steps, which a wide difference looks across
    step = np.full(len(start), 1e-3)
    fit = partial(least_squares, residuals, bounds=(low, high), loss="soft_l1", f_scale=_OUTLIER, diff_step=step)
    fits = [fit(s, max_nfev=100) for s in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    return coefficients(best.x)
