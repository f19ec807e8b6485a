"""Samples of kernels, collectives and copies: read from a file, which may leave times blank, predicted and scored."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...base.files import digest
from ...base.op_kinds import EXCHANGE, kinds_of_form
from ...base.units import format_seconds
from ...formats.samples import Samples, features_of, own_samples, read_samples, read_table, summarize
from ...formats.samples.published import TABLES
from ...profile import Model, Profile, load_profile, profile_names
from ...profile.forms import CostClass, cost_class, quantity
from .exchanges import estimate_sample

ADDED = ("predicted_s", "signed_error", "interval_low_s", "interval_high_s", "provenance", "reason")
KINDS: dict[str, tuple[str, ...]] = {
    "collective": kinds_of_form(EXCHANGE),
    **{kind: (kind,) for kind in ("gemm", "attention", "grouped_gemm", "memory")},
    "copy": ("copy", "nic"),
}
"""The families of cost classes that each kind of table may hold."""
SHIPPED = {"collective": "collectives.csv"}
"""The kinds of which runcast ships a table of published measurements, in data/validation."""

NOT_FITTED = "not fitted to"


@dataclass(frozen=True, eq=False)
class Rows:
    """The cells of a file (none of JSON lines), and its good rows with their `line`; `left_out` is line by reason.

    A row whose time is left blank is no fault here: it is predicted and not scored.
    """

    path: Path
    cells: pd.DataFrame | None
    table: pd.DataFrame
    left_out: dict[int, str]

    def __len__(self) -> int:
        return len(self.table) + len(self.left_out)


def read_rows(path: Path) -> Rows:
    """The rows of a file; a UserError if it cannot be read, is no table of samples, or has no good row."""
    cells, samples = None, None
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        samples = read_samples([path])
    else:
        cells = read_table(path)
        if cells.empty:
            raise UserError(f"{path}: holds no rows")
        samples = _samples(cells, path)
    if samples.table.empty:
        raise UserError(*(summarize(samples.dropped) or [f"{path}: holds no rows"]))
    line = samples.table["source"].str.rpartition(":")[2].astype(int)  # `file:line`
    dropped = [entry.removeprefix(f"{path}:").partition(": ") for entry in samples.dropped]  # `file:line: reason`
    return Rows(path, cells, samples.table.assign(line=line), {int(number): reason for number, _, reason in dropped})


def _samples(cells: pd.DataFrame, path: Path) -> Samples:
    """The samples of a table, with no number of seconds where the file has none."""
    if "cost_class" in cells:
        filled, blank = _fill_blanks(cells, "seconds")
        # a source that the rows name is another file's line: here a row's place is in this file
        samples = own_samples(filled.assign(source=f"{path}:" + filled["line"].astype(str)), path)
    else:
        fitting = [table for table in TABLES if table.header - {table.time} <= set(cells)]
        if not fitting:
            names = ", ".join(str(name) for name in cells.columns if name != "line")
            raise UserError(f"{path}:1: not a table of samples; its columns are {names}")
        published = next((table for table in fitting if table.header <= set(cells)), fitting[0])
        filled, blank = _fill_blanks(cells, published.time)
        samples = published.samples(filled, str(path))
    unmeasured = samples.table["source"].isin(blank.map(lambda line: f"{path}:{line}"))
    seconds = samples.table["seconds"].where(~unmeasured, np.nan)
    return Samples(samples.table.assign(seconds=seconds), samples.dropped, samples.environment)


def _fill_blanks(cells: pd.DataFrame, column: str) -> tuple[pd.DataFrame, "pd.Series[int]"]:
    """The table with some time in each row, and the lines where it had none."""
    times = cells[column] if column in cells else pd.Series("", index=cells.index)
    blank = times.str.strip() == ""
    return cells.assign(**{column: times.where(~blank, "1")}), cells.loc[blank, "line"]


def predict_samples(profile: Profile, table: pd.DataFrame, library: str | None = None) -> pd.DataFrame:
    """The table with the columns of `ADDED`; a row that cannot be predicted has a reason instead of numbers.

    A row's library is used where the profile knows it and has measured it at that size, else the profile's default
    one; `predicted_as` tells which. `library` is used for all rows of classes that have it.
    """
    known = _unpredicted(table.reset_index(drop=True), "")
    on = known["network"].fillna("") if "network" in known else pd.Series("", known.index)
    for (kind, own, _), rows in known.groupby(["cost_class", "library", on], sort=False):
        _fill(known, profile, str(kind), library or str(own), rows, sizes_matter=library is None)
    known["signed_error"] = known["predicted_s"] / known["seconds"] - 1
    return known


def _unpredicted(table: pd.DataFrame, reason: str) -> pd.DataFrame:
    """The table with all columns of a prediction, empty but for the reason."""
    numbers = dict.fromkeys((*ADDED[:4], "size"), np.nan)
    return table.assign(**numbers, provenance="", reason=reason, predicted_as="")


def _class(kind: object) -> CostClass:
    found = cost_class(str(kind))
    assert found is not None, kind  # samples are checked
    return found


def _fill(
    known: pd.DataFrame, profile: Profile, kind: str, library: str, rows: pd.DataFrame, sizes_matter: bool = True
) -> None:
    of_kind, variants = _class(kind), profile.models.get(kind, {})
    of = library if library in variants else None
    model = variants[of] if of is not None else None
    if sizes_matter and of != next(iter(variants), None) and isinstance(model, Model):
        x = model.cost_class.columns(features_of(rows, model.cost_class), model.limits)
        outside = model.doublings(x)[model.cost_class.size] > 0
        if outside.any():  # a variant measured elsewhere knows less than the default one
            _fill(known, profile, kind, "", rows[outside])
            if outside.all():
                return
            rows = rows[~outside]
    at, features = rows.index, features_of(rows, of_kind)
    try:
        network = str(rows["network"].fillna("").iloc[0]) if "network" in rows else ""
        estimate = estimate_sample(profile, kind, features, of, network)
    except UserError as error:
        known.loc[at, "reason"] = str(error)
        return
    known.loc[at, "predicted_s"] = estimate.seconds
    known.loc[at, "interval_low_s"], known.loc[at, "interval_high_s"] = estimate.interval()
    known.loc[at, "provenance"] = estimate.labels()
    known.loc[at, "predicted_as"] = of or next(iter(variants))
    known.loc[at, "size"] = of_kind.axes[of_kind.size](features)


def validate_samples(table: pd.DataFrame, kind: str, profiles: Mapping[str, Profile], file: str) -> pd.DataFrame:
    """The rows in their order, predicted where they are of this kind, else with a reason.

    A UserError if no row is of this kind.
    """
    of = table["cost_class"].str.partition(".")[0]
    mine = of.isin(KINDS[kind])
    if not mine.any():
        raise UserError(f"{file}: holds no rows of --kind {kind}; its rows are of {', '.join(of.unique())}")
    groups = table[mine].groupby("device", sort=False)
    parts = [_of_device(profiles[str(device)], str(device), rows) for device, rows in groups]
    for name, rows in table[~mine].groupby("cost_class"):
        parts.append(_unpredicted(rows, f"{name} is not of --kind {kind}").assign(profile=""))
    return pd.concat(parts).sort_index()


def _of_device(profile: Profile, device: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a device that the profile is not made for have a reason, and no prediction."""
    if profile.devices and device not in profile.devices:
        reason = f"profile {profile.name} is made for {', '.join(profile.devices)}, not for {device}"
        found = _unpredicted(rows, reason)
    elif profile.limits is None:
        found = _unpredicted(rows, f"no profile for {device}: {profile.name} does not know its rates")
    else:
        found = predict_samples(profile, rows).set_index(rows.index)
    return found.assign(profile=profile.name)


