"""Published weight updates predicted: each row of a table as a scenario, and the time that the row means.

Columns are those of data/validation/weight_update.csv; what its words stand for, and which rows say too little to be
predicted, is data/validation/weight_update.toml.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from ... import engine
from ...base.errors import UserError
from ...base.files import read_toml
from ...models import preset_names
from ...profile import stack_names
from ...scenario import check_scenario
from ...systems.weight_update.methods import METHODS
from ...systems.weight_update.report import Report, make_report
from ...systems.weight_update.resolve import Resolved
from ...timeline import Timeline
from .table import rows_of

REQUIRED = ("system", "model", "method", "gpu", "seconds", "phase")


def shipped() -> Path:
    """The ledger that ships with runcast."""
    return Path(str(files("runcast.data") / "validation" / "weight_update.csv"))


@dataclass(frozen=True)
class Answer:
    """What a row's scenario gives."""

    seconds: float
    low_s: float
    high_s: float
    provenance: Mapping[str, float]


def _update(report: Report, timeline: Timeline) -> float:
    return report.update_time_s


def _span(kind: str) -> Callable[[Report, Timeline], float]:
    def length(report: Report, timeline: Timeline) -> float:
        begin, end = timeline.span_of(kind)
        return end - begin

    return length


def _busy(*kinds: str) -> Callable[[Report, Timeline], float]:
    return lambda report, timeline: timeline.busy_s(*kinds)


MEASURES: Mapping[str, Callable[[Report, Timeline], float]] = {
    "update": _update,
    "pause_to_continue": _update,
    "refit": _update,
    "transfer": _update,
    "update_loop": _update,
    "gather_metas": _span("gather_metas"),
    "broadcast_only": _busy("broadcast"),
    "rdma": _busy("exchange", "write"),
    "rebuild+load": _busy("open_handles", "reload"),
}
"""What the phase of a row means, of those that a prediction has."""


@dataclass(frozen=True)
class Case:
    """A row: its line, its cells, and either the scenario it stands for or the reason why there is none."""

    line: int
    cells: Mapping[str, str]
    scenario: Mapping[str, Any] | None
    reason: str
    where: str

    @property
    def seconds(self) -> float:
        """What was measured."""
        return float(self.cells["seconds"])

    @property
    def key(self) -> str:
        """What names the measurement, in whichever file it stands."""
        names = ("system", "model", "method", "src_gpus", "dst_gpus", "precision", "phase", "seconds")
        return " | ".join(self.cells.get(name, "") for name in names)

    @property
    def stack(self) -> str:
        """The software that ran it, empty where nothing is predicted."""
        return str(self.scenario["stack"]) if self.scenario else ""

    @property
    def model(self) -> str:
        """Its model, under one name for all sources."""
        return str(self.scenario["model"].get("preset", self.cells["model"])) if self.scenario else self.cells["model"]

    @cached_property
    def resolved(self) -> Resolved:
        """Everything that its scenario stands for; made once, what-ifs share it."""
        assert self.scenario is not None
        return Resolved(check_scenario(self.scenario, self.where), self.where)

    def answer(self, changes: Mapping[str, float] | None = None) -> Answer:
        """The prediction, with parameters of the stack changed."""
        resolved = self.resolved.restated(changes) if changes else self.resolved
        timeline = engine.simulate(resolved.program, resolved.costs)
        report = make_report(resolved, timeline)
        seconds = MEASURES[self.cells["phase"]](report, timeline)
        share = seconds / report.update_time_s  # the interval of the whole, in proportion
        return Answer(seconds, report.interval_low_s * share, report.interval_high_s * share, report.provenance)


def read_cases(path: Path) -> list[Case]:
    """The rows of a file.

    Raises:
        UserError: the file cannot be read or lacks a column; seconds that are no number, with its line.
    """
    words = _words()
    return [_case(words, row, path) for row in rows_of(path, REQUIRED, "data/validation/weight_update.csv")]


def free_in_ledger() -> Mapping[str, list[str]]:
    """The parameters that the ledger may move, by stack."""
    words = _words()
    found: Mapping[str, list[str]] = words["fit"]
    return found


def _words() -> dict[str, Any]:
    return read_toml(Path(str(files("runcast.data") / "validation" / "weight_update.toml")))


def _case(words: Mapping[str, Any], row: dict[str, str], path: Path) -> Case:
    line = int(row.pop("line"))
    where = f"{path}:{line}"
    cells = {key: value.strip() for key, value in row.items()}
    _check_number(cells["seconds"], f"{where}: seconds")
    for given in words["given"]:
        if _matches(cells, given["match"]):
            cells |= {key: str(value) for key, value in given["keys"].items()}
    left_out = next((entry["reason"] for entry in words["left_out"] if _left_out(cells, entry)), "")
    reason = left_out or _reason(cells, words)
    try:
        scenario = None if reason else _scenario(cells, words)
    except ValueError as error:
        scenario, reason = None, str(error)
    return Case(line, cells, scenario, reason, where)


