"""Each sample of a table predicted by a profile: seconds, interval, provenance, signed error."""

import numpy as np
import pandas as pd

from ..errors import UserError
from ..forms import CostClass, cost_class
from ..profile import Estimate, Profile
from ..samples import features_of

Z90 = 1.645
"""A 90 % interval reaches this many standard deviations of log(seconds) to both sides."""

ADDED = ("predicted_s", "signed_error", "interval_low_s", "interval_high_s", "provenance", "reason")


def predict_samples(profile: Profile, table: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns of `ADDED`; a row that cannot be predicted has a reason instead of numbers.

    A row's library is used where the profile knows it, else the profile's default one; `predicted_as` tells which.
    """
    known = unpredicted(table.reset_index(drop=True), "")
    for (kind, library), rows in known.groupby(["cost_class", "library"], sort=False):
        _fill(known, profile, str(kind), str(library), rows)
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


def _fill(known: pd.DataFrame, profile: Profile, kind: str, library: str, rows: pd.DataFrame) -> None:
    found = _class(kind)
    at, features, variants = rows.index, features_of(rows, found), profile.models.get(kind, {})
    of = library if library in variants else None
    try:
        estimate = profile.estimate(kind, features, library=of)
    except UserError as error:
        known.loc[at, "reason"] = str(error)
        return
    _write(known, at, estimate)
    known.loc[at, "predicted_as"] = of or next(iter(variants))
    known.loc[at, "size"] = found.axes[found.size](features)


def _write(known: pd.DataFrame, at: "pd.Index[int]", estimate: Estimate) -> None:
    reach = np.exp(Z90 * estimate.spread)
    known.loc[at, "predicted_s"] = estimate.seconds
    known.loc[at, "interval_low_s"] = estimate.seconds / reach
    known.loc[at, "interval_high_s"] = estimate.seconds * reach
    known.loc[at, "provenance"] = estimate.labels()
