"""Samples beside a Profile: each predicted, named for the reader, and whether the profile was fitted to it."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ...base.files import digest
from ...base.units import format_seconds
from ...figures.profile import IN_SAMPLE
from ...figures.profile_lines import family
from ...formats.samples import Samples
from ...profile import Profile
from ...profile.forms import cost_class, quantity
from .rows import predict_samples
from .validation import fitted_on

NOT_FITTED = "not fitted to"


def scored(profile: Profile, samples: Samples) -> pd.DataFrame:
    """A row per sample of the profile's devices that can be predicted, as `figures.profile_samples` draws them."""
    mine = samples.table["device"].isin(profile.devices) | (not profile.devices)
    known = predict_samples(profile, samples.table[mine])
    known = known[known["reason"] == ""]
    return pd.DataFrame(
        {
            "kind": known["cost_class"],
            "family": known["cost_class"].map(family),
            "library": known["library"],
            "measured_s": known["seconds"].astype(float),
            "predicted_s": known["predicted_s"].astype(float),
            "size": known["size"].astype(float),
            "size_axis": [cost_class(kind).size for kind in known["cost_class"]],  # type: ignore[union-attr]
            "seen": _seen(profile, known["file"]),
            "text": _texts(known),
            "file": known["file"],
        }
    )


def _seen(profile: Profile, files: "pd.Series[str]") -> "pd.Series[str]":
    """Whether each row was read from a file with the bytes of one that the profile was fitted to."""
    known = {file: IN_SAMPLE if fitted_on(profile, digest(Path(file))) else NOT_FITTED for file in files.unique()}
    return files.map(known)


def _texts(known: pd.DataFrame) -> list[str]:
    """What a reader is told of each point."""
    return [
        f"{row['cost_class']}: {_features(row)}<br>measured {format_seconds(row['seconds'])}, "
        f"predicted {format_seconds(row['predicted_s'])} ({row['signed_error']:+.1%}), {row['provenance']}"
        for row in known.to_dict("records")
    ]


def _features(row: Mapping[Hashable, Any]) -> str:
    found = cost_class(str(row["cost_class"]))
    assert found is not None, row  # samples are checked
    given = [name for name in dict.fromkeys([*found.features, *found.axes]) if pd.notna(row.get(name))]
    return ", ".join(f"{name} {quantity(name, float(row[name]))}" for name in given)
