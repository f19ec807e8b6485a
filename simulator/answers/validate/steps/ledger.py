"""The ledger of training steps: every row beside its prediction, as shipped and with its group left out of the fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ....base.files import digest
from ....base.tables import Columns, markdown_table, terminal_table
from ....profile import Z90
from ....runner import Runner
from ....uncertainty import shipped_fit, shipped_memory_errors
from ..ledger import Ledger, Watch, csv_bytes, plain, predict_cases, read_left_out, read_predictions, split_rows
from ..scores import SCORES, Part, count_held, coverage, error_scores, score_parts, warn
from .cases import PREDICTED, StepCase, read_cases, read_words, shipped_table
from .pairs import pairs_of, scores_of_pairs

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
"""What an allocator took from the device, up to its limit, which is more than a step needs: shown, never scored."""


def is_memory_scored(convention: str) -> bool:
    """Whether a peak that was measured by this convention is scored."""
    return not convention.startswith(_RESERVED)


@dataclass(frozen=True, eq=False)
class StepLedger(Ledger):
    """The rows of a file of training steps; rows without an error have no measured time."""

    compared = MappingProxyType({"predicted_s": "step time", "predicted_gib": "memory"})
    measured = "measured_s"
    families = MappingProxyType(FAMILIES)

    cases: Sequence[StepCase]

    @cached_property
    def scored(self) -> pd.DataFrame:
        """The rows that have a measured time."""
        return self.table[self.table["error"].notna()]

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Scores of each family of rows and each way of leaving out; errors as fractions."""
        return scores_by_family(self.scored)

    @cached_property
    def summary_without(self) -> pd.DataFrame:
        """The summary without the rows that contradict their neighbours."""
        return scores_by_family(self.scored[~self.scored["contradicts"]])

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Rows that differ in one choice alone, and what it changed."""
        line, measured, predicted = (self.scored[name] for name in ("line", "measured_s", "predicted_s"))
        return pairs_of(self.cases, dict(zip(line, zip(measured, predicted, strict=True), strict=True)))

    def medians(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The median absolute error of each family of rows, as shipped: family, name, median_abs_error."""
        shipped = scores_by_family(rows).query("errors == 'as shipped'")
        return shipped[["family", "name", "median_abs_error"]]

    def to_json(self) -> dict[str, Any]:
        """All numbers, errors as fractions."""
        return {
            "file": self.path.name,
            "kind": "train_step",
            "rows": len(self.cases),
            "predicted": len(self.table),
            "scored": len(self.scored),
            "parameters": self.parameters,
            "summary": plain(self.summary),
            "summary_without_contradicting": plain(self.summary_without),
            "median_over_sources": over_sources(self.scored),
            "memory": plain(scores_of_memory(self.table)),
            "memory_coverage": plain(coverage_of_memory(self.table)),
            "over_memory": plain(rows_over_memory(self.table)),
            "pairs_summary": plain(scores_of_pairs(self.pairs)),
            "pairs": plain(self.pairs),
            "table": plain(self.worst_first),
            "not_predicted": self.not_predicted(),
        }

    def to_csv(self) -> bytes:
        """All rows, the worst first, and behind them those that are not predicted with their `reason`."""
        ids = {case.line: case.key for case in self.cases}
        without = [{"line": line, "id": ids[line], "reason": reason} for line, reason in self.reasons.items()]
        return csv_bytes(pd.concat([self.worst_first.astype(object).assign(reason=""), pd.DataFrame(without)]))

    def predictions(self) -> bytes:
        """The predictions in the order of the file, with five digits; `restore` reads them."""
        ids = [case.key for case in self.cases]
        rounded = self.table.set_index("line")[list(PREDICTED)].map(lambda value: f"{value:.5g}")
        rows = rounded.reindex([case.line for case in self.cases]).reset_index()
        return csv_bytes(rows.assign(id=ids, reason=rows["line"].map(self.reasons))[["id", *PREDICTED, "reason"]])

    def lines(self) -> Iterator[str]:
        """Errors by family, of memory and of pairs; the worst rows; how many parameters; what was not predicted."""
        if len(self.scored):
            for family in ("all", *FAMILIES):
                yield from _terminal(wide_scores(self.summary, family), family_columns(family))
            if many := int(self.scored["contradicts"].sum()):
                yield f"without {many} rows that contradict their neighbours:"
                yield from _terminal(wide_scores(self.summary_without, "all"), family_columns("all"))
            yield from (over_sources_line(self), "")
            yield "rows in the 90 % interval:"
            yield from _terminal(coverages(self.summary), COVERAGE)
            yield from (*confidences(self.summary), "")
            yield from _terminal(scores_of_pairs(self.pairs), PAIRS)
            yield from _terminal(self.worst_first.head(MOST_ROWS), ROWS)
        if len(memory := scores_of_memory(self.table)):
            yield from _terminal(memory, MEMORY)
        if len(peaks := coverage_of_memory(self.table)):
            yield from ("peaks in the 90 % interval:", *_terminal(coverages(peaks), COVERAGE))
        if (refused := rows_over_memory(self.table))["rows"].any():
            yield from ("rows that ran, and are predicted not to fit:", *_terminal(refused, OVER_MEMORY))
        yield counts(self)
        yield from (f"not predicted: {reason}" for reason in self.why_not(f"{self.path}:"))


