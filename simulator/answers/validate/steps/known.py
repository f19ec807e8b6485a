"""What is known about misses of the ledger of training steps, in the words of data/validation/training.toml."""

from collections.abc import Mapping
from typing import Any


def known_of(row: Mapping[Any, Any], words: Mapping[str, Any]) -> str:
    """What is known of a row's miss: its neighbours, itself, or its families; keys of several hold if all do."""
    if row["id"] in words["contradicts"]:
        return f"contradicts its neighbours: {words['contradicts'][row['id']]}"
    return "; ".join(why for key, why in words["known"].items() if key == row["id"] or _is_of(row, key))


def _is_of(row: Mapping[Any, Any], key: str) -> bool:
    parts = [part.partition("=") for part in key.split(", ")]
    return all(equals and str(row[column]) == value for column, equals, value in parts)
