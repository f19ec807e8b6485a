"""How far off predictions are: median, p90 and bias of the error, and how often 90 % intervals hold the measurement.

Whether they hold it too rarely or too often to be chance, a binomial test says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import bdtr  # the cumulative distribution of binomials

from ...profile import Z90

FEW = 20
"""Below so many rows a share would promise more than it says: a count is told instead."""

LEAST, MOST = 0.8, 0.97
"""Shares of rows between which an interval that should hold 0.9 of them is left alone."""

CHANCE = 0.05
"""The probability below which a count is not put down to chance."""


def coverage(held: int, rows: int) -> str:
    """The share in percent, or `17/19` of few rows, or `-` of none."""
    if not rows:
        return "-"
    return f"{100 * held / rows:.1f}" if rows >= FEW else f"{held}/{rows}"


def verdict(held: int, rows: int) -> str:
    """`over-confident`, `under-confident`, or nothing: one-sided exact binomial tests against `LEAST` and `MOST`.

    Rows count as independent; those of one source are less so, which makes a verdict milder than it looks.
    """
    if not rows:
        return ""
    if bdtr(held, rows, LEAST) < CHANCE:
        return "over-confident"
    return "under-confident" if bdtr(rows - held, rows, 1 - MOST) < CHANCE else ""


def warn(what: str, held: int, rows: int) -> Iterator[str]:
    """A line about rows whose intervals are clearly too narrow or too wide, else none."""
    if found := verdict(held, rows):
        yield f"{found}: {what}: {held:,} of {rows:,} rows in the 90 % interval"


def is_covered(rows: pd.DataFrame, column: str, measured: str) -> "pd.Series[Any]":
    """Whether the interval of each row holds what was measured: as shipped (column `error`), or with rows left out, of
    which the standard deviation of ln(seconds) stands in a column of its own; None where it is not known.
    """
    if column == "error":
        return rows[measured].between(rows["interval_low_s"], rows["interval_high_s"])
    reach = Z90 * rows.get(f"{column}_deviation", pd.Series(np.nan, rows.index))
    near = pd.Series(np.log1p(rows[column]), rows.index).abs() <= reach
    return near.astype(object).where(reach.notna() & rows[column].notna(), None)


def count_held(inside: "pd.Series[Any]") -> dict[str, Any]:
    """Counts of rows inside their interval (`held`) and of rows with one, the share, and the verdict."""
    known = inside.dropna()
    held, rows = int(known.astype(bool).sum()), len(known)
    share = held / rows if rows else None
    return {"interval_coverage": share, "held": held, "held_of": rows, "confidence": verdict(held, rows)}


def error_scores(signed: "pd.Series[float]") -> dict[str, float]:
    """Median and p90 of the size of signed errors, and their median, the bias; NaN of none."""
    size = signed.abs()
    return {
        "median_abs_error": float(size.median()),
        "p90_abs_error": float(size.quantile(0.9)),
        "bias": float(signed.median()),
    }


# Ledgers: scores of parts of their rows, as shipped and with rows left out of the fit.

SCORES = (
    "rows", "median_abs_error", "p90_abs_error", "bias", "largest_abs_error", "interval_coverage", "held", "held_of",
    "confidence",
)  # fmt: skip

Part = tuple[str, str, pd.DataFrame]
"""Family, name and rows."""


def score_parts(parts: Iterable[Part], errors: Mapping[str, str], measured: str) -> pd.DataFrame:
    """A row per part and way of leaving out that has errors: `family`, `name`, `errors`, and `SCORES`."""
    rows = [
        {"family": family, "name": name, "errors": words, "rows": int(part[column].notna().sum()),
         **error_scores(part[column].dropna()), "largest_abs_error": float(part[column].abs().max()),
         **count_held(is_covered(part, column, measured))}
        for family, name, part in parts
        for column, words in errors.items()
        if part[column].notna().any()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["family", "name", "errors", *SCORES])


# Samples that profiles predict.


def scores(rows: pd.DataFrame) -> dict[str, Any]:
    """The numbers of a group of rows, errors as fractions; None where no row is scored."""
    scored = rows[rows["signed_error"].notna()]
    numbers = {"rows": len(rows), "predicted": int(rows["predicted_s"].notna().sum()), "scored": len(scored)}
    if scored.empty:
        return numbers | dict.fromkeys(("median_abs_error", "p90_abs_error", "bias", "interval_coverage"))
    held = float(is_covered(scored, "error", "seconds").mean())
    return {**numbers, **error_scores(scored["signed_error"]), "interval_coverage": held}


def scores_by(rows: pd.DataFrame, keys: Sequence[str]) -> list[dict[str, Any]]:
    """The keys and `scores` of each group, in order of first appearance."""
    groups = rows.groupby(list(keys), sort=False, dropna=False)
    return [{**dict(zip(keys, value, strict=True)), **scores(group)} for value, group in groups]


def median_over_devices(rows: pd.DataFrame) -> float | None:
    """The median of each device's median error, so that a device with many rows counts as one with few."""
    medians = rows["signed_error"].abs().groupby(rows["device"]).median().dropna()
    return float(medians.median()) if len(medians) else None


def shares(labels: pd.Series) -> dict[str, float]:
    """The share of predicted rows by provenance, the largest first."""
    counts = labels[labels != ""].value_counts(normalize=True)
    return {str(label): float(share) for label, share in counts.items()}
