"""The cases of the testbed: a scenario on a topology each, which is predicted and executed.

Links are slow (100 Mb/s) and messages large, so that the processors do not decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .topology import Topology, star, toml, two_level, write_cluster

RATE, FAST = 1e8, 2e8
SHARE = 0.4  # of a core, where hosts compute
STAR, EIGHT = star(4, RATE), star(8, RATE)
SLOW = STAR.with_rate(3, RATE / 2)
LEAVES = two_level(4, RATE, 2, RATE)
TOPOLOGIES = {
    "4 hosts": STAR, "8 hosts": EIGHT, "slow host": SLOW, "two leaves": LEAVES,
    "2 fast hosts": star(2, FAST), "4 fast hosts": star(4, FAST), "8 fast hosts": star(8, FAST),
    "slow among fast": star(4, FAST).with_rate(3, FAST / 2),
    "4 shared hosts": STAR.with_share(SHARE),
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


def p2p_update(topology: str, mebibytes: int = 48, readers: int = 1) -> Case:
    """A weight update whose first hosts read from the memory of all others, which have no part in it.

    Larger than other updates: one reader has all links for itself, and of 16 MiB host work was a tenth of the time.
    """
    case = update(topology, "two_stage", mebibytes, method="p2p", ranks=readers)
    return replace(case, name=f"update of {mebibytes} MiB, p2p to {readers}")


def trainer_update(topology: str, method: str, mebibytes: int = 16, trainers: int = 2) -> Case:
    """A weight update from the first hosts, which train, to the others, which generate."""
    tables = {
        "model": {"bytes": f"{mebibytes} MiB", "tensors": 2 * mebibytes, "largest": "512 KiB"},
        "update": {"method": method, "bucket": "4 MiB", "trainer": {"gpus": trainers}},
    }
    return Case(f"update of {mebibytes} MiB, {method}", topology, "weight_update", tables)


def step(
    name: str, parallel: dict[str, int], layers: int = 4, batch: int = 4, micro: int = 1, hidden: int = 768,
    schedule: str = "1f1b", **keys: int,
) -> Case:  # fmt: skip
    """A training step of a small Llama: products of ten milliseconds and more."""
    heads = hidden // 64
    model = {
        "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 8 * hidden // 3 // 64 * 64,
        "num_attention_heads": heads, "num_key_value_heads": 2 if heads % 4 else 4, "head_dim": 64, "vocab_size": 1024,
    }  # fmt: skip
    tables = {
        "model": {"preset": "llama3-8b"}, "model.overrides": model, "precision": {"compute": "fp32"},
        "batch": {"global": batch, "micro": micro, "seq_len": 256}, "parallel": parallel,
    }  # fmt: skip
    return Case(f"step, {name}", "4 shared hosts", "train_step", {**tables, "schedule": {"name": schedule, **keys}})


TINY = [
    "model.overrides.hidden_size=64", "model.overrides.intermediate_size=128", "model.overrides.head_dim=16",
    "model.overrides.num_attention_heads=4", "model.overrides.num_key_value_heads=4", "model.overrides.vocab_size=256",
    "batch.seq_len=32",
]  # fmt: skip
"""Changes that make a step so small that its gradients can be held against one process's."""

CASES = [
    *(case for name in ("ring", "halving_doubling") for case in collective("4 hosts", "all_reduce", name, 1, 2, 4)),
    *collective("4 hosts", "all_reduce", "tree", 1, 2, 4, pieces=8),
    *collective("4 hosts", "all_reduce", "measured", 1, 2, 4, name="all_reduce by Gloo"),
    *collective("4 hosts", "broadcast", "chain", 4, pieces=8),
    *collective("4 hosts", "broadcast", "binomial", 2),
    *collective("4 hosts", "all_to_all", "pairwise", 4),
    *collective("4 hosts", "reduce_scatter", "direct", 4),
    *collective("4 hosts", "all_gather", "ring", 4),
    *collective("4 hosts", "gather", "direct", 4, name="parameter server, gradients to it"),
    *collective("4 hosts", "scatter", "direct", 4, name="parameter server, weights from it"),
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
    *(update("8 fast hosts", pipeline) for pipeline in ("two_stage", "three_stage")),
    update("slow among fast", "two_stage"),
    *(trainer_update("4 fast hosts", method) for method in ("single_sender", "replica_writes", "all_senders")),
    *(p2p_update("4 fast hosts", readers=readers) for readers in (1, 2)),
]

STEPS = [
    step("GPipe", {"pp": 4}, schedule="gpipe"),
    step("1F1B", {"pp": 4}),
    step("ZB-H1", {"pp": 4}, schedule="zb-h1"),
    step("interleaved", {"pp": 4}, 8, hidden=640, schedule="interleaved", vpp=2),
    step("ZeRO-1", {"zero": 1}, 2, 32, 2, hidden=384),
    step("ZeRO-3", {"zero": 3}, 2, 32, 8, hidden=384),
]
"""Steps: hosts compute."""

MORE_STEPS = [
    step("ZB-V", {"pp": 4}, 8, hidden=640, schedule="zb-v"),
    step("TP2 PP2", {"tp": 2, "pp": 2}, batch=2),
]
"""For the table of docs/testbed.md; the test leaves them out for its time."""
