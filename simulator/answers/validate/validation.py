"""A file of measurements held against profiles: what `runcast validate` prints and writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError, unknown
from ...base.files import digest
from ...formats.samples import summed
from ...profile import Errors, Model, Profile, load_profile, profile_names
from .rows import ADDED, KINDS, profiles_of, validate_samples
from .summary import groups, median_over_devices, scores, shares
from .table import Rows, csv_of, read_rows


def fitted_on(profile: Profile, sha256: str) -> Profile | None:
    """The profile, or a shipped one of the same device that it rests on, if it was fitted on this file."""
    if any(_is(entry, sha256) for entry in _samples(profile)):
        return profile
    base = profile.about.get("base")
    if base not in profile_names():
        return None
    below = load_profile(base)
    return fitted_on(below, sha256) if set(below.devices) & set(profile.devices) else None


def held_out(profile: Profile, kind: str, library: str) -> Errors | None:
    """The errors of a model on rows that its fit had not seen; None if it is of another device, or has none."""
    model = profile.models.get(kind, {}).get(library)
    if isinstance(model, Model) and model.wider == 0 and model.held_out.rows:
        return model.held_out
    return None


def _samples(profile: Profile) -> list[Any]:
    found = profile.about.get("samples")
    return found if isinstance(found, list) else []


def _is(entry: Any, sha256: str) -> bool:
    """A file of which the fit used no row was not seen."""
    return isinstance(entry, Mapping) and entry.get("sha256") == sha256 and entry.get("rows") != 0


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
        """How many rows have a prediction."""
        return int(self.overall["predicted"])

    @cached_property
    def overall(self) -> dict[str, Any]:
        """The scores of all rows, of which those that were left out count as not predicted."""
        return {**scores(self.table), "rows": len(self.rows)}

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """Scores by device, cost class and library; where the rows are in-sample, the errors on rows left out too."""
        ordered = self.table.sort_values(list(KEYS), kind="stable")
        return [self._told(group) for group in groups(ordered, KEYS)]

    def _told(self, group: dict[str, Any]) -> dict[str, Any]:
        device, kind, library = (group.pop(key) for key in KEYS)
        told = {"device": device, "cost_class": kind, "library": library or None, **group}
        in_sample = device in self.seen and group["predicted"] > 0
        unseen = held_out(self.profiles[device], kind, library) if in_sample else None
        told["profile"] = self.profiles[device].name
        told["in_sample"] = in_sample
        told["held_out_rows"] = unseen.rows if unseen else 0
        told["held_out_median_abs_error"] = unseen.median if unseen else None
        told["held_out_p90_abs_error"] = unseen.p90 if unseen else None
        return told

    @cached_property
    def reasons(self) -> dict[int, str]:
        """Why a row has no prediction, by its line."""
        without = self.table[self.table["reason"] != ""]
        found = dict(zip(without["line"], without["reason"], strict=True)) | self.rows.left_out
        return dict(sorted(found.items()))

    def not_predicted(self) -> list[str]:
        """One line for each such reason, with its number of rows."""
        return summed(f"{self.rows.path}:{line}: {reason}" for line, reason in self.reasons.items())

    def _by_reason(self) -> dict[str, dict[str, int]]:
        places: dict[str, dict[str, int]] = {}
        for line, reason in self.reasons.items():
            places.setdefault(reason, {"first_line": line, "rows": 0})["rows"] += 1
        return places

    def to_json(self) -> dict[str, Any]:
        """All numbers, errors as fractions."""
        return {
            "file": self.rows.path.name,
            "sha256": self.sha256,
            "kind": self.kind,
            **self.overall,
            "median_over_devices": median_over_devices(self.table),
            "provenance": shares(self.table["provenance"]),
            "in_sample": sorted({self.seen[group["device"]] for group in self.groups if group["in_sample"]}),
            "groups": self.groups,
            "not_predicted": [{"reason": reason, **place} for reason, place in self._by_reason().items()],
        }

    def to_csv(self) -> bytes:
        """The cells of the file as they stand, with the columns of `ADDED` behind them."""
        cells = self.rows.cells
        assert cells is not None  # refused before
        found = self.table.set_index("line").reindex(cells["line"])[list(ADDED)]
        left_out = cells["line"].map(self.rows.left_out)
        found["provenance"] = found["provenance"].fillna("")
        found["reason"] = np.where(left_out.notna(), left_out, found["reason"])
        joined = pd.concat([cells.drop(columns="line"), found.reset_index(drop=True)], axis=1)
        return csv_of(joined)


def validate(path: Path, kind: str, profile: str | None = None, to_csv: bool = False) -> Validation:
    """Predict the rows of a file; `to_csv` says that they will be written, so that a file that cannot be is refused.

    Raises:
        UserError: an unknown kind or profile, a file that cannot be read, or one without good rows of this kind.
    """
    if kind not in KINDS:
        raise unknown("--kind", "", kind, KINDS)
    given = None if profile is None else load_profile(profile, "--profile")
    rows = read_rows(path)
    if to_csv:
        _check_cells(rows)
    profiles = profiles_of(rows.table, given)
    table = validate_samples(rows.table, kind, profiles, str(path))
    sha256 = digest(path)
    seen = {device: fitted_on(of, sha256) for device, of in profiles.items()}
    return Validation(rows, kind, table, profiles, sha256, {of: found.name for of, found in seen.items() if found})


def check_outputs(path: Path, *outputs: Path | str | None) -> None:
    """Raise UserError if the file of rows is to be written over."""
    for output in outputs:
        if output not in (None, "-") and Path(str(output)).resolve() == path.resolve():
            raise UserError(f"{output}: is a file that is read; it is not written over")


def _check_cells(rows: Rows) -> None:
    if rows.cells is None:
        raise UserError(f"--csv: {rows.path}: is JSON lines; there are no columns to keep")
    taken = [name for name in ADDED if name in rows.cells]
    if taken:
        raise UserError(f"--csv: {rows.path}: has columns named {', '.join(taken)} already")
