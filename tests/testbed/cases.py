"""The cases of the testbed: a scenario on a topology each, which is predicted and executed.

Links are slow (100 Mb/s) and messages large, so that the processors do not decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .topology import Topology, star, toml, two_level, write_cluster

RATE, FAST = 1e8, 2e8
STAR, EIGHT = star(4, RATE), star(8, RATE)
SLOW = STAR.with_rate(3, RATE / 2)
LEAVES = two_level(4, RATE, 2, RATE)
TOPOLOGIES = {
    "4 hosts": STAR, "8 hosts": EIGHT, "slow host": SLOW, "two leaves": LEAVES,
    "2 fast hosts": star(2, FAST), "4 fast hosts": star(4, FAST), "8 fast hosts": star(8, FAST),
    "slow among fast": star(4, FAST).with_rate(3, FAST / 2),
}  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """What predictions rest on: a profile of hosts, and a stack of what updates do on them."""

    profile: str = "generic"
    stack: str = "execute-gloo"


@dataclass(frozen=True)
class Case:
    """A scenario on a topology: its kind, and the keys of the tables that kind has."""

    name: str
    topology: str
    kind: str
    tables: dict[str, dict[str, Any]] = field(hash=False)

    @property
    def where(self) -> Topology:
        """The topology."""
        return TOPOLOGIES[self.topology]

    def write(self, path: Path, cluster: Path, numbers: Numbers) -> None:
        """Write its scenario file."""
        keys = {
            "name": self.name, "kind": self.kind, "cluster": str(cluster), "nodes": self.where.hosts,
            "profile": numbers.profile, "stack": numbers.stack,
        }  # fmt: skip
        tables = [f"\n[{name}]\n{_lines(table)}" for name, table in self.tables.items()]
        path.write_text(_lines(keys) + "".join(tables))


def write_cases(cases: Sequence[Case], numbers: Numbers, folder: Path) -> list[Path]:
    """Write the scenarios of cases on one topology, and its Cluster file; the paths of the scenarios."""
    cluster = folder / "cluster.toml"
    write_cluster(cases[0].where, cluster)
    paths = [folder / f"{number}.toml" for number in range(len(cases))]
    for case, path in zip(cases, paths, strict=True):
        case.write(path, cluster, numbers)
    return paths


def _lines(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in table.items())


def collective(topology: str, op: str, algorithm: str, *mebibytes: int, name: str = "", **keys: Any) -> list[Case]:
    """A collective of some sizes, by each message."""
    return [
        Case(
            f"{name or f'{op} by {algorithm}'}, {size} MiB", topology, "collective",
            {"collective": {"op": op, "sizes": f"{size} MiB", "algorithm": algorithm, "level": "chunks", **keys}},
        )
        for size in mebibytes
    ]  # fmt: skip


def update(topology: str, pipeline: str, mebibytes: int = 16, **keys: Any) -> Case:
    """A weight update from parameter servers, to all hosts."""
    tables = {
        "model": {"bytes": f"{mebibytes} MiB", "tensors": 2 * mebibytes, "largest": "512 KiB"},
        "update": {"pipeline": pipeline, "bucket": "4 MiB", **keys},
    }
    return Case(f"update of {mebibytes} MiB, {pipeline}", topology, "weight_update", tables)


CASES = [
    *(case for name in ("ring", "halving_doubling") for case in collective("4 hosts", "all_reduce", name, 1, 2, 4)),
    *collective("4 hosts", "all_reduce", "tree", 1, 2, 4, pieces=8),
    *collective("4 hosts", "all_reduce", "measured", 1, 2, 4, name="all_reduce by Gloo"),
    *collective("4 hosts", "broadcast", "chain", 4, pieces=8),
    *collective("4 hosts", "broadcast", "binomial", 2),
    *collective("4 hosts", "all_to_all", "pairwise", 4),
    *collective("4 hosts", "reduce_scatter", "direct", 4),
    *collective("4 hosts", "all_gather", "ring", 4),
    *collective("slow host", "all_reduce", "ring", 2),
    *collective("two leaves", "all_reduce", "ring", 4),
    *collective(
        "two leaves", "all_reduce", "ring", 2, name="all_reduce, ring interleaves leaves", placement="interleaved"
    ),
    *collective("two leaves", "all_reduce", "ring", 2, name="two rings on one uplink", groups=2, placement="scattered"),
    *collective("two leaves", "all_to_all", "pairwise", 4),
    *collective("8 hosts", "all_reduce", "ring", 4),
    *collective("8 hosts", "all_reduce", "measured", 4, name="all_reduce by Gloo"),
    *(update("2 fast hosts", pipeline, 32) for pipeline in ("two_stage", "three_stage")),
    *(update("4 fast hosts", pipeline) for pipeline in ("two_stage", "three_stage")),
    update("8 fast hosts", "two_stage"),
    update("slow among fast", "two_stage"),
]

MISSED = [update("8 fast hosts", "three_stage")]
"""Known misses: a broadcast is one op of all ranks in the engine; here a rank goes on when its own part has ended."""
