"""Samples of kernels, collectives and copies: read from a file, which may leave times blank, predicted and scored."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError, unknown
from ...base.files import digest
from ...base.op_kinds import EXCHANGE, kinds_of_form
from ...base.tables import Columns, terminal_table
from ...base.units import format_seconds
from ...formats.samples import Samples, features_of, own_samples, read_samples, read_table, summarize
from ...formats.samples.published import TABLES
from ...profile import Model, Profile, load_profile, profile_for, profile_names
from ...profile.forms import CostClass, cost_class, quantity
from .exchanges import estimate_sample
from .forced import forced_lines, forced_rows, score_forced
from .ledger import csv_bytes
from .scores import coverage, median_over_devices, scores, scores_by, shares, warn

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


# What `runcast validate` prints and writes of a file of samples.

KEYS = ("device", "cost_class", "predicted_as")


@dataclass(frozen=True, eq=False)
class Validation:
    """`table` has a row for each good row of the file, with the columns of `ADDED`; `seen` names the profile that was
    fitted on this file, by device."""

    rows: Rows
    kind: str
    table: pd.DataFrame
    profiles: Mapping[str, Profile]
    sha256: str
    seen: Mapping[str, str]

    @property
    def path(self) -> Path:
        """The file of rows."""
        return self.rows.path

    @property
    def predicted(self) -> int:
        """The number of rows with a prediction."""
        return int(self.overall["predicted"])

    @cached_property
    def overall(self) -> dict[str, Any]:
        """The scores of all rows, of which those that were left out count as not predicted."""
        return {**scores(self.table), "rows": len(self.rows)}

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """Scores by device, cost class and library; where the rows are in-sample, the errors on rows left out too."""
        ordered = self.table.sort_values(list(KEYS), kind="stable")
        return list(map(self._group, scores_by(ordered, KEYS)))

    def _group(self, group: dict[str, Any]) -> dict[str, Any]:
        device, kind, library = (group.pop(key) for key in KEYS)
        profile, in_sample = self.profiles[device], device in self.seen and group["predicted"] > 0
        model = profile.models.get(kind, {}).get(library)
        own = in_sample and isinstance(model, Model) and model.wider == 0  # not carried over from another device
        unseen = model.held_out if own and isinstance(model, Model) and model.held_out.rows else None
        return {
            "device": device, "cost_class": kind, "library": library or None, **group, "profile": profile.name,
            "in_sample": in_sample, "held_out_rows": unseen.rows if unseen else 0,
            "held_out_median_abs_error": unseen.median if unseen else None,
            "held_out_p90_abs_error": unseen.p90 if unseen else None,
        }  # fmt: skip

    @cached_property
    def by_gpus(self) -> list[dict[str, Any]]:
        """Scores of exchanges between nodes by device, cost class and number of GPUs, where the class has one."""
        if "gpus" not in self.table:
            return []
        known = self.table["predicted_s"].notna() & self.table["gpus"].notna()
        between = self.table[known & self.table["cost_class"].str.endswith(".network")]
        keys = ("device", "cost_class", "gpus")
        return scores_by(between.sort_values(list(keys), kind="stable"), keys) if len(between) else []

    @cached_property
    def forced(self) -> list[dict[str, Any]]:
        """Scores of closed forms on rows whose log forces an algorithm, which no curve predicts."""
        return score_forced(forced_rows(self.rows.cells, self.rows.left_out)) if self.kind == "collective" else []

    @cached_property
    def reasons(self) -> dict[int, str]:
        """Why a row has no prediction, by its line."""
        without = self.table[self.table["reason"] != ""]
        found = dict(zip(without["line"], without["reason"], strict=True)) | self.rows.left_out
        return dict(sorted(found.items()))

    def to_json(self) -> dict[str, Any]:
        """All numbers, errors as fractions."""
        places: dict[str, dict[str, int]] = {}
        for line, reason in self.reasons.items():
            places.setdefault(reason, {"first_line": line, "rows": 0})["rows"] += 1
        return {
            "file": self.path.name,
            "sha256": self.sha256,
            "kind": self.kind,
            **self.overall,
            "median_over_devices": median_over_devices(self.table),
            "provenance": shares(self.table["provenance"]),
            "in_sample": sorted({self.seen[group["device"]] for group in self.groups if group["in_sample"]}),
            "groups": self.groups,
            "by_gpus": self.by_gpus,
            "forced": self.forced,
            "not_predicted": [{"reason": reason, **place} for reason, place in places.items()],
        }

    def to_csv(self) -> bytes:
        """The cells of the file as they stand, with the columns of `ADDED` behind them."""
        cells = self.rows.cells
        assert cells is not None  # refused before
        found = self.table.set_index("line").reindex(cells["line"])[list(ADDED)]
        left_out = cells["line"].map(self.rows.left_out)
        found["provenance"] = found["provenance"].fillna("")
        found["reason"] = np.where(left_out.notna(), left_out, found["reason"])
        return csv_bytes(pd.concat([cells.drop(columns="line"), found.reset_index(drop=True)], axis=1))

    def lines(self) -> Iterator[str]:
        """The table of errors, the total, what is in-sample and what was not predicted."""
        groups = self.groups
        held = [round((group["interval_coverage"] or 0.0) * group["scored"]) for group in groups]
        seen = any(group["held_out_median_abs_error"] is not None for group in groups)
        rows = [
            {**group, "interval_coverage": coverage(count, group["scored"])}
            for group, count in zip(groups, held, strict=True)
        ]
        yield from (*terminal_table(rows, {**_COLUMNS, **(_HELD_OUT if seen else {})}), "")
        if len(self.by_gpus) > len(groups):
            yield from (*terminal_table(self.by_gpus, _BY_GPUS), "")
        yield _total(self.overall)
        if (over := median_over_devices(self.table)) is not None:
            every = _percent(self.overall["median_abs_error"])
            yield f"median over devices of each device's median: {_percent(over)} % (plain median: {every} %)"
        for group, count in zip(groups, held, strict=True):
            what = " ".join(filter(None, (group["device"], group["cost_class"], group["library"])))
            yield from warn(what, count, group["scored"])
        if basis := shares(self.table["provenance"]):
            yield "predictions are " + ", ".join(f"{_percent(share)} % {label}" for label, share in basis.items())
        yield from _in_sample(self)
        yield from forced_lines(self.forced)
        reasons = summarize(f"{self.path}:{line}: {reason}" for line, reason in self.reasons.items())
        yield from (f"not predicted: {line}" for line in reasons)


def validate(path: Path, kind: str, profile: str | None = None, to_csv: bool = False) -> Validation:
    """Predict the rows of a file; `to_csv` says that they will be written, so that a file that cannot be is refused.

    A UserError for an unknown kind or profile, a file that cannot be read, or one without good rows of this kind.
    """
    if kind not in KINDS:
        raise unknown("--kind", "", kind, KINDS)
    given = None if profile is None else load_profile(profile, "--profile")
    rows = read_rows(path)
    if to_csv:
        if rows.cells is None:
            raise UserError(f"--csv: {path}: is JSON lines; there are no columns to keep")
        if taken := [name for name in ADDED if name in rows.cells]:
            raise UserError(f"--csv: {path}: has columns named {', '.join(taken)} already")
    devices = map(str, rows.table["device"].unique())
    profiles = {device: given or load_profile(profile_for(device)) for device in devices}
    table = validate_samples(rows.table, kind, profiles, str(path))
    sha256 = digest(path)
    seen = {device: found.name for device, of in profiles.items() if (found := profile_fitted_to(of, sha256))}
    return Validation(rows, kind, table, profiles, sha256, seen)


# In words and one table, for the terminal.

_COLUMNS: Columns = {
    "device": ("device", "text"), "cost_class": ("class", "text"), "library": ("library", "text"),
    "rows": ("rows", "count"), "predicted": ("predicted", "count"), "scored": ("scored", "count"),
    "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"), "bias": ("bias %", "percent"),
    "interval_coverage": ("in interval %", "percent"),
}  # fmt: skip
_BY_GPUS: Columns = {
    "device": ("device", "text"), "cost_class": ("class", "text"), "gpus": ("GPUs", "count"),
    "scored": ("scored", "count"), "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"),
    "bias": ("bias %", "percent"),
}  # fmt: skip
_HELD_OUT: Columns = {
    "held_out_median_abs_error": ("left-out median %", "percent"),
    "held_out_p90_abs_error": ("left-out p90 %", "percent"),
}  # fmt: skip


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _total(overall: dict[str, Any]) -> str:
    counts = f"total: {overall['rows']:,} rows, {overall['predicted']:,} predicted, {overall['scored']:,} scored"
    if not overall["scored"]:
        return counts
    keys = ("median_abs_error", "p90_abs_error", "bias", "interval_coverage")
    median, p90, bias, held = (_percent(overall[key]) for key in keys)
    return f"{counts}: median {median} %, p90 {p90} %, bias {bias} %, {held} % in the 90 % interval"


def _in_sample(validation: Validation) -> Iterator[str]:
    """One line per profile that was fitted on this file, with its errors on rows that its fits had not seen."""
    by_profile: dict[str, list[dict[str, Any]]] = {}
    for group in validation.groups:
        if group["in_sample"]:
            by_profile.setdefault(validation.seen[group["device"]], []).append(group)
    for profile, groups in by_profile.items():
        known = [group for group in groups if group["held_out_median_abs_error"] is not None]
        errors = "not known"
        if known:
            median, p90 = (_range([group[key] for group in known]) for key in _HELD_OUT)
            errors = f"median {median} %, p90 {p90} % ({sum(group['held_out_rows'] for group in known):,} rows)"
        yield f"in-sample: profile {profile} was fitted on this file; errors on rows left out: {errors}"


def _range(values: list[float]) -> str:
    low, high = _percent(min(values)), _percent(max(values))
    return low if low == high else f"{low} to {high}"
