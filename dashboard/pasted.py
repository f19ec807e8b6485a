"""The config.json of a model that a user pastes: a table of plain values, limited in size, never a path."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from ..simulator.base.errors import UserError, fault
from ..simulator.models import read_keys

MOST_PASTED = 16_000
"""Characters of one text: configs have some 2,000, and an address must hold it."""


def pasted(text: str, key: str) -> dict[str, Any]:
    """The config that a text is, without keys that say nothing of the model's size, so that an address can hold it.

    Raises:
        UserError: it is none, or it is too long; lines that name the key.
    """
    if len(text) > MOST_PASTED:
        raise UserError(f"form: {key}: {len(text):,} characters; at most {MOST_PASTED:,}")
    try:
        table = json.loads(text, parse_constant=_no_number)
        json.dumps(table, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise UserError(f"form: {key}: is not JSON: {str(error)[:100]}") from None
    if not isinstance(table, dict):
        raise UserError(fault("form", key, table, "expected a JSON object: {...}"))
    return read_keys(_said(table), f"form: {key}")


def pasted_text(table: Any) -> str:
    """A table as text to be edited; nothing for what is no table, such as the name of a file."""
    return json.dumps(table, indent=1, ensure_ascii=False) if isinstance(table, Mapping) else ""


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items() if item is not None}
    return [_said(item) for item in value if item is not None] if isinstance(value, list) else value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON's")