def _whole(cells: Mapping[str, str], key: str) -> int:
    """A number of things or bytes, however a table writes it: `16`, `16.0`, `65e9`.

    Raises:
        ValueError: it is none.
    """
    try:
        value = float(cells[key])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0 and value.is_integer()):
        raise ValueError(f"{key} = {cells[key]!r}: expected a whole number above zero")
    return int(value)


def _check_number(text: str, where: str) -> None:
    try:
        good = math.isfinite(float(text)) and float(text) > 0
    except ValueError:
        good = False
    if not good:
        raise UserError(f"{where} = {text!r}: expected a number above zero")


def _matches(cells: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(cells.get(key) == value for key, value in wanted.items())


def _left_out(cells: Mapping[str, str], entry: Mapping[str, Any]) -> bool:
    return _matches(cells, entry["match"]) and not ("but" in entry and _matches(cells, entry["but"]))


def _reason(cells: Mapping[str, str], words: Mapping[str, Any]) -> str:
    """Why a row cannot be predicted, or nothing."""
    if cells["phase"] not in MEASURES:
        return f"phase {cells['phase']!r} is none that a prediction has"
    if cells["method"] not in (*words["method"], *METHODS):
        return f"method {cells['method']!r} is none that runcast knows"
    if not cells.get("stack") and cells["system"] not in (*words["stack"], *stack_names()):
        return f"no software stack for {cells['system']!r}: name one in a column stack"
    if cells["gpu"] not in words["gpu"]:
        return "the GPU is not stated" if not cells["gpu"] else f"no cluster for {cells['gpu']!r}"
    if not cells.get("src_gpus") or not cells.get("dst_gpus"):
        return "the number of GPUs is not stated"
    return "" if _preset(cells, words) or cells.get("bytes") else "neither a model that runcast knows nor its bytes"


def _preset(cells: Mapping[str, str], words: Mapping[str, Any]) -> str | None:
    named = words["model"].get(cells["model"], cells["model"])
    loose = {name.replace(".", "").replace("-", "").casefold(): name for name in preset_names()}
    return loose.get(named.replace(".", "").replace("-", "").casefold())


def _scenario(cells: Mapping[str, str], words: Mapping[str, Any]) -> dict[str, Any]:
    older = "@7185b55" if "@7185b55" in cells.get("source", "") else ""
    known = words["method"].get(cells["method"], {"method": cells["method"]})
    update = dict(words["method"].get(cells["method"] + older, known))
    sizes = {key: _whole(cells, key) for key in ("src_gpus", "dst_gpus", "tp", "ep") if cells.get(key)}
    source, target = sizes["src_gpus"], sizes["dst_gpus"]
    served = update["method"] in ("broadcast", "p2p")
    colocated = update["method"] == "colocated"
    if cells.get("bucket_bytes"):
        update["bucket"] = _whole(cells, "bucket_bytes")
    if cells.get("quantize"):
        update["quantize"] = cells["quantize"]
    if cells.get("max_bucket_bytes"):
        update["max_bucket"] = _whole(cells, "max_bucket_bytes")
    update["inference"] = {"tp": sizes.get("tp", 1)}
    if update["method"] == "p2p" and target < source:
        update["ranks"] = target
    if not served:
        update["inference"] |= {"ep": sizes.get("ep", 1)} | ({} if colocated else {"gpus": target})
        axes = [axis for axis in ("tp", "pp", "cp", "ep") if cells.get(f"train_{axis}")]
        train = {axis: _whole(cells, f"train_{axis}") for axis in axes}
        update["trainer"] = {"gpus": source, **train}
    gpus = source if served or colocated else source + target
    per_node = _whole(cells, "gpus_per_node") if cells.get("gpus_per_node") else 8
    return {
        "name": f"{cells['system']}: {cells['model']}, {cells['method']}",
        "kind": "weight_update",
        "cluster": _cluster(cells, words["gpu"][cells["gpu"]]),
        "nodes": max(-(-gpus // per_node), 1),
        "stack": cells.get("stack") or _stack(cells["system"], older, words["stack"]),
        "model": _model(cells, words, served),
        "update": update,
    }


def _stack(system: str, older: str, stacks: Mapping[str, str]) -> str:
    """The software of a system, or the stack of that name."""
    return stacks.get(system + older, stacks.get(system, system))


def _cluster(cells: Mapping[str, str], base: str) -> str | dict[str, Any]:
    """The vendor's node, with what the row states of its own."""
    stated: dict[str, Any] = {}
    if cells.get("nics_per_node"):
        stated = {"nics": _whole(cells, "nics_per_node")}
        if cells.get("gpus_per_node"):
            stated["gpus_per_node"] = _whole(cells, "gpus_per_node")
    if cells.get("nic_gbps"):
        stated["nic"] = f"{cells['nic_gbps']} Gb/s"
    return {"base": base, **stated} if stated else base


def _model(cells: Mapping[str, str], words: Mapping[str, Any], served: bool) -> dict[str, Any]:
    """A preset, or bytes and tensors alone. Trainers do not send the multi-token-prediction layers of checkpoints."""
    name = _preset(cells, words)
    if name is not None:
        return {"preset": name} | ({} if served else {"mtp": False})
    return {"bytes": _whole(cells, "bytes"), "tensors": _whole(cells, "n_tensors") if cells.get("n_tensors") else 1}