def read_step_ledger(
    path: Path | None = None, runner: Runner | None = None, watch: Watch | None = None, stack: str | None = None
) -> StepLedger:
    """Predict the rows of a file of training steps (default: the one that ships); `watch` hears how many are done.

    All of them on one `stack`, if one is named. A UserError if the file cannot be read, or lacks a column.
    """
    path = path or shipped_table()
    cases = read_cases(path, stack)
    return _ledger(path, cases, predict_cases(cases, runner, watch))


def restore(predictions: Path, path: Path | None = None) -> StepLedger:
    """The ledger of a file of training steps from predictions that were written earlier; predicts nothing.

    A UserError if a file cannot be read, or lacks a column.
    """
    path = path or shipped_table()
    cases, found = read_cases(path), read_predictions(predictions, PREDICTED)
    lost = {"reason": f"not in {predictions.name}"}
    return _ledger(path, cases, [found.get(case.key, lost) for case in cases])


DEVIATIONS = tuple(f"{column}_deviation" for column in LEFT_OUT)
"""Standard deviation of ln(seconds) that a prediction has with the row's group, stack or source left out."""

MEMORY_ERRORS = {"memory_deviation": "as shipped", "memory_left_out_deviation": "source left out"}
"""Columns with the standard deviation of ln(bytes) of a peak of the shipped ledger, and what they are."""

_FULL = 0.8
"""Share of a device above which a plan is predicted to fill it."""
_MUCH = 1.15
"""Share of a device, about the upper end of the 90 % interval of a peak that just fits."""

_TEXTS = ("source", "framework", "sw_version", "model", "arch", "gpu", "precision", "mem_convention")
_COLUMNS = (
    "line", "id", "source", "framework", "sw_version", "stack", "model", "arch", "gpu", "gpus", "precision", "pattern",
    "measured_s", "predicted_s", "error", "interval_low_s", "interval_high_s", *LEFT_OUT, *DEVIATIONS,
    "measured_gib", "predicted_gib", "memory_error", "mem_convention", *MEMORY_ERRORS, "memory_filled", "assumed",
    "contradicts",
)  # fmt: skip
_TYPES = {"contradicts": bool, "arch": str} | dict.fromkeys(
    (*ERRORS, *DEVIATIONS, *MEMORY_ERRORS, "memory_filled"), float
)
"""Of columns that hold nothing where no row is predicted, or where the fit left nothing out."""


def _ledger(path: Path, cases: Sequence[StepCase], answers: Sequence[Mapping[str, Any]]) -> StepLedger:
    left_out, parameters = read_left_out("training_fit.json", path)
    known = digest(path)
    sure = shipped_fit().left_out if shipped_fit().about.get("sha256") == known else {}
    peaks = shipped_memory_errors().deviations if shipped_memory_errors().about.get("sha256") == known else {}
    contradicts = read_words()["contradicts"]

    def row(case: StepCase, found: Mapping[str, float]) -> dict[str, Any]:
        cells = case.cells
        measured_s, measured_gib = case.measured_s or np.nan, cells.time("peak_mem_gib") or np.nan
        of_peak = peaks.get(case.key, {})
        return {
            **found,
            **{column: cells.text(column) for column in _TEXTS},
            **{f"{of}_left_out": error for of, error in left_out.get(case.key, {}).items()},
            **{f"{of}_left_out_deviation": deviation for of, deviation in sure.get(case.key, {}).items()},
            "line": case.line,
            "id": case.key,
            "stack": case.stack,
            "gpus": cells.whole("n_gpus"),
            "pattern": _pattern(case),
            "measured_s": measured_s,
            "error": found["predicted_s"] / measured_s - 1,
            "measured_gib": measured_gib,
            "memory_error": found["predicted_gib"] / measured_gib - 1,
            "memory_deviation": of_peak.get("shipped"),
            "memory_left_out_deviation": of_peak.get("source"),
            "memory_filled": found["predicted_gib"] / (cells.time("gpu_mem_gb") or np.nan),
            "assumed": "; ".join(case.assumed),
            "contradicts": case.key in contradicts,
        }

    rows, reasons = split_rows(cases, answers, row)
    table = pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_TYPES)
    return StepLedger(path, table, reasons, parameters, cases)


def _pattern(case: StepCase) -> str:
    """The axes above 1; data parallelism that shards weights is `fsdp`."""
    assert case.scenario is not None
    parallel: Mapping[str, Any] = case.scenario["parallel"]
    axes = [axis for axis in ("tp", "cp", "pp", "ep") if parallel.get(axis, 1) > 1]
    if case.cells.whole("dp", 1) > 1:
        axes.append("fsdp" if parallel["zero"] == 3 else "dp")
    return "+".join(axes) or "one rank"


# Scores by family of rows: errors of time and of memory as fractions.


