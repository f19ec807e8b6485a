"""Rows of collectives whose log forces an algorithm of NCCL, beside the closed form of ours that is nearest to it.

They are no part of the scores of fitted curves, which are of what NCCL chooses by itself.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...base.tables import Columns, terminal_table
from ...formats.samples.published import FORCED, network_kind, op_of
from ...hardware import device
from ...scenario import check_question, resolve
from ...systems.collective.resolve import ResolvedCollective
from .scores import scores_by

NEAREST: Mapping[str, str] = {
    "Ring": "ring", "Tree": "tree", "NVLS": "nvls", "NVLSTree": "two_level",
    "CollNet": "sharp", "CollnetDirect": "sharp", "CollnetChain": "sharp",
}  # fmt: skip
"""The algorithm that is nearest to one of NCCL. NVLSTree reduces in the NVSwitch and goes along trees between nodes."""

_CLUSTERS = {
    "A100 SXM": "dgx-a100", "H100 SXM": "dgx-h100", "H200 SXM": "h200-hgx", "B200 SXM": "dgx-b200",
    "GB200": "gb200-nvl72", "GB300": "gb300-nvl72",
}  # fmt: skip
"""The usual machines of the catalogue with a device."""

KEYS = ("device", "op", "forced", "algorithm")


def forced_rows(cells: pd.DataFrame | None, left_out: Mapping[int, str]) -> pd.DataFrame:
    """The rows that were left out because an algorithm was forced, with `KEYS` and the columns of a prediction.

    `left_out` has the reasons of rows by their line. A row that cannot be predicted has a `reason` instead of numbers.
    """
    lines = [line for line, reason in left_out.items() if FORCED in reason]
    if cells is None or not lines:
        return pd.DataFrame()
    rows = cells[cells["line"].isin(lines)]
    return pd.DataFrame([_predict(row) for row in rows.to_dict("records")])


def score_forced(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Scores by device, op, algorithm of NCCL and of ours."""
    return scores_by(table.sort_values(list(KEYS), kind="stable"), KEYS) if len(table) else []


def forced_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The scores of all groups, as a table."""
    if found:
        yield "rows whose log forces an algorithm, beside the closed form that is nearest to it:"
        yield from (*terminal_table(found, _COLUMNS), "")


def _predict(row: Mapping[Any, str]) -> dict[str, Any]:
    """One row as its cells have it, in words, predicted by the closed form."""
    op, seconds = op_of(row["op"]), float(row["time_us"]) * 1e-6
    known: dict[str, Any] = {
        "line": row["line"],
        "device": row["gpu"],
        "op": op,
        "forced": row["algorithm"],
        "seconds": seconds,
    }
    known["algorithm"] = NEAREST.get(row["algorithm"], "")
    try:
        best = cast("ResolvedCollective", resolve(check_question(_question(row, op)))).best
    except UserError as error:
        return {**known, **dict.fromkeys(_NUMBERS, np.nan), "provenance": "", "reason": str(error)}
    numbers = (best.seconds, best.seconds / seconds - 1, best.low_s, best.high_s)
    return {**known, **dict(zip(_NUMBERS, numbers, strict=True)), "provenance": best.provenance, "reason": ""}


def _question(row: Mapping[Any, str], op: str) -> dict[str, Any]:
    """The scenario of a row: nodes of the catalogue with its GPU, and the NICs and network that the row says."""
    nics, network = re.match(r"(\d+)x", row["network"]), network_kind(row["network"])
    machine: dict[str, Any] = {"base": _CLUSTERS.get(device(row["gpu"]).name, row["gpu"])}
    machine |= ({"nics": int(nics[1])} if nics else {}) | ({"network": network} if network else {})
    return {
        "name": f"line {row['line']}", "kind": "collective", "cluster": machine, "nodes": int(row["n_nodes"]),
        "collective": {
            "op": op, "sizes": int(float(row["bytes"])), "algorithm": NEAREST.get(row["algorithm"], row["algorithm"]),
            "level": "formula", "gpus": int(row["n_gpus"]),
        },
    }  # fmt: skip


_NUMBERS = ("predicted_s", "signed_error", "interval_low_s", "interval_high_s")
_COLUMNS: Columns = {
    "device": ("device", "text"), "op": ("op", "text"), "forced": ("NCCL_ALGO", "text"),
    "algorithm": ("formula", "text"), "rows": ("rows", "count"), "scored": ("scored", "count"),
    "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"), "bias": ("bias %", "percent"),
}  # fmt: skip
