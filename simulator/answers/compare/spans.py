"""Predicted against measured, or measured against measured: one join of two tables of spans, op by op and rank by rank.

Both sides are spans with the columns rank, op, name, kind, start_s and end_s; further columns and lanes do not matter.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import engine
from ...base.errors import UserError, fault
from ...base.files import read_json, read_text
from ...base.shipped import is_name
from ...base.tables import align
from ...collectives import EXECUTED
from ...scenario import check_question, open_table, resolve
from ...timeline import spans_of_ranks
from .comparison import Comparison, Side, Source

if TYPE_CHECKING:
    import pandas as pd

SPANS, SUMMARY = "spans.csv", "summary.json"
"""The files of a run in its folder, as `runcast execute --out` names them."""

KEYS = ["op", "name", "kind", "rank"]
NEEDED = [*KEYS, "start_s", "end_s"]


@dataclass(frozen=True)
class Joined:
    """Two sides joined op by op (see `compare`); `warning` says that they are of different scenarios.

    `sides` are the spans of both, by what they are: measured, and simulated or other.
    """

    table: "pd.DataFrame"
    warning: str | None
    sides: Mapping[str, "pd.DataFrame"]

    @property
    def whole(self) -> Comparison:
        """Both sides from their first op to their last."""
        a, b = (_whole(name, spans) for name, spans in self.sides.items())
        return Comparison(a, b, (), (), ())

    def to_csv(self) -> str:
        """A row per op and rank."""
        return self.table.to_csv(index=False, lineterminator="\n")

    def to_json(self) -> dict[str, Any]:
        """Both totals, sums by kind and what only one side has, as plain values."""
        kinds = sum_by_kind(self.table).astype(object)
        by = kinds.where(kinds.notna(), None).to_dict("records")
        totals = {f"{side.label}_s": side.total_s for side in (self.whole.a, self.whole.b)}
        return {"warning": self.warning, **totals, "error": self.whole.error, "by_kind": by,
                "only_in": ops_of_one_side(self.table)}  # fmt: skip


def _whole(name: str, spans: "pd.DataFrame") -> Side:
    source: Source = "scenario" if name == "simulated" else "spans"
    return Side(where=name, source=source, label=name, kind="", total_s=float(spans["end_s"].max()))


def join(measured: Path, other: Path, changes: Sequence[str] = ()) -> Joined:
    """A measured run and its scenario, with changes, or another run.

    A UserError if a file cannot be read, or holds no spans, or the scenario says something that is not allowed.
    """
    spans, own_hash, warning = read_spans(measured), hash_of_run(measured), None
    if other.suffix == ".toml" or is_name(other):
        resolved = unfold(other, changes)
        if not hasattr(resolved, "program"):
            raise UserError(f"{other}: has no ops to join with those of a run")
        others, column, other_hash = simulate_spans(resolved), "simulated_s", str(resolved.hash)
    else:
        others, column, other_hash = read_spans(other), "other_s", hash_of_run(other) or ""
    if own_hash and other_hash and own_hash != other_hash:
        why = "other values, data files or version of runcast"
        warning = f"{measured} ran scenario {own_hash}, but {other} is {other_hash} ({why}): the two need not agree"
    sides = {"measured": spans, column.removesuffix("_s"): others}
    return Joined(compare(spans, others, column), warning, sides)


def lines(found: Joined) -> Iterator[str]:
    """The two sides in words: a warning first, sums by kind, what only one has, and both totals."""
    from .text import headline

    if found.warning is not None:
        yield f"warning: {found.warning}"
    yield "seconds summed over ops and ranks:"
    kinds = sum_by_kind(found.table)
    rows = kinds.astype(object).to_numpy().tolist()
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    yield from align([[str(name) for name in kinds.columns], *cells], range(1, len(kinds.columns)))
    for side, ops in ops_of_one_side(found.table).items():
        some = f": {', '.join(ops[:3])}{', ...' if len(ops) > 3 else ''}" if ops else ""
        yield f"only in {side}: {len(ops)} spans{some}"
    yield headline(found.whole)


def compare(measured: "pd.DataFrame", other: "pd.DataFrame", column: str = "simulated_s") -> "pd.DataFrame":
    """Join two tables of spans: op, name, kind, rank, `column` (of `other`), measured_s, ratio (measured to other).

    An op that only one side has keeps its row, with NaN on the other side; so does the ratio of an op without time.
    """
    one, two = _durations(other, column), _durations(measured, "measured_s")
    joined = one.merge(two, on=KEYS, how="outer").sort_values(["op", "rank"], ignore_index=True)
    return joined.assign(ratio=_ratio(joined["measured_s"], joined[column]))


def _durations(spans: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """One row per op and rank: how long the rank worked on it, in seconds, without its wait for the gang's last member.

    A member that had ended before the last one joined (the root of a small broadcast) counts as 0.
    """
    once = spans.drop_duplicates(["op", "rank"]).reset_index(drop=True)
    all_there = once.groupby("op")["start_s"].transform("max")
    return once[KEYS].assign(**{column: (once["end_s"] - all_there).clip(lower=0.0)})


def sum_by_kind(compared: "pd.DataFrame") -> "pd.DataFrame":
    """One row per kind over the ops that both sides have: how many, both sums, their ratio, the median op's ratio."""
    column = compared.columns[len(KEYS)]
    both = compared.dropna(subset=[column, "measured_s"])
    groups = both.groupby("kind", sort=False)
    sums = groups[[column, "measured_s"]].sum()
    table = sums.assign(ratio=_ratio(sums["measured_s"], sums[column]), median_ratio=groups["ratio"].median())
    table.insert(0, "spans", groups.size())
    return table.reset_index()


