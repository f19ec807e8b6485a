"""Predicted against measured, or measured against measured: one join of two tables of spans, op by op and rank by rank.

Both sides are spans with the columns rank, op, name, kind, start_s and end_s; further columns and lanes do not matter.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ..simulator import engine
from ..simulator.errors import UserError
from ..simulator.files import read_json
from ..simulator.scenario import Resolved, load_scenario
from ..simulator.timeline import spans_of_ranks
from .execute.measured import SPANS, SUMMARY

KEYS = ["op", "name", "kind", "rank"]
NEEDED = [*KEYS, "start_s", "end_s"]


def durations(spans: pd.DataFrame) -> pd.DataFrame:
    """One row per op and rank: how long the rank worked on it, in seconds, without its wait for the gang's last member.

    A member that had ended before the last one joined (the root of a small broadcast) counts as 0.
    """
    once = spans.drop_duplicates(["op", "rank"]).reset_index(drop=True)
    all_there = once.groupby("op")["start_s"].transform("max")
    return once[KEYS].assign(seconds=(once["end_s"] - all_there).clip(lower=0.0))


def compare(measured: pd.DataFrame, other: pd.DataFrame, column: str = "simulated_s") -> pd.DataFrame:
    """Join two tables of spans: op, name, kind, rank, `column` (of `other`), measured_s, ratio (measured to other).

    An op that only one side has keeps its row, with NaN on the other side; so does the ratio of an op without time.
    """
    sides = [durations(spans).rename(columns={"seconds": name}) for spans, name in
             ((other, column), (measured, "measured_s"))]  # fmt: skip
    joined = sides[0].merge(sides[1], on=KEYS, how="outer").sort_values(["op", "rank"], ignore_index=True)
    return joined.assign(ratio=_ratio(joined["measured_s"], joined[column]))


def by_kind(compared: pd.DataFrame) -> pd.DataFrame:
    """One row per kind over the ops that both sides have: how many, both sums, their ratio, the median op's ratio."""
    column = compared.columns[len(KEYS)]
    both = compared.dropna(subset=[column, "measured_s"])
    groups = both.groupby("kind", sort=False)
    sums = groups[[column, "measured_s"]].sum()
    table = sums.assign(ratio=_ratio(sums["measured_s"], sums[column]), median_ratio=groups["ratio"].median())
    table.insert(0, "spans", groups.size())
    return table.reset_index()


def left_over(compared: pd.DataFrame) -> dict[str, list[str]]:
    """Per side, the ops (`name on rank r`) that only this side has."""
    column = compared.columns[len(KEYS)]
    label = compared["name"] + " (rank " + compared["rank"].astype(str) + ")"
    return {
        side: label[compared[missing].isna()].tolist()
        for side, missing in ((column, "measured_s"), ("measured_s", column))
    }


def read_spans(path: Path) -> pd.DataFrame:
    """The spans of a run: a CSV file, or the folder that `runcast execute --out` wrote.

    Raises:
        UserError: there is no such file, it lacks a column, or its rows stand for places instead of ranks.
    """
    file = path / SPANS if path.is_dir() else path
    try:
        spans = pd.read_csv(file)
    except FileNotFoundError:
        raise UserError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise UserError(f"{file}: cannot be read as CSV: {str(error).strip().splitlines()[0]}") from None
    if "place" in spans.columns and "rank" not in spans.columns:
        raise UserError(
            f"{file}: is a prediction (of `runcast simulate`), where a row may stand for many ranks; expected what "
            "`runcast execute` measured. To compare with a prediction, name its scenario file"
        )
    if missing := [name for name in NEEDED if name not in spans.columns]:
        raise UserError(f"{file}: lacks the columns {', '.join(missing)}; expected spans, as `runcast execute` writes")
    return spans


def hash_of_run(path: Path) -> str | None:
    """The hash of the scenario that was run, from the summary beside the spans; None where nothing says it.

    Raises:
        UserError: the summary cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / SUMMARY).is_file() or path not in (folder, folder / SPANS):
        return None
    summary = read_json(folder / SUMMARY)
    return str(summary["scenario_hash"]) if isinstance(summary, dict) and "scenario_hash" in summary else None


def simulated_spans(resolved: Resolved) -> pd.DataFrame:
    """The spans that the simulator predicts for every rank."""
    timeline = engine.simulate(resolved.program, resolved.costs)
    return spans_of_ranks(timeline, range(resolved.program.ranks))


def unfolded(path: Path, changes: Sequence[str] = ()) -> Resolved:
    """A scenario whose ranks each stand for themselves, whatever the file says: what is executed and compared."""
    scenario = load_scenario(path, changes)
    return Resolved(scenario.model_copy(update={"fold": False}), str(path))


def _ratio(over: pd.Series, under: pd.Series) -> pd.Series:
    return over / under.replace(0.0, np.nan)
