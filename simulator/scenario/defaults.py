"""What a training scenario leaves blank and its software stack says: keys are filled in before they are checked.

A default that would say nothing beside the keys that are given is left out, so that nobody is blamed for it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..profile import stack_defaults

Given = Mapping[str, Mapping[str, Any]]


def with_defaults(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table of a scenario with its stack's defaults.

    Raises:
        UserError: no such stack.
    """
    stack = table.get("stack", "generic")
    filled: dict[str, Any] = dict(table)
    if isinstance(stack, str):
        for key, value in stack_defaults(stack, where).items():
            if not isinstance(value, Mapping):
                filled.update(_meaningful("", {key: value} if key not in filled else {}, filled))
            elif isinstance(filled.get(key, {}), Mapping):
                filled[key] = {**dict(_meaningful(key, value, filled)), **filled.get(key, {})}
    return filled


def _meaningful(key: str, values: Mapping[str, Any], filled: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    tables = {name: value for name, value in filled.items() if isinstance(value, Mapping)}
    for name, value in values.items():
        full = f"{key}.{name}" if key else name
        says = _CONDITIONS.get(full) or _CONDITIONS.get(f"{full} = {value}")
        if says is None or says(tables):
            yield name, value


def _of(tables: Given, table: str, key: str, otherwise: Any) -> Any:
    return tables.get(table, {}).get(key, otherwise)


def _shards_states_alone(tables: Given) -> bool:
    return _of(tables, "parallel", "zero", 1) in (1, 2)


def _has_whole_scores(tables: Given) -> bool:
    return _of(tables, "parallel", "cp", 1) == 1 and not _of(tables, "parallel", "tp_2d", False)


def _keeps_whole_gradients(tables: Given) -> bool:
    return _of(tables, "parallel", "zero", 1) in (0, 1)


def _keeps_buckets(tables: Given) -> bool:
    return _of(tables, "parallel", "zero", 1) == 0


def _gathers_inputs(tables: Given) -> bool:
    return _of(tables, "parallel", "tp", 1) != 1 and _of(tables, "parallel", "sequence_parallel", True) is True


def _reduces_itself(tables: Given) -> bool:
    return _of(tables, "overlap", "fusion", None) is None


def _exchanges_beside_products(tables: Given) -> bool:
    return not _of(tables, "parallel", "tp_2d", False) and _gathers_inputs(tables)


def _keeps_silent_on_recomputation(tables: Given) -> bool:
    return "recompute" not in tables


def _spreads_experts(tables: Given) -> bool:
    return _of(tables, "parallel", "ep", 1) != 1


_CONDITIONS: Mapping[str, Callable[[Given], bool]] = {
    "bucket": _shards_states_alone,  # torch and FSDP have their own
    "memory.gathered": _gathers_inputs,
    "memory.gradients": _keeps_whole_gradients,
    "memory.buckets": _keeps_buckets,
    "attention = unfused": _has_whole_scores,
    "overlap.dp": _reduces_itself,
    "overlap.params": _shards_states_alone,
    "overlap.tp": _exchanges_beside_products,
    "recompute.mode": _keeps_silent_on_recomputation,
    "recompute.modules": _keeps_silent_on_recomputation,
    "experts.dispatcher": _spreads_experts,
}
