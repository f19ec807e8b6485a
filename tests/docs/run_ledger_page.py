"""docs/run-ledger.md as it must be: `make ledger` writes it, tests/validate/test_run_ledger.py compares it."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any

from runcast.simulator.answers.validate import runs
from runcast.simulator.answers.validate.ledger import plain
from runcast.simulator.answers.validate.run_rows import EVIDENCE, shipped_table
from runcast.simulator.answers.validate.runs import RunLedger, read_run_ledger
from runcast.simulator.base.files import read_json
from runcast.simulator.base.tables import Columns, markdown_table
from runcast.simulator.profile import Z90
from runcast.simulator.systems.run.intervals import quantity_of
from runcast.simulator.systems.run.training.rates import published_rates, spread_between_clusters

MISS = 0.10
"""An error beyond it needs words."""

FROM: Columns = {
    "id": ("row", "text"), "source": ("source", "text"), "where": ("where", "text"), "notes": ("assumed", "text"),
}  # fmt: skip

WIDTHS: Columns = {
    "name": ("90 % interval of", "text"), "factor": ("a factor of", "text"),
    "without": ("each source left out", "text"), "source": ("from", "text"),
}  # fmt: skip

HEAD = """# The ledger of runs

Every row of `data/validation/run.csv`, published against predicted: whole runs, their failures, and how workers keep in
step. `make ledger` writes this page; a test compares it. `runcast validate --kind run` prints the same for any table of
these columns, `--csv` writes every row, and `--against` says which rows have moved since a CSV was written.

A row is a scenario file of `data/validation/runs`, changes to it, and a number of the report, or a ratio of two. Errors
are predicted over published less one. What is predicted is the mean over repeats of the run with other random numbers,
failure rates being as stated. The 90 % interval is of a model that has not seen the row's source (see Intervals).
"""

INTERVALS = """Chance and the predicted step are in all of them. In those of rows that are scored are failure rates that
are drawn, and the model's own error: what the other three do not explain, the median over sources of the median error
of a source, widened by Student's t. A row's own source is left out both of how far clusters are apart and of the
model's own error; a predicted step has the error of the training ledger, with all of its rows.

| | rows with an interval | in it | median ± % |
|---|---|---|---|
| chance and the step alone | 8 | 2 | 4.8 |
"""

THIN = """Sources are few. One error of the model for all of time is the most that they tell, and of failures none
beyond the spread of rates. A rate that a source fitted without saying to how many failures (RSC-1) counts as one that
nobody counted. How unsure stated times of detection, restart and storage are is in no source: most state none, the
others one number, so they are not drawn. What a source leaves out, such as an incident of 18 hours, is in the intervals
as far as runs of others had it. The time of one checkpoint or one restart has no interval.
"""


def page(ledger: RunLedger) -> str:
    """The page as text."""
    parts = (
        [HEAD], scores(ledger), _intervals(ledger), measured(ledger), _bounds(ledger), misses(ledger),
        _unmeasured(ledger), origins(ledger), gaps(ledger),
    )  # fmt: skip
    return "\n".join(line for part in parts for line in part)


def scores(ledger: RunLedger) -> Iterator[str]:
    """How far off rows are, by subject and source."""
    yield "## Errors\n"
    evidence = "; ".join(f"*{name}*: {words}" for name, words in EVIDENCE.items())
    yield f"{runs.counts(ledger)}. Scored is what was measured, without bounds ({evidence}).\n"
    yield from (*markdown_table(runs.score_rows(ledger), runs.SCORES), "")


def _intervals(ledger: RunLedger) -> Iterator[str]:
    found, kinds = runs.scores(ledger.scored), ledger.scored["metric"].map(quantity_of).replace("", None)
    yield "## Intervals\n"
    yield INTERVALS + _now("with rates and the model's own error", found)
    yield from (_now(f"of these {kind}", runs.scores(rows)) for kind, rows in ledger.scored.groupby(kinds))
    yield from ("", *markdown_table(list(_widths()), WIDTHS), "")
    yield THIN


def _now(name: str, found: Mapping[str, Any]) -> str:
    return f"| {name} | {found['held_of']} | {found['held']} | {100 * found['median_reach']:.1f} |"


def _widths() -> Iterator[dict[str, str]]:
    """The widths in use, with each source left out, and what they are from."""
    found, rates = _shipped_errors(), published_rates()
    sources = sorted({rate.source for rate in rates})
    many = f"{len(rates)} clusters of {len(sources)} sources (data/failure_rates.toml)"
    yield _width(
        "a rate that nobody counted",
        spread_between_clusters(),
        [spread_between_clusters(source) for source in sources],
        many,
    )
    for name, width in found["widths"].items():
        without = [of.get(name, 0.0) for of in found["without"].values()]
        yield _width(f"{name}, the model's own", width["value"], without, width["source"])


def _width(name: str, width: float, without: Sequence[float], source: str) -> dict[str, str]:
    low, high = (f"{exp(Z90 * end):.2f}" for end in (min(without), max(without)))
    return {"name": name, "factor": f"{exp(Z90 * width):.2f}", "without": f"{low} to {high}", "source": source}


def _shipped_errors() -> dict[str, Any]:
    found: dict[str, Any] = read_json(shipped_table().with_name("run_errors.json"))
    return found


def measured(ledger: RunLedger) -> Iterator[str]:
    """Rows that are scored."""
    yield f"## {ledger.title} that were measured\n"
    yield from (*runs.markdown(ledger.scored, _without("evidence", runs.ROWS)), "")


def _bounds(ledger: RunLedger) -> Iterator[str]:
    yield "## Bounds\n"
    yield "Of these the source says no more than a bound. It is held or not, and there is no error.\n"
    yield from (*runs.markdown(ledger.bounded, runs.BOUNDED), "")


def misses(ledger: RunLedger) -> Iterator[str]:
    """What large errors are from."""
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


def origins(ledger: RunLedger) -> Iterator[str]:
    """Sources and assumptions."""
    yield "## Where rows are from, and what they assume\n"
    yield from (*markdown_table(ledger.table.to_dict("records"), FROM), "")


def gaps(ledger: RunLedger) -> Iterator[str]:
    """Rows without a prediction, and why."""
    yield "## Rows that are not predicted\n"
    ids = {case.line: case.cells.text("id") for case in ledger.cases}
    yield from (f"- **{ids[line]}**: {reason}." for line, reason in ledger.reasons.items())
    yield ""


def _without(column: str, columns: Columns) -> Columns:
    return {key: shown for key, shown in columns.items() if key != column}


if __name__ == "__main__":
    print(page(read_run_ledger()), end="")
