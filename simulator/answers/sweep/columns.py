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
        if key in _LEFT_OUT or isinstance(value, list | tuple):
            continue
        name = _RENAMED.get(key, key)
        if isinstance(value, Mapping):
            yield from ((_joined(name, inner), scalar) for inner, scalar in _columns(value))
        else:
            yield name, value


def _joined(name: str, inner: str) -> str:
    """`exposed_s` and `gemm` are `exposed_gemm_s`."""
    words = "_".join(inner.replace(":", "").split())
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return f"{name.removesuffix(unit)}_{words}{unit}"
