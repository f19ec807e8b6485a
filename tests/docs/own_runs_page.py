"""docs/own-runs.svg: steps that were not one's own runs, predicted before and after learning from five that were.

python tests/docs/own_runs_page.py
"""

import tempfile
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from runcast.calibrate.fitting.runs import learn_runs
from runcast.simulator.answers.validate.steps import read_step_ledger, shipped_table
from runcast.simulator.base.files import to_toml, write_atomic
from runcast.simulator.figures.theme import PALETTE, style

from .training_ledger_page import ROOT, svg

FIGURE = ROOT / "docs/own-runs.svg"
SOURCE, BASE = "simumax_b200", "megatron-core"
"""As in the console block of the page."""
EVERY = 6


def predicted() -> pd.DataFrame:
    """Measured seconds, and those predicted by the base and by the learned stack, of the rows that were no runs."""
    rows = pd.read_csv(shipped_table(), dtype=str)
    mine = rows[rows["source"] == SOURCE]
    with tempfile.TemporaryDirectory() as folder:
        own, others, stack = (Path(folder) / name for name in ("own.csv", "others.csv", "mine.toml"))
        mine.iloc[::EVERY].to_csv(own, index=False)
        mine.drop(mine.index[::EVERY]).to_csv(others, index=False)
        write_atomic(str(stack), to_toml(learn_runs([own], BASE).stack(stack)).encode())
        before, after = (read_step_ledger(others, stack=of).table for of in (BASE, str(stack)))
    seconds = {"measured": before["measured_s"], "before": before["predicted_s"], "after": after["predicted_s"]}
    return pd.DataFrame(seconds)


def figure(table: pd.DataFrame) -> go.Figure:
    """Predicted over measured seconds, before and after, by measured seconds."""
    drawn = go.Figure()
    drawn.add_hline(1.0, line={"width": 1})
    names = {"before": f"by {BASE}", "after": "by the stack learned from 5 runs"}
    for (column, name), colour in zip(names.items(), PALETTE, strict=False):
        ratio = table[column] / table["measured"]
        drawn.add_scatter(x=table["measured"], y=ratio, mode="markers", name=name, marker={"color": colour, "size": 8})
    style(drawn, "Steps that were not among the runs", f"{len(table)} steps of {SOURCE}", 360)
    drawn.update_xaxes(title="measured, s", type="log")
    drawn.update_yaxes(title="predicted / measured")
    return drawn


if __name__ == "__main__":
    write_atomic(FIGURE, svg(figure(predicted())))
