"""Published weight updates predicted: each row of a table as a scenario, and the time that the row means.

Columns are those of data/validation/weight_update.csv; what its words stand for, and which rows say too little to be
predicted, is data/validation/weight_update.toml.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .... import engine
from ....base.errors import UserError, fault, hint
from ....base.files import path_beside, read_toml
from ....base.memo import Memo
from ....formats.samples import read_table
from ....models import preset_names
from ....profile import stack_names
from ....scenario import check_scenario
from ....systems.weight_update.methods import METHODS
from ....systems.weight_update.report import make_report, update_s
from ....systems.weight_update.resolve import Resolved
from ....systems.weight_update.system import resolve
from ....timeline import Timeline
from ..ledger import (
    Case,
    CellError,
    Cells,
    check_slips,
    full_name,
    read_cells,
    shipped_file,
)

REQUIRED = ("system", "model", "method", "gpu", "seconds", "phase")
SCENARIO = "scenario"
"""The column of a user's table that names a scenario file, from which all but the time is then taken."""
_UNSHIPPED = (SCENARIO, "stack", "max_bucket_bytes", "quantize")  # columns that weight_update.csv does not have
_WHOLE = "update"


def shipped_table() -> Path:
    """The ledger that ships with runcast."""
    return shipped_file("weight_update.csv")


class Answer(NamedTuple):
    """The prediction of a row."""

    seconds: float
    low_s: float
    high_s: float


_UPDATES = ("update", "pause_to_continue", "refit", "transfer", "update_loop")
MEASURES: Mapping[str, Callable[[Timeline, float], float]] = {
    **dict.fromkeys(_UPDATES, lambda _timeline, update_s: update_s),
    "gather_metas": lambda timeline, _: float(np.ptp(timeline.span_of("gather_metas"))),
    "broadcast_only": lambda timeline, _: timeline.busy_s("broadcast"),
    "rdma": lambda timeline, _: timeline.busy_s("exchange", "write"),
    "rebuild+load": lambda timeline, _: timeline.busy_s("open_handles", "reload"),
}
"""Seconds of the phase of a row, of those that a prediction has, by the Timeline and the time of the whole update."""


@dataclass(frozen=True)
class UpdateCase(Case):
    """A row of the ledger of weight updates; `origin` is the file that its scenario is from, which paths rest on."""

    origin: str = ""

    @property
    def seconds(self) -> float:
        """The measured seconds."""
        return self.cells.number("seconds")

    @property
    def key(self) -> str:
        """A key that identifies the measurement in any file."""
        return _key(self.cells)

    @property
    def model(self) -> str:
        """The model of a row, with one name for all sources."""
        named = self.cells.text("model")
        return str(self.scenario["model"].get("preset", named)) if self.scenario else named

    @cached_property
    def resolved(self) -> Resolved:
        """The row's resolved scenario; computed once and shared by what-ifs."""
        assert self.scenario is not None
        where = self.origin or self.where
        return resolve(check_scenario(self.scenario, where), where)

    def answer(self, changes: Mapping[str, float] | None = None) -> Answer:
        """The prediction, with parameters of the stack changed."""
        resolved, timeline = self._simulate(changes)
        report = make_report(resolved, timeline)
        seconds = self._measure(timeline, report.update_time_s)
        share = seconds / report.update_time_s  # the interval of the whole, in proportion
        return Answer(seconds, report.interval_low_s * share, report.interval_high_s * share)

    def answer_s(self, changes: Mapping[str, float] | None = None) -> float:
        """The seconds of the prediction alone, which take less time."""
        resolved, timeline = self._simulate(changes)
        return self._measure(timeline, update_s(resolved, timeline))

    def _simulate(self, changes: Mapping[str, float] | None) -> tuple[Resolved, Timeline]:
        resolved = self.resolved.restate(changes) if changes else self.resolved
        return resolved, engine.simulate(resolved.program, resolved.costs)

    def _measure(self, timeline: Timeline, whole_s: float) -> float:
        return MEASURES[self.cells.text("phase")](timeline, whole_s)

    def predict(self, memo: Memo) -> dict[str, Any]:
        """The columns of its prediction."""
        return dict(zip(("predicted_s", "interval_low_s", "interval_high_s"), self.answer(), strict=True))


