"""The ledger of weight updates in words and tables, for the terminal and for a page."""

from collections.abc import Iterator

import pandas as pd

from ...formats.samples import summed
from .ledger import UpdateLedger
from .summary import told
from .text import Columns, markdown_table, share_or_count, terminal

_ROWS: Columns = {
    "line": ("line", "text"), "system": ("system", "text"), "model": ("model", "text"), "method": ("method", "text"),
    "phase": ("phase", "text"), "gpus": ("GPUs", "text"), "seconds": ("published", "seconds"),
    "predicted_s": ("predicted", "seconds"), "error": ("error %", "signed percent"),
    "model_left_out": ("model out %", "signed percent"), "system_left_out": ("system out %", "signed percent"),
}  # fmt: skip
_SUMMARY: Columns = {
    "system": ("system", "text"), "errors": ("errors", "text"), "rows": ("rows", "text"),
    "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"),
    "largest_abs_error": ("largest %", "percent"), "bias": ("bias %", "signed percent"),
    "interval_coverage": ("in interval %", "percent"),
}  # fmt: skip


def lines(ledger: UpdateLedger) -> Iterator[str]:
    """Every row, the worst first; scores by system; how many parameters; what was not predicted."""
    if len(ledger.table):
        yield terminal(ledger.worst_first, _ROWS)
        yield ""
        yield terminal(_summary(ledger), _SUMMARY)
        yield ""
        for row in ledger.summary.to_dict("records"):
            yield from told(f"{row['system']}, {row['errors']}", row["held"], row["held_of"])
    yield (
        f"{len(ledger.table)} of {len(ledger.table) + len(ledger.reasons)} rows predicted; {ledger.parameters} "
        "parameters of software stacks were moved by the shipped ledger, none belongs to a row"
    )
    yield from (f"not predicted: {line}" for line in summed(
        f"{ledger.path}:{line}: {reason}" for line, reason in ledger.reasons.items()
    ))  # fmt: skip


def _summary(ledger: UpdateLedger) -> pd.DataFrame:
    """The scores; of few rows how many are in the interval, not which share."""
    columns = (ledger.summary[name] for name in ("interval_coverage", "held", "held_of"))
    return ledger.summary.assign(interval_coverage=[share_or_count(*of) for of in zip(*columns, strict=True)])


def markdown(ledger: UpdateLedger) -> str:
    """The same as tables of a page: scores, every row with the worst first, and why others are not predicted."""
    reasons = summed(f"line {line}: {reason}" for line, reason in ledger.reasons.items())
    return "\n".join([
        *markdown_table(_summary(ledger), _SUMMARY), "", *markdown_table(ledger.worst_first, _ROWS), "",
        *(f"- {reason}" for reason in reasons),
    ])  # fmt: skip