def ops_of_one_side(compared: "pd.DataFrame") -> dict[str, list[str]]:
    """Per side, the ops (`name on rank r`) that only this side has."""
    column = compared.columns[len(KEYS)]
    label = compared["name"] + " (rank " + compared["rank"].astype(str) + ")"
    sides = ((column, "measured_s"), ("measured_s", column))
    return {side.removesuffix("_s"): label[compared[missing].isna()].tolist() for side, missing in sides}


def read_spans(path: Path) -> "pd.DataFrame":
    """The spans of a run: a CSV file, or the folder that `runcast execute --out` wrote.

    A UserError if there is no such file, it lacks a column, its times are no numbers, or its rows stand for places
    instead of ranks.
    """
    import pandas as pd  # half a second, for which ranks that only run have no use

    file = path / SPANS if os.path.isdir(path) else path
    try:
        spans = pd.read_csv(StringIO(read_text(file, "a CSV file")))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise UserError(f"{file}: cannot be read as CSV: {str(error).strip().splitlines()[0]}") from None
    if "place" in spans.columns and "rank" not in spans.columns:
        raise UserError(
            f"{file}: is a prediction (of `runcast simulate`), where a row may stand for many ranks; expected what "
            "`runcast execute` measured. To compare with a prediction, name its scenario file"
        )
    if missing := [name for name in NEEDED if name not in spans.columns]:
        raise UserError(f"{file}: lacks the columns {', '.join(missing)}; expected spans, as `runcast execute` writes")
    _check_numbers(spans, file)
    if not spans["end_s"].max() > 0:
        raise UserError(f"{file}: holds no span that takes time; expected those of a run")
    return spans.astype({"name": str, "kind": str})


def _check_numbers(spans: "pd.DataFrame", file: Path) -> None:
    import pandas as pd

    for name in ("op", "rank", "start_s", "end_s"):
        strange = ~np.isfinite(pd.to_numeric(spans[name], errors="coerce").to_numpy(float))
        if strange.any():
            row = int(strange.argmax())
            raise UserError(fault(f"{file}:{row + 2}", name, spans[name].tolist()[row], "expected a number"))


def hash_of_run(path: Path) -> str | None:
    """The hash of the scenario that was run, from the summary beside the spans; None where nothing says it."""
    folder = path if path.is_dir() else path.parent
    if not (folder / SUMMARY).is_file() or path not in (folder, folder / SPANS):
        return None
    summary = read_json(folder / SUMMARY)
    return str(summary["scenario_hash"]) if isinstance(summary, dict) and "scenario_hash" in summary else None


def simulate_spans(resolved: Any) -> "pd.DataFrame":
    """The spans that the simulator predicts for every rank, by the ops that ranks execute."""
    timeline = engine.simulate(resolved.program, resolved.costs)
    spans = spans_of_ranks(timeline, range(resolved.program.ranks))
    return _by_executed_op(spans) if EXECUTED in spans else spans


def _by_executed_op(spans: "pd.DataFrame") -> "pd.DataFrame":
    """Messages as parts of their broadcast: all ranks begin with it, and each ends with its own last message."""
    found = spans.assign(op=spans[EXECUTED])
    found["start_s"] = found.groupby("op")["start_s"].transform("min")
    found["end_s"] = found.groupby(["op", "rank"])["end_s"].transform("max")
    return found


def unfold(path: Path, changes: Sequence[str] = ()) -> Any:
    """A resolved scenario as it is executed: its ranks each stand for themselves, its shapes are smaller if it says so.

    A UserError if it cannot be read or resolved.
    """
    table, where = open_table(path, changes)
    scenario = check_question(table, where)
    if "fold" in type(scenario).model_fields:
        scenario = scenario.model_copy(update={"fold": False})
    resolved = resolve(scenario, where)
    if smaller := getattr(resolved, "smaller_shapes", []):
        return resolve(check_question(*open_table(path, [*changes, *smaller])), where)
    return resolved


def _ratio(over: "pd.Series", under: "pd.Series") -> "pd.Series":
    return over / under.replace(0.0, np.nan)
