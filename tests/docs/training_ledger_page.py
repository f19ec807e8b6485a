"""docs/training-ledger.md and its figure from predictions of every row: `make ledger` writes them.

    python tests/docs/training_ledger_page.py PREDICTIONS.csv

keeps the predictions too, in data/validation/training_predictions.csv with five digits; the page is made of those, so
that a test can make it again without predicting anything.
"""

import sys
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from runcast.simulator.answers.validate.steps import StepLedger, restore, shipped_table
from runcast.simulator.answers.validate.steps import ledger as ledgers
from runcast.simulator.answers.validate.steps.ledger import FAMILIES, known_reason, over_sources, scores_of_memory
from runcast.simulator.answers.validate.steps.pairs import scores_of_pairs
from runcast.simulator.base.files import read_toml, write_atomic
from runcast.simulator.base.tables import Columns
from runcast.simulator.figures.page import png_browser
from runcast.simulator.figures.profile import Axis, ticks_of
from runcast.simulator.figures.theme import GREY, GRID, PALETTE, TITLE_PX, style

if TYPE_CHECKING:
    import plotly.graph_objects as go

# The ledger of training steps as one figure: predicted over measured seconds of every row.

WIDTH_PX, PLOT_PX = 1000, 620
OFF = 0.25
"""Half the width of the band, as a share of what was measured."""
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")


