"""What `runcast validate` prints and writes of a file of samples, which `samples` reads and predicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError, unknown
from ...base.files import digest
from ...base.tables import Columns, terminal_table
from ...formats.samples import summarize
from ...profile import Model, Profile, load_profile, profile_for
from .forced import forced_lines, forced_rows, score_forced
from .ledger import csv_bytes
from .samples import ADDED, KINDS, Rows, profile_fitted_to, read_rows, validate_samples
from .scores import coverage, median_over_devices, scores, scores_by, shares, warn

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
