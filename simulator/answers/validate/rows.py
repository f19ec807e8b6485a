"""Each sample of a table predicted by a profile: seconds, interval, provenance, signed error."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...base.errors import UserError
from ...formats.samples import features_of
from ...profile import Entry, Estimate, Model, Profile
from ...profile.forms import CostClass, cost_class

ADDED = ("predicted_s", "signed_error", "interval_low_s", "interval_high_s", "provenance", "reason")


def predict_samples(profile: Profile, table: pd.DataFrame, library: str | None = None) -> pd.DataFrame:
    """The table with the columns of `ADDED`; a row that cannot be predicted has a reason instead of numbers.

    A row's library is used where the profile knows it and has measured it at that size, else the profile's default
    one; `predicted_as` tells which. `library` is used for all rows of classes that have it.
    """
    known = unpredicted(table.reset_index(drop=True), "")
    for (kind, own), rows in known.groupby(["cost_class", "library"], sort=False):
        _fill(known, profile, str(kind), library or str(own), rows, sizes_matter=library is None)
    known["signed_error"] = known["predicted_s"] / known["seconds"] - 1
    return known


def unpredicted(table: pd.DataFrame, reason: str) -> pd.DataFrame:
    """The table with all columns of a prediction, empty but for the reason."""
    numbers = dict.fromkeys((*ADDED[:4], "size"), np.nan)
    return table.assign(**numbers, provenance="", reason=reason, predicted_as="")


def _class(kind: str) -> CostClass:
    found = cost_class(kind)
    assert found is not None, kind  # samples are checked
    return found


def _fill(
    known: pd.DataFrame, profile: Profile, kind: str, library: str, rows: pd.DataFrame, sizes_matter: bool = True
) -> None:
    found = _class(kind)
    at, features, variants = rows.index, features_of(rows, found), profile.models.get(kind, {})
    of = library if library in variants else None
    if sizes_matter and of is not None and of != next(iter(variants)):
        outside = _outside(variants[of], rows)
        if outside.any():  # a variant measured elsewhere knows less than the default one
            _fill(known, profile, kind, "", rows[outside])
            if outside.all():
                return
            rows = rows[~outside]
            at, features = rows.index, features_of(rows, found)
    try:
        estimate = profile.estimate(kind, features, library=of)
    except UserError as error:
        known.loc[at, "reason"] = str(error)
        return
    _write(known, at, estimate)
    known.loc[at, "predicted_as"] = of or next(iter(variants))
    known.loc[at, "size"] = found.axes[found.size](features)


def _outside(model: Entry, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Rows of sizes that a model was not measured at."""
    if not isinstance(model, Model):
        return np.zeros(len(rows), bool)
    x = model.cost_class.columns(features_of(rows, model.cost_class), model.limits)
    return model.doublings(x)[model.cost_class.size] > 0


def _write(known: pd.DataFrame, at: "pd.Index[int]", estimate: Estimate) -> None:
    known.loc[at, "predicted_s"] = estimate.seconds
    known.loc[at, "interval_low_s"], known.loc[at, "interval_high_s"] = estimate.interval()
    known.loc[at, "provenance"] = estimate.labels()
