"""Each sample of a table predicted by a profile: seconds, interval, provenance, signed error."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...base.errors import UserError
from ...base.op_kinds import EXCHANGE, of_form
from ...formats.samples import features_of
from ...profile import Entry, Estimate, Model, Profile, load_profile, profile_for
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


KINDS: dict[str, tuple[str, ...]] = {
    "collective": of_form(EXCHANGE),
    "gemm": ("gemm",),
    "attention": ("attention",),
    "grouped_gemm": ("grouped_gemm",),
    "memory": ("memory",),
    "copy": ("copy", "nic"),
}
"""The families of cost classes that each kind of table may hold."""


def profiles_of(table: pd.DataFrame, given: Profile | None = None) -> dict[str, Profile]:
    """The given profile, or the shipped one of each device in the table."""
    return {str(device): given or load_profile(profile_for(str(device))) for device in table["device"].unique()}


def validate_samples(table: pd.DataFrame, kind: str, profiles: Mapping[str, Profile], file: str) -> pd.DataFrame:
    """The rows in their order, predicted where they are of this kind, else with a reason.

    Raises:
        UserError: no row is of this kind.
    """
    family = table["cost_class"].str.partition(".")[0]
    mine = family.isin(KINDS[kind])
    if not mine.any():
        raise UserError(f"{file}: holds no rows of --kind {kind}; its rows are of {', '.join(family.unique())}")
    groups = table[mine].groupby("device", sort=False)
    parts = [_of_device(profiles[str(device)], str(device), rows) for device, rows in groups]
    others = [unpredicted(row, f"{name} is not of --kind {kind}") for name, row in table[~mine].groupby("cost_class")]
    return pd.concat([*parts, *(rows.assign(profile="") for rows in others)]).sort_index()


def _of_device(profile: Profile, device: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a device that the profile is not made for are told so, not predicted."""
    if profile.devices and device not in profile.devices:
        reason = f"profile {profile.name} is made for {', '.join(profile.devices)}, not for {device}"
        found = unpredicted(rows, reason)
    elif profile.limits is None:
        found = unpredicted(rows, f"no profile for {device}: {profile.name} does not know its rates")
    else:
        found = predict_samples(profile, rows).set_index(rows.index)
    return found.assign(profile=profile.name)
