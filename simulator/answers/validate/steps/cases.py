"""Rows of a table of training steps: each as a scenario and its prediction, or with the reason why there is none.

What the table's words stand for, and what a source leaves blank, is in data/validation/training.toml.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .... import engine
from ....base.files import read_toml
from ....insight import critical_path, path_by_phase
from ....profile import stack_names
from ....scenario import check_train
from ....systems.train_step.errors import step_errors
from ....systems.train_step.memory import rank_memory
from ....systems.train_step.resolve import ResolvedTrain
from ....uncertainty import path_interval
from ..ledger import Case, CellError, Cells, read_cells, shipped_file
from .columns import REQUIRED, cluster_of, config_of, parallel_of, recompute_of, schedule_of

MOST_OPS = 150_000
"""Longer steps are predicted at the coarser level, which is as long to 1 % (docs/training.md)."""

_KERNELS_OF_LAYER = 75


PREDICTED = ("predicted_s", "interval_low_s", "interval_high_s", "predicted_gib")
"""What a prediction says, in this order; a file of predictions has these columns, `id` and `reason`."""
_DEVICE = {"rank": "fullest", "counts": "device"}
"""What memory is taken for where its convention is not known."""


def shipped_table() -> Path:
    """The ledger that ships with runcast."""
    return shipped_file("training.csv")


@cache
def read_words() -> Mapping[str, Any]:
    """What the words of the shipped table stand for, and what is known of its rows: data/validation/training.toml."""
    return read_toml(shipped_table().with_suffix(".toml"))


@dataclass(frozen=True, eq=False)
class Answer:
    """What a row's scenario gives: `phase_s` are seconds of the critical path by phase, shape [len(PHASES)].

    `own_variance` is that of ln(seconds) if each op of the path is off by its own spread, independently of the others.
    """

    seconds: float
    low_s: float
    high_s: float
    phase_s: NDArray[np.float64]
    own_variance: float
    memory_bytes: tuple[float, ...]


@dataclass(frozen=True)
class StepCase(Case):
    """A row of training steps; `assumed` is what it left blank and what was taken instead."""

    assumed: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What names the measurement."""
        return self.cells.text("id") or str(self.line)

    @property
    def seconds(self) -> float | None:
        """What was measured, if it is told."""
        return self.cells.time("iter_time_s")

    @cached_property
    def resolved(self) -> ResolvedTrain:
        """Everything that its scenario stands for."""
        assert self.scenario is not None
        return ResolvedTrain(check_train(self.scenario, self.where), self.where)

    def answer(self, values: Mapping[str, float] | None = None, memory: bool = True) -> Answer:
        """The prediction with parameters of its profile and stack changed; `memory` by pipeline rank, or not at all."""
        resolved = self.resolved.restate(values) if values else self.resolved
        timeline = engine.simulate(resolved.program, resolved.costs)
        path, seconds = critical_path(timeline), timeline.makespan_s
        sure = path_interval(path, step_errors(resolved), seconds)
        held = tuple(rank.peak_bytes for rank in rank_memory(resolved, timeline)) if memory else ()
        phases = path_by_phase(path, resolved.program, resolved.mix)
        own = float(((path.seconds * resolved.costs.spread[path.ops]) ** 2).sum()) / seconds**2
        return Answer(seconds, sure.low_s, sure.high_s, phases, own, held)

    def predict(self) -> dict[str, float]:
        """Seconds with their interval, and memory of the rank that was measured, as the row's convention counts it."""
        answer, convention = self.answer(), self.cells.text("mem_convention")
        known = read_words()["memory"]
        said = next((said for start, said in known.items() if convention.startswith(start)), _DEVICE)
        held = answer.memory_bytes[0] if said["rank"] == "first" else max(answer.memory_bytes)
        context, unused = (self.resolved.profile.value(f"memory.{name}") for name in ("context_bytes", "fragmentation"))
        reserved, allocated = held - context * (1 + unused), held / (1 + unused) - context
        counted = {"device": held, "reserved": reserved, "allocated": allocated}[said["counts"]]
        return dict(zip(PREDICTED, (answer.seconds, answer.low_s, answer.high_s, counted / 2**30), strict=True))


def read_cases(path: Path) -> list[StepCase]:
    """The rows of a file; a UserError if it cannot be read, holds no rows, lacks a column, or names a row twice."""
    rows = read_cells(path, REQUIRED, "those of data/validation/training.csv")
    return [_case(read_words(), line, where, cells) for line, where, cells in rows]


def _case(words: Mapping[str, Any], line: int, where: str, cells: Cells) -> StepCase:
    cells = Cells({**cells, **words["said"].get(cells.get("id", ""), {})})
    try:
        cells.time("iter_time_s")
        scenario, assumed = _scenario(words, cells)
    except CellError as error:
        return StepCase(line, cells, None, str(error), where)
    return StepCase(line, cells, scenario, "", where, assumed)


