"""A report as one flat row.

Names of nested values are joined by `_`, their unit last; lists and sentences are left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

ERRORS = "errors"
"""The key of a report that says which errors its time has; a sweep makes columns of the difference to the best of them.
"""
LEFT_OUT = {
    "kind",
    "name",
    "question",
    "scenario_hash",
    "notes",
    "mfu_convention",
    "cost",
    ERRORS,
}  # cost is cost_usd too
_RENAMED = {"exposed": "exposed_s", "provenance": "provenance_share"}
_UNITS = ("_s", "_bytes", "_share")


def flat_columns(report: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars of `report.to_json()` by column: `step_time_s`, `exposed_gemm_s`, `cost_usd`."""
    return dict(named_values(report))


def named_values(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Columns with their scalars."""
    for key, value in table.items():
        if key in LEFT_OUT or isinstance(value, list | tuple):
            continue
        if isinstance(value, Mapping):
            yield from ((column(key, inner), scalar) for inner, scalar in named_values(value))
        else:
            yield key, value


def column(key: str, inner: str) -> str:
    """The column of one of the numbers by name of a report: of `exposed` and `gemm` it is `exposed_gemm_s`."""
    name = _RENAMED.get(key, key)
    words = "_".join(inner.replace(":", "").split())
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return f"{name.removesuffix(unit)}_{words}{unit}"
