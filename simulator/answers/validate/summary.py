"""How far off predictions are: median, p90 and bias of the error, and how often the interval holds the measurement."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from .coverage import held


def scores(rows: pd.DataFrame) -> dict[str, Any]:
    """The numbers of a group of rows, errors as fractions; None where no row is scored."""
    scored = rows[rows["signed_error"].notna()]
    numbers: dict[str, Any] = {"rows": len(rows), "predicted": int(rows["predicted_s"].notna().sum())}
    return {**numbers, "scored": len(scored), **_errors(scored)}


def _errors(scored: pd.DataFrame) -> dict[str, float | None]:
    if scored.empty:
        return dict.fromkeys(("median_abs_error", "p90_abs_error", "bias", "interval_coverage"))
    return {**of_errors(scored["signed_error"]), "interval_coverage": float(held(scored, "seconds").mean())}


def of_errors(signed: "pd.Series[float]") -> dict[str, float]:
    """Median and p90 of the size of signed errors, and their median, the bias; NaN of none."""
    size = signed.abs()
    return {
        "median_abs_error": float(size.median()),
        "p90_abs_error": float(size.quantile(0.9)),
        "bias": float(signed.median()),
    }


def groups(rows: pd.DataFrame, keys: Sequence[str]) -> list[dict[str, Any]]:
    """The keys and `scores` of each group, in order of first appearance."""
    return [
        {**dict(zip(keys, value if isinstance(value, tuple) else (value,), strict=True)), **scores(group)}
        for value, group in rows.groupby(list(keys), sort=False, dropna=False)
    ]


def errors_by(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """`groups` as a table."""
    return pd.DataFrame(groups(rows, keys))


def median_over_devices(rows: pd.DataFrame) -> float | None:
    """The median of each device's median error, so that a device with many rows counts as one with few."""
    medians = rows["signed_error"].abs().groupby(rows["device"]).median().dropna()
    return float(medians.median()) if len(medians) else None


def shares(labels: pd.Series) -> dict[str, float]:
    """What share of the predicted rows has each provenance, the largest first."""
    counts = labels[labels != ""].value_counts(normalize=True)
    return {str(label): float(share) for label, share in counts.items()}
