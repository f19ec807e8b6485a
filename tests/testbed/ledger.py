"""The ledger of our own runs: what cases took, their scenarios, and the numbers of the machine that they rest on.

`runcast validate --kind executed` predicts its rows again.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from shutil import copy, rmtree
from typing import Any

from .cases import Case
from .comparing import Outcome
from .topology import toml, write_cluster

FOLDER = Path(__file__).parents[2] / "data/validation"
COLUMNS = (
    "id", "source", "where", "subject", "evidence", "base", "changes", "metric", "bound", "measured", "notes", "miss",
    "gap",
)  # fmt: skip
SUBJECTS = {"collective": "collectives", "weight_update": "weight updates", "train_step": "training steps"}

Flat = dict[str, Any]


def write_ledger(outcomes: Sequence[Outcome], measured: Path, source: str, folder: Path = FOLDER) -> None:
    """Write rows, their scenarios and clusters, and the first profiles and stack of a folder that was kept."""
    own = folder / "executed"
    rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    for share, name in ((0.0, "hosts"), (max(one.case.where.share for one in outcomes), "shared-hosts")):
        found = measured / f"first/share{share:g}"
        for file in ("profile.json", "stack.toml"):
            if (found / file).exists():
                copy(found / file, own / f"{name}-{file}")
    rows = [row for base, some in _by_base(outcomes) for row in _write_base(base, list(some), own, source)]
    with (folder / "executed.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _by_base(outcomes: Sequence[Outcome]) -> "Iterable[tuple[str, Iterable[Outcome]]]":
    """Outcomes by the scenario file that they share: a topology and a kind each."""

    def base(one: Outcome) -> str:
        return f"{one.case.topology}-{one.case.kind}".replace(" ", "-").replace("_", "-")

    return groupby(sorted(outcomes, key=base), base)


def _write_base(base: str, outcomes: Sequence[Outcome], folder: Path, source: str) -> list[Mapping[str, Any]]:
    """Write a scenario file with what these cases have in common, and their Cluster file; a row for each."""
    first = outcomes[0].case
    cluster = f"cluster-{first.topology.replace(' ', '-')}.toml"
    write_cluster(first.where, folder / cluster)
    every = [_flat(one.case) for one in outcomes]
    common = {key: value for key, value in every[0].items() if all(other.get(key) == value for other in every)}
    (folder / f"{base}.toml").write_text(_text(_head(first, base, cluster) | common))
    return [_row(one, base, {k: v for k, v in flat.items() if k not in common}, source)
            for one, flat in zip(outcomes, every, strict=True)]  # fmt: skip


def _head(case: Case, base: str, cluster: str) -> Flat:
    of = "shared-hosts" if case.where.share else "hosts"
    stack = "execute-gloo" if case.where.share else f"{of}-stack.toml"
    return {
        "name": base, "kind": case.kind, "cluster": cluster, "nodes": case.where.hosts,
        "profile": f"{of}-profile.json", "stack": stack,
    }  # fmt: skip


def _flat(case: Case) -> Flat:
    return dict(_leaves("", case.tables))


def _leaves(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _text(keys: Flat) -> str:
    """A scenario file of dotted keys: those without a dot first."""
    plain = [f"{key} = {toml(value)}\n" for key, value in sorted(keys.items(), key=lambda item: "." in item[0])]
    return "".join(plain)


def _row(one: Outcome, base: str, changes: Flat, source: str) -> Mapping[str, Any]:
    return {
        "id": f"{one.case.topology}: {one.case.name}",
        "source": source,
        "where": one.case.topology,
        "subject": SUBJECTS[one.case.kind],
        "evidence": "measured",
        "base": f"executed/{base}.toml",
        "changes": "; ".join(f"{key}={toml(value)}" for key, value in changes.items()),
        "metric": "makespan_s",
        "measured": f"{one.executed_s:.6g}",
        "notes": f"the fastest of {len(one.runs_s)}; the slowest took {one.spread:.1%} longer",
    }
