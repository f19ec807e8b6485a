"""How far off predictions are: median, p90 and bias of the error, and how often 90 % intervals hold the measurement.

Whether they hold it too rarely or too often to be chance, a binomial test says.
"""

from collections.abc import Iterator, Sequence
from math import exp, lgamma, log
from typing import Any

import pandas as pd

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
    if _at_most(held, rows, LEAST) < CHANCE:
        return "over-confident"
    return "under-confident" if _at_most(rows - held, rows, 1 - MOST) < CHANCE else ""


def _at_most(count: int, rows: int, chance: float) -> float:
    """Probability of so many or fewer of these rows; by logarithms, as binomials of a thousand rows are no floats."""
    ways = (lgamma(rows + 1) - lgamma(i + 1) - lgamma(rows - i + 1) for i in range(count + 1))
    return sum(exp(way + i * log(chance) + (rows - i) * log(1 - chance)) for i, way in enumerate(ways))


def told(what: str, held: int, rows: int) -> Iterator[str]:
    """A line about rows whose intervals are clearly too narrow or too wide, else none."""
    if found := verdict(held, rows):
        yield f"{found}: {what}: {held:,} of {rows:,} rows in the 90 % interval"


def held(rows: pd.DataFrame, measured: str) -> "pd.Series[bool]":
    """Whether the interval of each row holds what was measured."""
    return rows[measured].between(rows["interval_low_s"], rows["interval_high_s"])


def count(inside: "pd.Series[Any]") -> tuple[int, int]:
    """How many of the rows that are known are inside, and how many those are."""
    known = inside.dropna()
    return int(known.astype(bool).sum()), len(known)


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
