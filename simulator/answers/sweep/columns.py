"""A report as one flat row: names of nested values joined by `_`, their unit last; lists and sentences are left out."""

from collections.abc import Iterator, Mapping
from typing import Any

_LEFT_OUT = {"kind", "name", "question", "scenario_hash", "notes", "mfu_convention", "cost"}  # cost is cost_usd too
_RENAMED = {"exposed": "exposed_s", "provenance": "provenance_share"}
_UNITS = ("_s", "_bytes", "_share")


def flat_columns(report: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars of `report.to_json()` by column: `step_time_s`, `exposed_gemm_s`, `cost_usd`."""
    return dict(_columns(report))


def _columns(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if is_left_out(key) or isinstance(value, list | tuple):
            continue
        if isinstance(value, Mapping):
            yield from ((column(key, inner), scalar) for inner, scalar in _columns(value))
        else:
            yield key, value


def is_left_out(key: str) -> bool:
    """Whether a key of a report is no column."""
    return key in _LEFT_OUT


def column(key: str, inner: str) -> str:
    """The column of one of the numbers by name of a report: of `exposed` and `gemm` it is `exposed_gemm_s`."""
    name = _RENAMED.get(key, key)
    words = "_".join(inner.replace(":", "").split())
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return f"{name.removesuffix(unit)}_{words}{unit}"
