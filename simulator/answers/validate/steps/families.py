"""How far off predictions of training steps are, by family of rows: errors of time and of memory as fractions."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ....profile import Z90
from ..summary import count, held, of_errors, verdict

ERRORS = {
    "error": "as shipped",
    "group_left_out": "group left out",
    "stack_left_out": "stack left out",
    "source_left_out": "source left out",
}
"""Columns of signed errors, and what they are; a group is a model on a GPU with a stack."""

LEFT_OUT = tuple(ERRORS)[1:]

FAMILIES = {
    "source": "source", "gpu": "GPU", "arch": "architecture", "stack": "stack", "precision": "precision",
    "pattern": "parallelism",
}  # fmt: skip
"""Columns by which rows are told apart, and what they are; dense and mixtures of experts are another."""

_RESERVED = "max reserved"
"""What the allocator took from the device, which is more than what it gave out: shown, never scored."""


def scores_by_family(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per family and way of leaving out that has errors: `family`, `name`, `errors`, and the scores."""
    return pd.DataFrame(
        [
            {"family": family, "name": name, "errors": words, **_scores(part, column)}
            for family, name, part in _families(rows)
            for column, words in ERRORS.items()
            if part[column].notna().any()
        ],
        columns=["family", "name", "errors", *_SCORES],
    )


def over_sources(rows: pd.DataFrame) -> dict[str, float]:
    """The median over sources of each source's median absolute error, so that large ones count as small ones."""
    medians = {words: rows[column].abs().groupby(rows["source"]).median() for column, words in ERRORS.items()}
    return {words: float(of.median()) for words, of in medians.items() if of.notna().any()}


def scores_of_memory(table: pd.DataFrame) -> pd.DataFrame:
    """A row per convention of what was measured."""
    measured = table[table["memory_error"].notna()]
    return pd.DataFrame(
        [
            {"measured": str(name), "scored": not str(name).startswith(_RESERVED), **_of(part["memory_error"])}
            for name, part in measured.groupby("mem_convention", sort=False)
        ],
        columns=["measured", "scored", *_SCORES[:4]],
    )


_SCORES = ("rows", "median_abs_error", "p90_abs_error", "bias", "interval_coverage", "held", "held_of", "confidence")


def _families(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    experts = rows["arch"].str.startswith("moe").astype(bool)  # of no rows it has no type
    yield "all", "all", rows
    yield "kind", "dense", rows[~experts]
    yield "kind", "MoE", rows[experts]
    for family in FAMILIES:
        for name, part in rows.groupby(family):
            yield family, str(name), part


def _scores(rows: pd.DataFrame, column: str) -> dict[str, Any]:
    hold, known = count(inside(rows, column))
    share = hold / known if known else None
    told = {"held": hold, "held_of": known, "confidence": verdict(hold, known)}
    return {**_of(rows[column]), "interval_coverage": share, **told}


def inside(rows: pd.DataFrame, column: str) -> "pd.Series[Any]":
    """Whether the interval of each row holds what was measured, as it is or as it was with rows left out."""
    if column == "error":
        return held(rows, "measured_s")
    reach = Z90 * rows.get(f"{column}_deviation", pd.Series(np.nan, rows.index))
    near = pd.Series(np.log1p(rows[column]), rows.index).abs() <= reach
    return near.astype(object).where(reach.notna() & rows[column].notna(), None)


def _of(errors: "pd.Series[float]") -> dict[str, Any]:
    known = errors.dropna()
    return {"rows": len(known), **of_errors(known)}


def known_of(row: Mapping[Any, Any], words: Mapping[str, Any]) -> str:
    """What is known of a row's miss: its neighbours, itself, or its families; keys of several hold if all do."""
    if row["id"] in words["contradicts"]:
        return f"contradicts its neighbours: {words['contradicts'][row['id']]}"
    return "; ".join(why for key, why in words["known"].items() if key == row["id"] or _is_of(row, key))


def _is_of(row: Mapping[Any, Any], key: str) -> bool:
    parts = [part.partition("=") for part in key.split(", ")]
    return all(equals and str(row[column]) == value for column, equals, value in parts)
