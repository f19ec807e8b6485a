"""What ships with runcast, by kind: names, and a few words on each."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ..base.errors import UserError, did_you_mean, fault
from ..base.files import read_json, read_toml
from ..base.shipped import shipped
from ..collectives.algorithms import OPS, algorithms
from ..hardware import files as hardware
from ..scenario import what_ifs
from ..schedules import SCHEDULES

Rows = Iterator[tuple[str, ...]]
"""A name, and words on it; of one kind all are of one length."""


def _scenarios() -> Rows:
    for name, path in shipped("scenarios").items():
        table = read_toml(path)
        yield name, table["kind"], table.get("name", "")


def _tables(folder: str, key: str) -> Rows:
    """Files of a folder, with what they say at a key."""
    for name, path in shipped(folder).items():
        table = (read_json if path.suffix == ".json" else read_toml)(path)
        yield name, str(table.get(key, ""))


def _machines(folder: str, key: str) -> Rows:
    for name, table in hardware.tables(folder).items():
        yield name, str(hardware.plain(table).get(key, ""))


def _devices() -> Rows:
    for name, table in hardware.tables("devices").items():
        said: Mapping[str, Any] = hardware.plain(table)
        yield name, str(said.get("name", name)), str(said.get("memory", ""))


def _algorithms() -> Rows:
    for op in OPS:
        yield op, ", ".join(algorithms(op))


def _what_ifs() -> Rows:
    for name, one in what_ifs().items():
        yield name, one.about


CATALOGUES: Mapping[str, tuple[str, Callable[[], Rows]]] = {
    "scenarios": ("questions, for `simulate`, `explain`, `search`, …", _scenarios),
    "sweeps": ("grids of questions, for `sweep`", partial(_tables, "sweeps", "name")),
    "models": ("`model.preset`", partial(_tables, "models", "source")),
    "clusters": ("`cluster`, `--cluster`", partial(_machines, "clusters", "about")),
    "nodes": ("`cluster.node`", partial(_machines, "nodes", "about")),
    "devices": ("`cluster.device`", _devices),
    "profiles": ("`profile`: what a device was measured to do", partial(_tables, "profiles", "source")),
    "stacks": ("`stack`: what software costs", partial(_tables, "stacks", "source")),
    "samples": (
        "logs to try `calibrate import` and `cluster import` on",
        lambda: ((name,) for name in shipped("samples")),
    ),
    "schedules": ("`schedule.name`", lambda: ((name,) for name in SCHEDULES)),
    "algorithms": ("`collective.algorithm`, by op", _algorithms),
    "what-ifs": ("`compare --what-if`, and axes of sweeps", _what_ifs),
}
"""What there is: where its names stand, and its rows."""


def rows_of(what: str) -> list[tuple[str, ...]]:
    """A row for each of a kind; a UserError if there is no such kind."""
    if what not in CATALOGUES:
        known = ", ".join(CATALOGUES)
        raise UserError(fault("list", "", what, did_you_mean(what, CATALOGUES) or f"expected one of {known}"))
    return list(CATALOGUES[what][1]())


def names_of(what: str) -> list[str]:
    """The names of a kind; a UserError if there is no such kind."""
    return [name for name, *_ in rows_of(what)]


def summary() -> list[tuple[str, ...]]:
    """A row for each kind: how many there are, and where their names stand."""
    return [(what, f"{len(rows_of(what)):,}", where) for what, (where, _) in CATALOGUES.items()]
