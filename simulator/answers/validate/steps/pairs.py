"""Before and after: rows of one source that differ in one choice alone, and whether its effect is predicted.

An error of a whole step may hide that a choice is worth the wrong amount; a pair does not, as what both rows share
cancels. Cells are compared as they stand; an empty one is not known and makes no pair, but for overlaps, where tables
name those that ran.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from ..ledger import Cells
from .cases import StepCase

COUNTS_FROM = 0.01
"""A measured effect that is smaller says nothing about the sign."""

OUTCOMES = (
    "id", "source_url", "table_or_path", "grad_accum", "metric", "value", "iter_time_s", "tokens_per_s_per_gpu",
    "tflops_per_gpu", "flop_convention", "mfu_pct", "mfu_peak_tflops", "peak_mem_gib", "mem_convention", "confidence",
    "sim_level", "missing", "notes",
)  # fmt: skip
"""Columns that say what came out or where it stands, or follow from others."""

_ZERO_BUBBLE = {"1f1b": 0, "zb-1p": 1, "zb-2p": 1, "zb-v": 1}
_GPU = ("gpu", "gpu_mem_gb", "nic_gbps", "nics_per_node")
"""What tells a device from its sibling, and the servers that it is sold in."""


def _place(column: str, *words: str) -> Callable[[Cells], float | None]:
    """The position of a column's word among these, in lower case, without text after a dash or bracket."""
    places = {word: float(place) for place, word in enumerate(words)}
    return lambda cells: places.get(re.split(r"[(-]", cells.text(column).casefold())[0])


def _sequence_parallel(cells: Cells) -> float | None:
    return cells.number("sp") if cells.has("sp") and cells.whole("tp", 1) > 1 else None


def _chunks(cells: Cells) -> float | None:
    name = cells.text("schedule").casefold()
    return cells.number("vpp") if cells.has("vpp") and name in ("1f1b", "1f1b-i", "interleaved") else None


def _fp8(cells: Cells) -> float | None:
    name = cells.text("precision")
    return 0 if name == "bf16" else 1 if "fp8" in name else None


KINDS: Mapping[str, tuple[Callable[[Cells], float | None], tuple[str, ...]]] = {
    "recompute": (_place("recompute", "none", "selective", "full"), ("recompute",)),
    "sequence parallelism": (_sequence_parallel, ("sp",)),
    "interleaving": (_chunks, ("vpp", "schedule")),
    "zero bubble": (lambda cells: _ZERO_BUBBLE.get(cells.text("schedule").casefold()), ("schedule", "vpp")),
    "fp8": (_fp8, ("precision",)),
    "overlap of dp": (lambda cells: float(cells.has("overlap_dp")), ("overlap_dp",)),
    "overlap of tp": (lambda cells: float(cells.text("overlap_tp") not in ("", "0")), ("overlap_tp",)),
    "GB300 for GB200": (_place("gpu", "gb200", "gb300"), _GPU),
    "B300 for B200": (_place("gpu", "b200", "b300"), _GPU),
}
"""Kinds of pairs: how far a row has gone (None: it does not say), and the columns that may differ, the named first."""

_COLUMNS = (
    "kind", "source", "model", "gpu", "gpus", "stack", "before", "after", "before_line", "after_line",
    "measured_ratio", "predicted_ratio", "counts", "sign_right", "effect_share",
)  # fmt: skip


Seconds = Mapping[int, tuple[float, float]]
"""Measured and predicted, by line."""


def pairs_of(cases: Sequence[StepCase], seconds: Seconds) -> pd.DataFrame:
    """A row per pair of cases that have seconds.

    Ratios are after over before; `effect_share` is the predicted change over the measured one, 1 where it is exact.
    """
    known = [case for case in cases if case.line in seconds]
    rows = [_pair(kind, *both, seconds) for kind in KINDS for both in _found(kind, known)]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def scores_of_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """By kind and in total: pairs, pairs with a clear effect, share with the right sign, median error of the size."""
    rows = []
    for kind in (*KINDS, "all"):
        part = pairs if kind == "all" else pairs[pairs["kind"] == kind]
        counted = part[part["counts"].astype(bool)]
        sizes = counted["effect_share"].astype(float)
        rows.append({
            "kind": kind, "pairs": len(part), "counted": len(counted),
            "right_sign": float(counted["sign_right"].astype(float).mean()),
            "median_size_error": float((sizes - 1).abs().median()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _found(kind: str, cases: Sequence[StepCase]) -> Iterator[tuple[StepCase, StepCase]]:
    """Rows that are equal but for the columns of the kind, the one that has gone less far first."""
    far, free = KINDS[kind]
    alike: dict[tuple[tuple[str, str], ...], list[tuple[float, StepCase]]] = {}
    for case in cases:
        if (reached := far(case.cells)) is not None:
            rest = tuple((name, case.cells.text(name)) for name in case.cells if name not in (*OUTCOMES, *free))
            alike.setdefault(rest, []).append((reached, case))
    for group in alike.values():
        ordered = sorted(group, key=lambda entry: entry[0])
        yield from ((one, two) for (low, one), (high, two) in combinations(ordered, 2) if low < high)


def _pair(kind: str, before: StepCase, after: StepCase, seconds: Seconds) -> Mapping[str, Any]:
    measured, predicted = (late / early for late, early in zip(seconds[after.line], seconds[before.line], strict=True))
    cells, column = after.cells, KINDS[kind][1][0]
    counts = abs(measured - 1) >= COUNTS_FROM
    return {
        "kind": kind, **{name: cells.text(name) for name in ("source", "model", "gpu")},
        "gpus": cells.whole("n_gpus"), "stack": after.stack, "before": before.cells.text(column),
        "after": cells.text(column), "before_line": before.line, "after_line": after.line,
        "measured_ratio": measured, "predicted_ratio": predicted, "counts": counts,
        "sign_right": (predicted - 1) * (measured - 1) > 0 if counts else None,
        "effect_share": (predicted - 1) / (measured - 1) if counts else None,
    }  # fmt: skip
