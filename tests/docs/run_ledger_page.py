"""docs/run-ledger.md as it must be: `make ledger` writes it, tests/validate/test_run_ledger.py compares it."""

from collections.abc import Iterator

from runcast.simulator.answers.validate import runs
from runcast.simulator.answers.validate.ledger import plain
from runcast.simulator.answers.validate.run_rows import EVIDENCE
from runcast.simulator.answers.validate.runs import RunLedger, read_run_ledger
from runcast.simulator.base.tables import Columns, markdown_table

MISS = 0.10
"""An error beyond it needs words."""

FROM: Columns = {
    "id": ("row", "text"), "source": ("source", "text"), "where": ("where", "text"), "notes": ("assumed", "text"),
}  # fmt: skip

HEAD = """# The ledger of runs

Every row of `data/validation/run.csv`, published against predicted: whole runs, their failures, and how workers keep in
step. `make ledger` writes this page; a test compares it. `runcast validate --kind run` prints the same for any table of
these columns, `--csv` writes every row, and `--against` says which rows have moved since a CSV was written.

A row is a scenario file of `data/validation/runs`, changes to it, and a number of the report, or a ratio of two. Errors
are predicted over published less one. What is predicted is the mean over repeats of the run with other random numbers.
The 90 % interval has these numbers in it, and how sure a predicted step is. It does not have what the source leaves out
and a row assumes, so it is too narrow.
"""


def page(ledger: RunLedger) -> str:
    """The page as text."""
    parts = (
        [HEAD], _scores(ledger), _measured(ledger), _bounds(ledger), _misses(ledger), _unmeasured(ledger),
        _rows(ledger), _gaps(ledger),
    )  # fmt: skip
    return "\n".join(line for part in parts for line in part)


def _scores(ledger: RunLedger) -> Iterator[str]:
    yield "## Errors\n"
    evidence = "; ".join(f"*{name}*: {words}" for name, words in EVIDENCE.items())
    yield f"{runs.counts(ledger)}. Scored is what was measured, without bounds ({evidence}).\n"
    yield from (*markdown_table(runs.score_rows(ledger), runs.SCORES), "")


def _measured(ledger: RunLedger) -> Iterator[str]:
    yield "## Runs that were measured\n"
    yield from (*runs.markdown(ledger.scored, _without("evidence", runs.ROWS)), "")


def _bounds(ledger: RunLedger) -> Iterator[str]:
    yield "## Bounds\n"
    yield "Of these the source says no more than a bound. It is held or not, and there is no error.\n"
    yield from (*runs.markdown(ledger.bounded, runs.BOUNDED), "")


def _misses(ledger: RunLedger) -> Iterator[str]:
    yield "## What the misses are\n"
    missed = [row for row in plain(ledger.table) if row["miss"]]
    yield from (f"- **{row['id']}** ({_how_far(row)}): {row['miss']}." for row in missed)
    yield ""


def _how_far(row: dict[str, object]) -> str:
    error = row["error"]
    return f"{100 * error:+.0f} %" if isinstance(error, float) else "bound not held"


def _unmeasured(ledger: RunLedger) -> Iterator[str]:
    yield "## Identities and projections\n"
    yield "They say whether we count as the source does, not how good a model is.\n"
    yield from (*runs.markdown(ledger.unmeasured, runs.ROWS), "")


def _rows(ledger: RunLedger) -> Iterator[str]:
    yield "## Where rows are from, and what they assume\n"
    yield from (*markdown_table(ledger.table.to_dict("records"), FROM), "")


def _gaps(ledger: RunLedger) -> Iterator[str]:
    yield "## Rows that are not predicted\n"
    ids = {case.line: case.cells.text("id") for case in ledger.cases}
    yield from (f"- **{ids[line]}**: {reason}." for line, reason in ledger.reasons.items())
    yield ""


def _without(column: str, columns: Columns) -> Columns:
    return {key: shown for key, shown in columns.items() if key != column}


if __name__ == "__main__":
    print(page(read_run_ledger()), end="")
