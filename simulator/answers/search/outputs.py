"""The folder of a search: the winner as a scenario and as Megatron-LM's arguments, every plan, the Pareto set."""

import os
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...base.files import beside, write_atomic
from ...scenario import changed, check_question, to_toml
from .asking import subject_of
from .found import Found
from .text import plan_text, plans_csv

_FILES = (("cluster",), ("cluster", "base"), ("profile",), ("stack",), ("model", "config"))
"""Keys that may name a file beside the scenario."""


FILES = ("plans.csv", "pareto.csv", "winner.toml", "winner.megatron.txt")
"""All that a search writes."""


def check_folder(folder: Path) -> None:
    """Make the folder of a search, before the search; what an earlier search wrote there may be replaced.

    Raises:
        UserError: it cannot be made or written to, or it holds something else.
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


def winner_table(found: Found, folder: Path | None = None) -> dict[str, Any]:
    """The best plan as the table of a scenario, for a file in `folder`, at the level that the reported number is of.

    Raises:
        UserError: no plan fits.
    """
    if found.winner is None:
        raise UserError(f"{found.where}: no plan fits the {found.gpus} GPUs")
    levels = subject_of(found.table).levels
    level = {"level": levels[-1 if found.winner in found.checked else 0]} if levels else {}
    table = changed(found.table, {**found.rows[found.winner].changes, **level}, found.where)
    return _moved(table, found.where, folder) if folder is not None else table


def megatron_text(found: Found) -> str | None:
    """The best plan as arguments of Megatron-LM, or why it has none, as comments: never those of another plan.

    None where that is no question.
    """
    if (export := subject_of(found.table).export) is None:
        return None
    try:
        return f"{export(check_question(winner_table(found), found.where), found.where)}\n"
    except UserError as error:
        lines = [line.removeprefix(f"{found.where}: ") for line in error.faults]
        return "".join(f"# {line}\n" for line in ["runcast plan export winner.toml:", *lines])


def write_found(found: Found, folder: Path) -> list[Path]:
    """Write what was found; the folder is made if need be, and files of an earlier search are replaced or taken away.

    Raises:
        UserError: as `check_folder`.
    """
    check_folder(folder)
    files = {"plans.csv": plans_csv(found), "pareto.csv": plans_csv(found, found.pareto)}
    if found.winner is not None:
        plan = plan_text(found.rows[found.winner].changes)
        about = f"# Found by `runcast search`, best by {found.objective}: {plan}"
        files["winner.toml"] = (f"{about}\n" + to_toml(winner_table(found, folder))).encode()
        if (arguments := megatron_text(found)) is not None:
            files["winner.megatron.txt"] = arguments.encode()
    for name, data in files.items():
        write_atomic(folder / name, data)
    for name in FILES:
        if name not in files:  # an earlier search had a winner, or one for Megatron-LM
            (folder / name).unlink(missing_ok=True)
    return [folder / name for name in files]


def _moved(table: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Files that the scenario names beside itself, as they are named from another folder."""
    for *path, last in _FILES:
        inner: Any = table
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        name = inner.get(last) if isinstance(inner, dict) else None
        if isinstance(name, str) and (place := beside(name, where)).exists():
            inner[last] = os.path.relpath(place.resolve(), folder.resolve())
    return table