def scores_by_family(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per family and way of leaving out that has errors: `family`, `name`, `errors`, and the scores."""
    return score_parts(_families(rows), ERRORS, "measured_s")


def _families(rows: pd.DataFrame) -> Iterator[Part]:
    experts = rows["arch"].str.startswith("moe").astype(bool)  # of no rows it has no type
    yield from (("all", "all", rows), ("kind", "dense", rows[~experts]), ("kind", "MoE", rows[experts]))
    for family in FAMILIES:
        yield from ((family, str(name), part) for name, part in rows.groupby(family))


def over_sources(rows: pd.DataFrame) -> dict[str, float]:
    """The median over sources of each source's median absolute error, so that large ones count as small ones."""
    medians = {words: rows[column].abs().groupby(rows["source"]).median() for column, words in ERRORS.items()}
    return {words: float(of.median()) for words, of in medians.items() if of.notna().any()}


def scores_of_memory(table: pd.DataFrame) -> pd.DataFrame:
    """A row per convention of what was measured."""
    measured = table[table["memory_error"].notna()]
    rows = [
        {"measured": str(name), "scored": is_memory_scored(str(name)), "rows": len(part),
         **error_scores(part["memory_error"])}
        for name, part in measured.groupby("mem_convention", sort=False)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["measured", "scored", *SCORES[:4]])


def coverage_of_memory(table: pd.DataFrame) -> pd.DataFrame:
    """How often intervals of scored peaks hold them, by family and way of leaving out, as in `scores_by_family`.

    Plans that were predicted to fill a device are told apart, as their probability of fitting is what matters.
    """
    rows = table[table["memory_error"].notna() & table["mem_convention"].map(is_memory_scored).astype(bool)]
    full = rows["memory_filled"] > _FULL
    parts = [("all", "all", rows)]
    parts += [("filled", f"predicted {words} {_FULL:.0%} of the device", part)
              for words, part in (("up to", rows[~full]), ("above", rows[full]))]  # fmt: skip
    parts += [(name, str(key), part) for name in ("source", "mem_convention") for key, part in rows.groupby(name)]
    found = [
        {"family": family, "name": name, "errors": words, **count_held(_is_peak_covered(part, column))}
        for family, name, part in parts
        for column, words in MEMORY_ERRORS.items()
        if part[column].notna().any()
    ]
    return pd.DataFrame(found, columns=["family", "name", "errors", *SCORES[5:]])


def rows_over_memory(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that are predicted to need more memory than their device has, all and by stack; `much`: by over 15 %.

    All rows ran. Memory counts as the row's convention has it. Where a source does not say what is recomputed or
    offloaded, its real plan may differ from the one that is simulated.
    """
    known = table[table["memory_filled"].notna()]
    parts = [("all", known), *((str(name), part) for name, part in known.groupby("stack"))]
    rows = [
        {"name": name, "rows": int((part["memory_filled"] > 1).sum()), "of": len(part),
         "much": int((part["memory_filled"] > _MUCH).sum())}
        for name, part in parts
    ]  # fmt: skip
    found = pd.DataFrame(rows, columns=["name", "rows", "of", "much"])
    return found[(found["rows"] > 0) | (found["name"] == "all")].sort_values("rows", ascending=False, kind="stable")


def _is_peak_covered(rows: pd.DataFrame, column: str) -> "pd.Series[Any]":
    """Whether the interval of each row holds its measured peak; None where it has no interval."""
    near = np.log1p(rows["memory_error"]).abs() <= Z90 * rows[column]
    return near.astype(object).where(rows[column].notna(), None)


def known_reason(row: Mapping[Any, Any], words: Mapping[str, Any]) -> str:
    """The known reason of a row's error: by its neighbours, its id, or its families (all keys must match)."""
    if row["id"] in words["contradicts"]:
        return f"contradicts its neighbours: {words['contradicts'][row['id']]}"

    def holds(key: str) -> bool:
        parts = [part.partition("=") for part in key.split(", ")]
        return key == row["id"] or all(equals and str(row[column]) == value for column, equals, value in parts)

    return "; ".join(why for key, why in words["known"].items() if holds(key))


# In words and tables, for the terminal and for a page.

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
OVER_MEMORY: Columns = {
    "name": ("stack", "text"), "rows": ("rows", "count"), "of": ("of", "count"),
    "much": (f"by more than {_MUCH - 1:.0%}", "count"),
}  # fmt: skip
COVERAGE: Columns = {
    "family": ("family", "text"), "name": ("rows", "text"),
    **{words: (f"{words} %", "text") for words in ERRORS.values()},
}  # fmt: skip
PAIRS: Columns = {
    "kind": ("change", "text"), "pairs": ("pairs", "count"), "counted": ("above 1 %", "count"),
    "right_sign": ("right sign %", "share"), "median_size_error": ("median error of the size %", "share"),
}  # fmt: skip


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


def over_sources_line(ledger: StepLedger) -> str:
    """The median over sources, by way of leaving out."""
    medians = over_sources(ledger.scored)
    found = ", ".join(f"{100 * value:.1f} % {words}" for words, value in medians.items())
    return f"median over sources of each source's median: {found}"


def counts(ledger: StepLedger) -> str:
    """The numbers of rows and parameters, in words."""
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