def read_cases(path: Path, stack: str | None = None) -> list[UpdateCase]:
    """The rows of a file, on the software that each names, or all on one `stack` (a shipped one, or a file).

    Rows on a stated stack are a user's own: what the words of the ledger say of published rows is of those alone.

    Raises:
        UserError: the file cannot be read, lacks a column or misspells one, or seconds are no number.
    """
    check_slips(path, row_columns())
    rows = read_cells(path, _required(path, stack), "those of data/validation/weight_update.csv")
    return [_case(_words_of(cells, stack), line, where, cells, stack) for line, where, cells in rows]


@cache
def row_columns() -> tuple[str, ...]:
    """The columns of a row of weight updates."""
    return (*map(str, read_table(shipped_table()).columns.drop("line")), *_UNSHIPPED)


def _required(path: Path, stack: str | None) -> tuple[str, ...]:
    """The columns that a table needs: with scenarios the seconds alone, on a stated stack no system and no phase."""
    if SCENARIO in read_table(path):
        return ("seconds",)
    return tuple(name for name in REQUIRED if stack is None or name not in ("system", "phase"))


def _words_of(cells: Cells, stack: str | None) -> Mapping[str, Any]:
    """The meanings of words in a row; a user's own row has no notes of ours."""
    words = _words()
    own = stack is not None and _key(cells) not in _published()
    return {**words, "given": [], "left_out": []} if own else words


@cache
def _published() -> frozenset[str]:
    return frozenset(_key(cells) for _, _, cells in read_cells(shipped_table(), REQUIRED, ""))


def _key(cells: Cells) -> str:
    names = ("system", "model", "method", "src_gpus", "dst_gpus", "precision", "phase", "seconds")
    return " | ".join(map(cells.text, names))


@cache
def _words() -> Mapping[str, Any]:
    return read_toml(shipped_table().with_suffix(".toml"))


def free_parameters() -> Mapping[str, list[str]]:
    """The parameters that the ledger may move, by stack."""
    return dict(_words()["fit"])


def update_stacks() -> frozenset[str]:
    """The shipped stacks that make weight updates, and no training steps."""
    return frozenset([*_words()["stack"].values(), *free_parameters()])


def _case(words: Mapping[str, Any], line: int, where: str, cells: Cells, stack: str | None) -> UpdateCase:
    try:
        if cells.time("seconds") is None:
            raise CellError("seconds = '': expected a number above zero")
    except CellError as error:
        raise UserError(f"{where}: {error}") from None
    for given in words["given"]:
        if _matches(cells, given["match"]):
            cells = Cells({**cells, **{key: str(value) for key, value in given["keys"].items()}})
    of_file = cells.has(SCENARIO)
    if (of_file or stack is not None) and not cells.has("phase"):
        cells = Cells({**cells, "phase": _WHOLE})
    try:
        if of_file:
            _check_phase(cells)
            origin = str(path_beside(cells.text(SCENARIO), where.rpartition(":")[0]))
            return UpdateCase(line, cells, _on(stack, _table_of(origin)), "", where, origin)
        _check_said(cells, words, stack)
        return UpdateCase(line, cells, _on(stack, _scenario(cells, words)), "", where)
    except CellError as error:
        return UpdateCase(line, cells, None, str(error), where)


def _on(stack: str | None, table: dict[str, Any]) -> dict[str, Any]:
    """A scenario's table on a stack, if one is stated."""
    return table if stack is None else table | {"stack": full_name(stack)}


def _table_of(origin: str) -> dict[str, Any]:
    """The table of a scenario file.

    Raises:
        UserError: the file cannot be read, or is of another kind.
    """
    table = read_toml(Path(origin))
    if (kind := table.get("kind", "weight_update")) != "weight_update":
        raise UserError(fault(origin, "kind", kind, "expected 'weight_update'"))
    return table


def _matches(cells: Cells, wanted: Mapping[str, str]) -> bool:
    return all(cells.text(key) == value for key, value in wanted.items())


def _check_phase(cells: Cells) -> None:
    if (phase := cells.text("phase")) not in MEASURES:
        raise CellError(f"phase = {phase!r}: no prediction has it; {hint(phase, MEASURES)}")