def profile_fitted_to(profile: Profile, sha256: str) -> Profile | None:
    """The profile, or a shipped one of the same device that it rests on, if it was fitted to this file."""
    files = profile.about.get("samples")
    for entry in files if isinstance(files, list) else ():  # a file of which the fit used no row was not seen
        if isinstance(entry, Mapping) and entry.get("sha256") == sha256 and entry.get("rows") != 0:
            return profile
    base = profile.about.get("base")
    if base not in profile_names():
        return None
    below = load_profile(base)
    return profile_fitted_to(below, sha256) if set(below.devices) & set(profile.devices) else None


def score_samples(profile: Profile, samples: Samples) -> pd.DataFrame:
    """A row per sample of the profile's devices that can be predicted, as `figures.profile` draws them."""
    from ...figures.profile import IN_SAMPLE
    from ...figures.profile_lines import family

    mine = samples.table["device"].isin(profile.devices) | (not profile.devices)
    known = predict_samples(profile, samples.table[mine])
    known = known[known["reason"] == ""]
    files = known["file"].unique()
    seen = {file: IN_SAMPLE if profile_fitted_to(profile, digest(Path(file))) else NOT_FITTED for file in files}
    return pd.DataFrame(
        {
            "kind": known["cost_class"],
            "family": known["cost_class"].map(family),
            "library": known["library"],
            "measured_s": known["seconds"].astype(float),
            "predicted_s": known["predicted_s"].astype(float),
            "size": known["size"].astype(float),
            "size_axis": [_class(kind).size for kind in known["cost_class"]],
            "seen": known["file"].map(seen),
            "text": [_text(row) for row in known.to_dict("records")],
            "file": known["file"],
        }
    )


def _text(row: Mapping[Hashable, Any]) -> str:
    """The hover text of a point."""
    of = _class(row["cost_class"])
    given = [name for name in dict.fromkeys([*of.features, *of.axes]) if pd.notna(row.get(name))]
    features = ", ".join(f"{name} {quantity(name, float(row[name]))}" for name in given)
    return (
        f"{row['cost_class']}: {features}<br>measured {format_seconds(row['seconds'])}, "
        f"predicted {format_seconds(row['predicted_s'])} ({row['signed_error']:+.1%}), {row['provenance']}"
    )
