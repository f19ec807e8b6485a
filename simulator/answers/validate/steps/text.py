"""The ledger of training steps in words and tables, for the terminal and for a page."""

from collections.abc import Iterator

import pandas as pd

from ....base.tables import Columns, markdown_table, terminal_table
from ..scores import coverage, warn
from .ledger import ERRORS, FAMILIES, StepLedger, scores_of_memory
from .ledger import over_sources as median_over_sources
from .pairs import scores_of_pairs

MOST_ROWS = 50
"""Of the worst rows; `--csv` writes all."""

ROWS: Columns = {
    "line": ("line", "count"), "source": ("source", "text"), "model": ("model", "text"), "gpus": ("GPUs", "count"),
    "gpu": ("GPU", "text"), "stack": ("stack", "text"), "precision": ("precision", "text"),
    "pattern": ("parallelism", "text"), "measured_s": ("measured", "seconds"), "predicted_s": ("predicted", "seconds"),
    "error": ("error %", "signed"), "group_left_out": ("group out %", "signed"),
    "stack_left_out": ("stack out %", "signed"), "source_left_out": ("source out %", "signed"),
}  # fmt: skip
_SCORES: Columns = {
    "rows": ("scored", "count"), "interval_coverage": ("in interval %", "share"),
    **{words: (f"{words}: median / p90, bias %", "text") for words in ERRORS.values()},
}  # fmt: skip
MEMORY: Columns = {
    "measured": ("measured", "text"), "rows": ("rows", "count"), "median_abs_error": ("median %", "share"),
    "p90_abs_error": ("p90 %", "share"), "bias": ("bias %", "signed"), "scored": ("scored", "yes"),
}  # fmt: skip
COVERAGE: Columns = {
    "family": ("family", "text"), "name": ("rows", "text"),
    **{words: (f"{words} %", "text") for words in ERRORS.values()},
}  # fmt: skip
PAIRS: Columns = {
    "kind": ("change", "text"), "pairs": ("pairs", "count"), "counted": ("above 1 %", "count"),
    "right_sign": ("right sign %", "share"), "median_size_error": ("median error of the size %", "share"),
}  # fmt: skip


def lines(ledger: StepLedger) -> Iterator[str]:
    """Errors by family, of memory and of pairs; the worst rows; how many parameters; what was not predicted."""
    if len(ledger.scored):
        for family in ("all", *FAMILIES):
            yield from _terminal(wide_scores(ledger.summary, family), family_columns(family))
        if many := int(ledger.scored["contradicts"].sum()):
            yield f"without {many} rows that contradict their neighbours:"
            yield from _terminal(wide_scores(ledger.summary_without, "all"), family_columns("all"))
        yield from (over_sources(ledger), "")
        yield "rows in the 90 % interval:"
        yield from _terminal(coverages(ledger.summary), COVERAGE)
        yield from (*confidences(ledger.summary), "")
        yield from _terminal(scores_of_pairs(ledger.pairs), PAIRS)
        yield from _terminal(ledger.worst_first.head(MOST_ROWS), ROWS)
    if len(memory := scores_of_memory(ledger.table)):
        yield from _terminal(memory, MEMORY)
    yield counts(ledger)
    yield from (f"not predicted: {reason}" for reason in ledger.why_not(f"{ledger.path}:"))


def family_columns(family: str) -> Columns:
    """The columns of `wide_scores`."""
    return {"name": (FAMILIES.get(family, "rows"), "text"), **_SCORES}


def wide_scores(summary: pd.DataFrame, family: str) -> pd.DataFrame:
    """A row per name of a family, with the scores of each way of leaving out as one text; `all` has dense and MoE."""
    rows = summary[summary["family"].isin(["all", "kind"] if family == "all" else [family])]
    return pd.DataFrame([
        {"name": name, **part.iloc[0][["rows", "interval_coverage"]],
         **{row["errors"]: f"{100 * row['median_abs_error']:.1f} / {100 * row['p90_abs_error']:.1f}, "
                           f"{100 * row['bias']:+.1f}" for row in part.to_dict("records")}}
        for name, part in rows.groupby("name", sort=False)
    ])  # fmt: skip


def coverages(summary: pd.DataFrame) -> pd.DataFrame:
    """A row per family and name: the share of rows in the interval by way of leaving out, in percent; counts of few."""
    rows = [
        {"family": FAMILIES.get(str(family), "rows"), "name": name,
         **{row["errors"]: coverage(row["held"], row["held_of"]) for row in part.to_dict("records")}}
        for (family, name), part in summary.groupby(["family", "name"], sort=False)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["family", "name", *summary["errors"].unique()])


def confidences(summary: pd.DataFrame) -> Iterator[str]:
    """A line for each family whose intervals hold clearly too little, or too much."""
    for row in summary.to_dict("records"):
        what = f"{FAMILIES.get(row['family'], 'rows')} {row['name']}, {row['errors']}"
        yield from warn(what, row["held"], row["held_of"])


def over_sources(ledger: StepLedger) -> str:
    """The median over sources, by way of leaving out."""
    medians = median_over_sources(ledger.scored)
    found = ", ".join(f"{100 * value:.1f} % {words}" for words, value in medians.items())
    return f"median over sources of each source's median: {found}"


def counts(ledger: StepLedger) -> str:
    """How many rows and parameters."""
    return (
        f"{len(ledger.table):,} of {len(ledger.cases):,} rows predicted, {len(ledger.scored):,} scored; "
        f"{ledger.parameters} parameters were fitted to the shipped ledger, none belongs to a row"
    )


def markdown(rows: pd.DataFrame, columns: Columns) -> Iterator[str]:
    """A table of a page, without the columns that say nothing."""
    return markdown_table(rows.to_dict("records"), _telling(rows, columns))


def _terminal(rows: pd.DataFrame, columns: Columns) -> Iterator[str]:
    """A table without the columns that say nothing, and an empty line."""
    yield from (*terminal_table(rows.to_dict("records"), _telling(rows, columns)), "")


def _telling(rows: pd.DataFrame, columns: Columns) -> Columns:
    """The columns in which any row says something: nothing is left out before a fit is there."""
    return {key: shown for key, shown in columns.items() if key in rows and rows[key].notna().any()}