def training_ledger(table: "pd.DataFrame", title: str, subtitle: str) -> "go.Figure":
    """Both axes logarithmic, with the line of equality in a band of ±25 %, and coloured by software stack.

    The table has a row per scored row: `stack`, `measured_s` and `predicted_s`.
    """
    import plotly.graph_objects as go

    stacks = table.groupby("stack", sort=False).size().sort_values(ascending=False, kind="stable").index
    points = [_points(table, str(of), look) for of, look in zip(stacks, _looks(), strict=False)]
    figure = go.Figure([*_guides(table), *points])
    style(figure, title, subtitle, PLOT_PX)
    figure.update_xaxes(**ticks_of(Axis("measured", "s"), table["measured_s"]), gridcolor=GRID)
    figure.update_yaxes(**ticks_of(Axis("predicted", "s"), table["predicted_s"]), gridcolor=GRID, zeroline=False)
    legend = {"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}
    figure.update_layout(legend=legend, margin={"l": 70, "t": TITLE_PX})
    return figure


def svg(figure: "go.Figure") -> bytes:
    """The figure as an SVG file on white, so that it reads on a dark page too.

    Raises:
        UserError: no Chromium or no kaleido is installed.
    """
    browser = png_browser()
    import kaleido

    opts = {"format": "svg", "width": WIDTH_PX, "height": figure.layout.height}
    white = type(figure)(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    drawn: bytes = kaleido.calc_fig_sync(white, opts=opts, kopts={"path": browser, "mathjax": False})
    return drawn


def _looks() -> "cycle[dict[str, Any]]":
    """Every colour with one symbol, then all again with the next."""
    return cycle([{"color": colour, "symbol": symbol} for symbol in _SYMBOLS for colour in PALETTE])


def _points(table: "pd.DataFrame", stack: str, look: dict[str, Any]) -> "go.Scatter":
    import plotly.graph_objects as go

    rows = table[table["stack"] == stack]
    columns = rows["measured_s"], rows["predicted_s"]
    measured, predicted = ([float(f"{value:.4g}") for value in seconds] for seconds in columns)
    marker = {"size": 5, "opacity": 0.7, **look}
    return go.Scatter(x=measured, y=predicted, mode="markers", name=f"{stack} ({len(rows):,})", marker=marker)


def _guides(table: "pd.DataFrame") -> "list[go.Scatter]":
    import plotly.graph_objects as go

    seconds = table[["measured_s", "predicted_s"]]
    ends = [float(seconds.min().min()), float(seconds.max().max())]
    low, high = ([end * (1 + off) for end in ends] for off in (-OFF, OFF))
    band = go.Scatter(x=ends + ends[::-1], y=low + high[::-1], fill="toself", fillcolor=GRID, mode="none",
                      name=f"±{OFF:.0%}", hoverinfo="skip")  # fmt: skip
    line = {"color": GREY, "width": 1.2}
    return [band, go.Scatter(x=ends, y=ends, mode="lines", line=line, name="equal", hoverinfo="skip")]


ROOT = Path(__file__).parents[2]
PAGE, FIGURE = ROOT / "docs/training-ledger.md", ROOT / "docs/training-ledger.svg"
GOLDEN = shipped_table().with_name("training_predictions.csv")

HEAD = """# The ledger of training steps

Every row of `data/validation/training.csv`, measured against predicted. `make ledger` writes this page from the
predictions of all rows; a test compares it. `runcast validate --kind train_step` prints the same for any table,
`--csv` writes every row, and `--against` says which rows have moved since a CSV was written.

*As shipped*: parameters of software stacks fitted to all rows. *Group left out*: all rows of the same model on the same
GPU with the same stack out of the fit; *stack* and *source left out*: all rows of the same software, or from the same
publication. What was left out says how far off a prediction is for a run that nobody has measured yet. Errors are
predicted over measured less one: + is predicted too slow. The bias is the median signed error.
"""


class Goal(NamedTuple):
    """What a family should reach: median and 90th percentile of the absolute error, and the bias either way."""

    family: str
    name: str
    errors: str
    median: float
    p90: float
    bias: float = float("inf")


LEFT_OUT = "group left out"
GOALS = (
    Goal("all", "all", LEFT_OUT, 0.045, 0.16, 0.02),
    Goal("kind", "dense", LEFT_OUT, 0.04, 0.14),
    Goal("kind", "MoE", LEFT_OUT, 0.10, 0.35),
    Goal("all", "all", "stack left out", 0.12, 0.30),
)
OVER_SOURCES = 0.07

GOAL: Columns = {
    "of": ("rows", "text"), "errors": ("errors", "text"), "goal": ("goal: median / p90, bias %", "text"),
    "reached": ("reached", "text"), "missed": ("missed", "text"),
}  # fmt: skip
MISSED: Columns = {
    "family": ("family", "text"), "name": ("rows of", "text"), "rows": ("scored", "text"),
    "reached": ("median / p90, bias %", "text"), "missed": ("missed", "text"), "known": ("known", "text"),
}  # fmt: skip
PAIR: Columns = {
    "kind": ("change", "text"), "source": ("source", "text"), "model": ("model", "text"), "gpus": ("GPUs", "text"),
    "gpu": ("GPU", "text"), "before": ("before", "text"), "after": ("after", "text"),
    "measured": ("measured %", "signed"), "predicted": ("predicted %", "signed"),
    "sign_right": ("right sign", "yes"), "effect_share": ("predicted share of the effect", "share"),
}  # fmt: skip
CONTRADICTS: Columns = {
    "line": ("line", "text"), "id": ("id", "text"), "error": ("error %", "signed"),
    "group_left_out": ("group out %", "signed"), "known": ("tokens/s per GPU, of the row and of others", "text"),
}  # fmt: skip


def page(ledger: StepLedger) -> str:
    """The page as text."""
    words = read_toml(shipped_table().with_suffix(".toml"))
    parts = (
        [HEAD], _scored(ledger), _errors(ledger), _goals(ledger, words["known"]), _pairs(ledger), _memory(ledger),
        _worst(ledger, words), _contradicting(ledger, words["contradicts"]), _not_predicted(ledger),
    )  # fmt: skip
    return "\n".join(line for part in parts for line in part)


def _scored(ledger: StepLedger) -> Iterator[str]:
    rows = ledger.scored
    yield "## What was scored\n"
    yield (
        f"{ledgers.counts(ledger)}. The scored rows are from {rows['source'].nunique()} sources: "
        f"{rows['stack'].nunique()} software stacks on {rows['gpus'].min():,} to {rows['gpus'].max():,} GPUs of "
        f"{rows['gpu'].nunique()} kinds. What a row leaves blank is assumed by rules "
        "(`data/validation/training.toml`); the column `assumed` of the CSV says which.\n"
    )
    yield f"![Predicted over measured seconds of every scored row]({FIGURE.name})\n"


def _errors(ledger: StepLedger) -> Iterator[str]:
    yield "## Errors\n"
    yield from _family(ledger.summary, "all")
    many = int(ledger.scored["contradicts"].sum())
    yield f"Without the {many} rows that contradict their neighbours (below):\n"
    yield from _family(ledger.summary_without, "all")
    yield ledgers.over_sources_line(ledger) + ".\n"
    for family in FAMILIES:
        yield f"### By {FAMILIES[family]}\n"
        yield from _family(ledger.summary, family)


def _family(summary: pd.DataFrame, family: str) -> Iterator[str]:
    yield from (*ledgers.markdown(ledgers.wide_scores(summary, family), ledgers.family_columns(family)), "")


def _goals(ledger: StepLedger, known: Mapping[str, str]) -> Iterator[str]:
    yield "## Goals, and families that miss them\n"
    yield from (*ledgers.markdown(pd.DataFrame([*goals(ledger)]), GOAL), "")
    missed = pd.DataFrame([*misses(ledger.summary, known)])
    if len(missed):
        yield "A family is held to the goal of all rows, an architecture to that of its kind:\n"
        yield from (*ledgers.markdown(missed, MISSED), "")


def goals(ledger: StepLedger) -> Iterator[dict[str, Any]]:
    """Each goal beside what is reached."""
    scores = ledger.summary.set_index(["family", "name", "errors"])
    for goal in GOALS:
        key = (goal.family, goal.name, goal.errors)
        bias = "" if goal.bias == float("inf") else f", ±{100 * goal.bias:g}"
        told = {"of": goal.name, "errors": goal.errors, "goal": f"{100 * goal.median:g} / {100 * goal.p90:g}{bias}"}
        found = scores.loc[key].to_dict() if key in scores.index else None
        yield told | (_reached(found, goal) if found else {"reached": "not known", "missed": "-"})
    over = over_sources(ledger.scored).get(LEFT_OUT)
    reached = "not known" if over is None else f"{100 * over:.1f}"
    missed = "-" if over is None or over <= OVER_SOURCES else "median"
    yield {"of": "median over sources", "errors": LEFT_OUT, "goal": f"{100 * OVER_SOURCES:g}", "reached": reached,
           "missed": missed}  # fmt: skip


def misses(summary: pd.DataFrame, known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Families that miss their goal with their group left out; before there is a fit, as shipped."""
    errors = LEFT_OUT if (summary["errors"] == LEFT_OUT).any() else "as shipped"
    for row in summary[(summary["errors"] == errors) & summary["family"].isin(FAMILIES)].to_dict("records"):
        found = _reached(row, _goal_of(row["family"], row["name"]))
        if found["missed"] != "-":
            why = known.get(f"{row['family']}={row['name']}", "")
            yield {**row, **found, "family": FAMILIES[row["family"]], "known": why}


def _goal_of(family: str, name: str) -> Goal:
    every, dense, experts, _ = GOALS
    if family != "arch":
        return every
    return experts if name.startswith("moe") else dense


def _reached(row: Mapping[Any, Any], goal: Goal) -> dict[str, str]:
    median, p90, bias = (row[name] for name in ("median_abs_error", "p90_abs_error", "bias"))
    held = {"median": median <= goal.median, "p90": p90 <= goal.p90, "bias": abs(bias) <= goal.bias}
    return {
        "reached": f"{100 * median:.1f} / {100 * p90:.1f}, {100 * bias:+.1f}",
        "missed": ", ".join(name for name, good in held.items() if not good) or "-",
    }


def _pairs(ledger: StepLedger) -> Iterator[str]:
    yield "## Before and after\n"
    yield (
        "Rows of one source, model, GPU, stack and release that differ in one choice alone, with the same batch: what "
        "it changed. A measured effect below 1 % does not count for the sign; the error of the size is that of the "
        "predicted change over the measured one.\n"
    )
    yield from (*ledgers.markdown(scores_of_pairs(ledger.pairs), ledgers.PAIRS), "")
    changes = {"measured": ledger.pairs["measured_ratio"] - 1, "predicted": ledger.pairs["predicted_ratio"] - 1}
    yield from (*ledgers.markdown(ledger.pairs.assign(**changes), PAIR), "")


def _memory(ledger: StepLedger) -> Iterator[str]:
    yield "## Memory\n"
    yield (
        "What a convention counts is told in data/validation/training.toml: of the first pipeline rank (nanotron) or "
        "the one that holds most, and what is allocated, reserved, or in use on the device. What torchtitan's "
        "allocator reserved fills towards the limit of the device, so it is shown and not scored.\n"
    )
    yield from (*ledgers.markdown(scores_of_memory(ledger.table), ledgers.MEMORY), "")
    yield (
        "All of these steps ran. Some are predicted to need more memory than their device has; where a source does not "
        "say what is recomputed or offloaded (MaxText; Llama 3 70B by Megatron FSDP), its real plan may differ from "
        "the one that is simulated:\n"
    )
    yield from (*ledgers.markdown(ledgers.rows_over_memory(ledger.table), ledgers.OVER_MEMORY), "")


def _worst(ledger: StepLedger, words: Mapping[str, Any]) -> Iterator[str]:
    yield f"## The {ledgers.MOST_ROWS} rows that are furthest off\n"
    rows = ledger.worst_first.head(ledgers.MOST_ROWS)
    told = [known_reason(row, words) for row in rows.to_dict("records")]
    yield from (*ledgers.markdown(rows.assign(known=told), {**ledgers.ROWS, "known": ("known", "text")}), "")


def _contradicting(ledger: StepLedger, reasons: Mapping[str, str]) -> Iterator[str]:
    rows = ledger.worst_first[ledger.worst_first["contradicts"]]
    yield "## Rows that contradict their neighbours\n"
    yield from (*ledgers.markdown(rows.assign(known=rows["id"].map(reasons)), CONTRADICTS), "")


def _not_predicted(ledger: StepLedger) -> Iterator[str]:
    yield "## Rows that are not predicted, or not scored\n"
    yield from (f"- {reason}" for reason in ledger.why_not())
    for line in ledger.table[ledger.table["error"].isna()]["line"]:
        yield f"- line {line}: its time is not told; predicted, not scored"
    yield ""


def main(predictions: Path) -> None:
    """Keep the predictions, and write the page and the figure that are made of them."""
    write_atomic(GOLDEN, restore(predictions).predictions())
    ledger = restore(GOLDEN)
    write_atomic(PAGE, page(ledger).encode())
    figure = training_ledger(ledger.scored, "Training steps, predicted over measured", f"{len(ledger.scored):,} rows")
    write_atomic(FIGURE, svg(figure))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
