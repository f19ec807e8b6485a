"""What numbers are of: bytes, seconds, … by the schema of a key, or by the unit at the end of a column's name."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ...base.errors import UserError
from ...base.units import Dimension, parse
from ...hardware import described, described_device
from .keys import field_of

Of = Dimension | Literal["number", "unknown"]
_POWERS: Mapping[Of, Mapping[str, int]] = {
    "number": {},
    "bytes": {"byte": 1},
    "bytes_per_s": {"byte": 1, "s": -1},
    "seconds": {"s": 1},
    "flop_per_s": {"flop": 1, "s": -1},
    "watts": {"W": 1},
}
_QUANTITIES: Mapping[Dimension, str] = {
    "bytes": "1 MiB", "bytes_per_s": "1 GB/s", "seconds": "1 s", "flop_per_s": "1 TFLOP/s", "watts": "700 W",
}  # fmt: skip


def of_column(name: str) -> Of:
    """By the end of its name; a column of another unit, such as `cost_usd`, is a number."""
    if name == "bytes" or name.endswith("_bytes"):
        return "bytes"
    if name.endswith("bytes_per_s"):
        return "bytes_per_s"
    return "seconds" if name.endswith("_s") and not name.endswith("_per_s") else "number"


def of_key(kind: str, key: str, base: Mapping[str, Any], where: str) -> Of:
    """By what the schema takes for a key; of what is free, a machine, by what it says now."""
    field = field_of(kind, key)
    if field is not None:
        return next((dimension for dimension in get_args(Dimension) if _takes(field, dimension)), "number")
    first, *path = key.split(".")
    return _of_machine(base.get("cluster"), path, where) if first == "cluster" else "unknown"


def of_product(factors: Sequence[Of]) -> Of:
    """Of a product; one for which there is no unit is a number."""
    if "unknown" in factors:
        return "unknown"
    powers: Counter[str] = Counter()
    for factor in factors:
        powers.update(_POWERS[factor])
    left = {unit: power for unit, power in powers.items() if power}
    return next((of for of, own in _POWERS.items() if own == left), "number")


def _takes(field: FieldInfo, dimension: Dimension) -> bool:
    """Whether a quantity of this dimension becomes a number there."""
    schema: Any = Annotated[field.annotation, field]
    try:
        value = TypeAdapter(schema).validate_python(_QUANTITIES[dimension])
    except ValidationError:
        return False
    return isinstance(value, int | float)


def _of_machine(said: Any, path: Sequence[str], where: str) -> Of:
    """By the quantity that a cluster or its device has there."""
    try:
        table = described(said, where)
        if len(path) > 1 and path[0] == "device":
            table, path = described_device(table["device"], where), path[1:]
    except UserError:
        return "unknown"
    value = table.get(path[0]) if len(path) == 1 else None
    if isinstance(value, str):
        return next((dimension for dimension in get_args(Dimension) if _is(value, dimension)), "unknown")
    return of_column(path[0]) if isinstance(value, int | float) else "unknown"


def _is(text: str, dimension: Dimension) -> bool:
    try:
        return parse(text, dimension) is not None
    except ValueError:
        return False
