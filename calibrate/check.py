"""How far off a profile is on samples: one row per class, library and size band."""

import numpy as np
import pandas as pd

from ..simulator.answers.validate import predict_samples, scores_by
from ..simulator.base.errors import UserError, fault
from ..simulator.formats.samples import Samples
from ..simulator.profile import Model, Profile
from ..simulator.profile.forms import band_name

_COLUMNS = {
    "cost_class": "class",
    "predicted_as": "library",
    "band": "size",
    "rows": "rows",
    "median_abs_error": "median %",
    "p90_abs_error": "p90 %",
    "bias": "bias %",
    "interval_coverage": "in interval %",
}


def check_profile(profile: Profile, samples: Samples, library: str | None = None) -> tuple[pd.DataFrame, list[str]]:
    """The table, and a line `place: reason` for each row that could not be predicted.

    Rows of devices that the profile is not made for are among those. `library` scores that library's models on all.

    Raises:
        UserError: the profile has no such library.
    """
    known = {name for variants in profile.models.values() for name in variants}
    if library is not None and library not in known:
        allowed = f"unknown; profile {profile.name} has {', '.join(sorted(known)) or 'none'}"
        raise UserError(fault("--library", "", library, allowed))
    mine = samples.table["device"].isin(profile.devices) | (not profile.devices)
    others = samples.table[~mine]
    scored = predict_samples(profile, samples.table[mine], library)
    unknown = scored[scored["reason"] != ""]
    left_out = [f"{row.source}: {row.device}: another device" for row in others.itertuples()]
    left_out += [f"{row.source}: {row.reason}" for row in unknown.itertuples()]
    return _table(profile, scored[scored["reason"] == ""]), left_out


def _table(profile: Profile, scored: pd.DataFrame) -> pd.DataFrame:
    if scored.empty:
        return pd.DataFrame(columns=list(_COLUMNS.values()))
    sizes = zip(scored["cost_class"], scored["predicted_as"], scored["size"], strict=True)
    starts, names = zip(*(_band(profile, *size) for size in sizes), strict=True)
    banded = scored.assign(start=starts, band=names)
    ordered = banded.sort_values(["cost_class", "predicted_as", "start"], kind="stable")
    rows = scores_by(ordered, ["cost_class", "predicted_as", "band"])
    table = pd.DataFrame(rows)[list(_COLUMNS)].rename(columns=_COLUMNS)
    for column in _COLUMNS.values():
        if column.endswith("%"):
            table[column] = (table[column].astype(float) * 100).round(1)
    return table


def _band(profile: Profile, kind: str, library: str, size: float) -> tuple[float, str]:
    """(start, name) of the size band that contains this size."""
    model = profile.models[kind][library]
    if not isinstance(model, Model):
        return 0.0, "all sizes"
    sizes = [band.size for band in model.bands]
    at = max(int(np.searchsorted(sizes, size, side="right")) - 1, 0)
    return sizes[at], band_name(model.cost_class.size, sizes[at], dict(enumerate(sizes)).get(at + 1))
