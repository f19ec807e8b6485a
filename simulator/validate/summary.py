"""How far off predictions are: median, p90 and bias of the error, and how often the interval holds the measurement."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd


def scores(rows: pd.DataFrame) -> dict[str, Any]:
    """The numbers of a group of rows, errors as fractions; None where no row is scored."""
    scored = rows[rows["signed_error"].notna()]
    numbers: dict[str, Any] = {"rows": len(rows), "predicted": int(rows["predicted_s"].notna().sum())}
    return {**numbers, "scored": len(scored), **_errors(scored)}


def _errors(scored: pd.DataFrame) -> dict[str, float | None]:
    if scored.empty:
        return dict.fromkeys(("median_abs_error", "p90_abs_error", "bias", "interval_coverage"))
    error = scored["signed_error"].to_numpy(float)
    held = scored["seconds"].between(scored["interval_low_s"], scored["interval_high_s"])
    return {
        "median_abs_error": float(np.median(np.abs(error))),
        "p90_abs_error": float(np.quantile(np.abs(error), 0.9)),
        "bias": float(np.median(error)),
        "interval_coverage": float(held.mean()),
    }


def errors_by(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row of `scores` per value of the keys, in order of first appearance."""
    found = [
        {**dict(zip(keys, value if isinstance(value, tuple) else (value,), strict=True)), **scores(group)}
        for value, group in rows.groupby(list(keys), sort=False, dropna=False)
    ]
    return pd.DataFrame(found)