def _software_of(words: Mapping[str, Any], cells: Cells) -> dict[str, Any]:
    """What is known of the software that a row names: the first entry of its framework and release.

    A CellError if nothing is known, and no stack has that name.
    """
    framework, release = cells.text("framework"), cells.text("sw_version")
    for entry in words["software"]:
        if entry["framework"] == framework and release.startswith(tuple(entry.get("releases", [""]))):
            return dict(entry)
    if framework in stack_names():
        return {"stack": framework}
    known = ", ".join(dict.fromkeys(entry["framework"] for entry in words["software"]))
    raise CellError(f"framework = {framework!r}: expected {known}, or a stack")


def _scenario(words: Mapping[str, Any], cells: Cells) -> tuple[dict[str, Any], tuple[str, ...]]:
    software, gpu = _software_of(words, cells), cells.text("gpu")
    if gpu not in words["gpu"]:
        raise CellError(f"gpu = {gpu!r}: expected one of {', '.join(words['gpu'])}")
    known = words["gpu"][gpu]
    cluster, nodes = cluster_of(cells, known, software.get("cluster"))
    schedule, chunks = schedule_of(cells, words, software)
    parallel = parallel_of(cells, words, software, chunks)
    micro, replicas = cells.positive("mbs"), cells.positive("dp", 1)
    micro_batches = cells.positive("gbs") / (micro * replicas)
    ops = micro_batches * cells.positive("layers") * _KERNELS_OF_LAYER
    table: dict[str, Any] = {
        "name": cells.text("id"), "kind": "train_step", "cluster": cluster, "nodes": nodes, "stack": software["stack"],
        "model": {"config": config_of(cells, words)}, "parallel": parallel, "schedule": schedule,
        # in whole micro-batches of all replicas: some sources state their own rounding
        "batch": {"global": max(round(micro_batches), 1) * micro * replicas, "micro": micro,
                  "seq_len": cells.positive("seq_len")},
        "precision": {"compute": words["precision"].get(cells.text("precision"), cells.text("precision"))},
        "overlap": _overlap(cells, parallel),
        "level": "coarse" if ops > MOST_OPS and parallel["zero"] < 3 else "kernels",
    }  # fmt: skip
    table |= {"profile": known["profile"]} if "profile" in known else {}
    if (again := recompute_of(cells, words, software)) is not None:
        table["recompute"] = again
    if cells.text("task") == "lora":
        table["lora"] = words["lora"]
    for word, tables in words["flags"].items():  # words of extra_flags that stand for keys of a scenario
        if word in cells.text("extra_flags"):
            table |= {name: {**table.get(name, {}), **keys} for name, keys in tables.items()}
    if schedule.get("name", "interleaved") == "interleaved" and _overlaps_experts(words, cells):
        table["schedule"] = {"name": "interleaved-overlap", "vpp": chunks}
        table["overlap"]["wgrad"] = True
    # how the names of the GPUs begin on which tokens of the row's model go to a rank once
    deepep = words["deepep"].get(cells.text("framework"), {}).get(cells.text("model"), ())
    if parallel.get("ep", 1) == 1:
        table.pop("experts", None)
    elif gpu.startswith(tuple(deepep)):
        table.setdefault("experts", {"dispatcher": "deepep"})
    return table, tuple(_assumed(cells, chunks, known, software))


def _overlaps_experts(words: Mapping[str, Any], cells: Cells) -> bool:
    """Whether a forward and a backward run side by side, so that exchanges of experts of one hide under the other."""
    if cells.has("overlap_ep"):
        return cells.flag("overlap_ep", False)
    return any(
        all(cells.text(column).startswith(tuple(starts)) for column, starts in recipe.items())
        for recipe in words["overlap_ep"]
    )


def _overlap(cells: Cells, parallel: Mapping[str, Any]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    if cells.has("overlap_dp"):
        found["dp"] = cells.flag("overlap_dp", True)
        if parallel["zero"] in (1, 2):
            found["params"] = found["dp"]
    if cells.text("overlap_tp") in ("1", "async_tp") and parallel["tp"] > 1 and parallel["sequence_parallel"]:
        found["tp"] = True
    return found


def _assumed(cells: Cells, chunks: int, known: Mapping[str, Any], software: Mapping[str, Any]) -> Iterator[str]:
    """What the row left blank, and what was taken."""
    if not cells.has("recompute"):
        yield f"recompute: what {software['stack']} does"
    if cells.whole("pp", 1) > 1 and not cells.has("vpp"):
        yield f"vpp {chunks}"
    if not cells.has("nics_per_node"):
        yield f"{known['nics']} NICs of {known['gbps']} Gb/s"
    if not cells.has("overlap_dp"):
        yield f"overlap of dp: what {software['stack']} does"
    if cells.text("arch").startswith("moe") and not cells.has("ep"):
        yield f"ep {software.get('ep', 1)}"
