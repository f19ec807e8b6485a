"""The folder of a search: the winner as a scenario and as Megatron-LM's arguments, every plan, the Pareto set."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...base.files import path_beside, write_atomic
from ...base.tables import csv_text
from ...scenario import change, check_question, to_toml
from .records import SearchResult
from .text import join, plan_text

FILES = ("plans.csv", "pareto.csv", "winner.toml", "winner.megatron.txt")
"""All that a search writes."""
_NAMES_FILE = (("cluster",), ("cluster", "base"), ("profile",), ("stack",), ("model", "config"))
"""Keys that may name a file beside the scenario."""
_COLUMNS = (
    "status", "reason", "bound_time_s", "bound_memory_bytes", "time_s", "tokens_per_s", "memory_bytes", "cost_usd",
    "kernel_level_time_s", "kernel_level_memory_bytes",
)  # fmt: skip


def check_folder(folder: Path) -> None:
    """Make the folder of a search, before the search; what an earlier search wrote there may be replaced.

    A UserError if it cannot be made or written to, or holds something else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise UserError(f"--out {folder}: cannot be made: {error.strerror or error}") from None
    if foreign := [name for name in names if name not in FILES and not name.startswith(".")]:
        raise UserError(f"--out {folder}: holds {foreign[0]}, which no search wrote: expected a folder of its own")
    if not os.access(folder, os.W_OK):
        raise UserError(f"--out {folder}: cannot be written to")


def write_files(found: SearchResult, folder: Path) -> list[Path]:
    """Write what was found; the folder is made if need be, and files of an earlier search are replaced or taken away.

    A UserError as `check_folder`.
    """
    check_folder(folder)
    files = {"plans.csv": _csv(found, range(len(found.rows))), "pareto.csv": _csv(found, found.pareto)}
    if found.winner is not None:
        changes, levels = found.rows[found.winner].changes, found.question.subject.levels
        # at the level that the reported number is of
        level = {"level": levels[-1 if found.winner in found.checked else 0]} if levels else {}
        table = change(found.question.table, {**changes, **level}, found.question.where)
        if (arguments := _megatron_text(found, table)) is not None:
            files["winner.megatron.txt"] = arguments
        about = f"# Found by `runcast search`, best by {found.question.objective}: {plan_text(changes)}"
        files["winner.toml"] = f"{about}\n{to_toml(_move(table, found.question.where, folder))}"
    names = [name for name in FILES if name in files]
    for name in names:
        write_atomic(folder / name, files[name].encode())
    for name in FILES:
        if name not in files:  # an earlier search had a winner, or one for Megatron-LM
            (folder / name).unlink(missing_ok=True)
    return [folder / name for name in names]


def _megatron_text(found: SearchResult, table: Mapping[str, Any]) -> str | None:
    """The best plan as arguments of Megatron-LM, or why it has none, as comments: never those of another plan.

    None where that is no question.
    """
    export, where = found.question.subject.export, found.question.where
    if export is None:
        return None
    try:
        return f"{export(check_question(table, where), where)}\n"
    except UserError as error:
        return "".join(f"# {line}\n" for line in ["runcast plan export winner.toml:", *error.reasons(where)])


def _move(table: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Files that the scenario names beside itself, as they are named from another folder."""
    for *path, last in _NAMES_FILE:
        inner: Any = table
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        name = inner.get(last) if isinstance(inner, dict) else None
        if isinstance(name, str) and (place := path_beside(name, where)).exists():
            inner[last] = os.path.relpath(place.resolve(), folder.resolve())
    return table


def _csv(found: SearchResult, numbers: Sequence[int]) -> str:
    """A row per plan: its place on every axis, what became of it, bounds and amounts."""
    keys = [axis.key for axis in found.space.axes]
    plans = (map(_plain, map(found.rows[number].changes.get, keys)) for number in numbers)
    rows = ([*plan, *_cells(found, number)] for plan, number in zip(plans, numbers, strict=True))
    return csv_text([*keys, *_COLUMNS], rows)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={join(item)}" for name, item in value.items())
    return str(value)


def _cells(found: SearchResult, number: int) -> list[Any]:
    """The cells of `_COLUMNS`; bounds of times are per step, of plans that do not change the batch."""
    row, fine = found.rows[number], found.checked.get(number)
    floor, one, batch = row.floor, row.measured, found.question.table.get("batch", {})
    tokens = (one.tokens if one else 0) or int(batch.get("global", 0) * batch.get("seq_len", 0))
    bound = [floor.time_s * max(tokens, 1) or "", floor.memory_bytes or ""] if floor else ["", ""]
    speed = one.tokens_per_s if one and one.tokens else ""
    simulated = [one.time_s, speed, one.memory_bytes, one.cost_usd] if one else [""] * 4
    return [row.status, row.reason, *bound, *simulated, *([fine.time_s, fine.memory_bytes] if fine else ["", ""])]