def _check_said(cells: Cells, words: Mapping[str, Any], stack: str | None) -> None:
    """Raises a CellError that says why a row cannot be predicted."""
    for entry in words["left_out"]:
        if _matches(cells, entry["match"]) and not ("but" in entry and _matches(cells, entry["but"])):
            raise CellError(entry["reason"])
    _check_phase(cells)
    method, system, gpu = (cells.text(name) for name in ("method", "system", "gpu"))
    if method not in (*words["method"], *METHODS):
        raise CellError(f"method = {method!r}: unknown; {hint(method, METHODS)}")
    if stack is None and not cells.has("stack") and system not in (*words["stack"], *stack_names()):
        raise CellError(f"no software stack for {system!r}: name one in a column stack")
    if gpu not in words["gpu"]:
        raise CellError(f"no cluster for {gpu!r}" if gpu else "the GPU is not stated")
    if not cells.has("src_gpus") or not cells.has("dst_gpus"):
        raise CellError("the number of GPUs is not stated")
    if _preset(cells, words) is None and not cells.has("bytes"):
        raise CellError("neither a model that runcast knows nor its bytes")


def _preset(cells: Cells, words: Mapping[str, Any]) -> str | None:
    def loose(name: str) -> str:
        return name.replace(".", "").replace("-", "").casefold()

    named = words["model"].get(cells.text("model"), cells.text("model"))
    return {loose(name): name for name in preset_names()}.get(loose(named))


def _scenario(cells: Cells, words: Mapping[str, Any]) -> dict[str, Any]:
    older = "@7185b55" if "@7185b55" in cells.text("source") else ""
    system, method = cells.text("system"), cells.text("method")
    update = dict(words["method"].get(method + older, words["method"].get(method, {"method": method})))
    source, target = cells.positive("src_gpus", most=math.inf), cells.positive("dst_gpus", most=math.inf)
    tp, ep = cells.positive("tp", 1), cells.positive("ep", 1)
    served = update["method"] in ("broadcast", "p2p")
    colocated = update["method"] == "colocated"
    for key, column in (("bucket", "bucket_bytes"), ("max_bucket", "max_bucket_bytes")):
        if cells.has(column):
            update[key] = cells.positive(column, most=math.inf)
    if cells.has("quantize"):
        update["quantize"] = cells.text("quantize")
    update["inference"] = {"tp": tp}
    if update["method"] == "p2p" and target < source:
        update["ranks"] = target
    if not served:
        update["inference"] |= {"ep": ep} | ({} if colocated else {"gpus": target})
        axes = [axis for axis in ("tp", "pp", "cp", "ep") if cells.has(f"train_{axis}")]
        update["trainer"] = {"gpus": source, **{axis: cells.positive(f"train_{axis}") for axis in axes}}
    gpus = source if served or colocated else source + target
    stacks = words["stack"]
    if (name := _preset(cells, words)) is not None:
        # trainers do not send the multi-token-prediction layers of checkpoints
        model: dict[str, Any] = {"preset": name} | ({} if served else {"mtp": False})
    else:
        model = {"bytes": cells.positive("bytes", most=math.inf), "tensors": cells.positive("n_tensors", 1)}
    return {
        "name": f"{system}: {cells.text('model')}, {method}",
        "kind": "weight_update",
        "cluster": _cluster(cells, words["gpu"][cells.text("gpu")]),
        "nodes": max(-(-gpus // cells.positive("gpus_per_node", 8)), 1),
        "stack": cells.text("stack") or stacks.get(system + older, stacks.get(system, system)),
        "model": model,
        "update": update,
    }


def _cluster(cells: Cells, base: str) -> str | dict[str, Any]:
    """The vendor's node, with what the row states of its own."""
    columns = {"nics": "nics_per_node", "gpus_per_node": "gpus_per_node"}
    stated: dict[str, Any] = {key: cells.positive(column) for key, column in columns.items() if cells.has(column)}
    if cells.has("nic_gbps"):
        stated["nic"] = f"{cells.text('nic_gbps')} Gb/s"
    return {"base": base, **stated} if stated else base
