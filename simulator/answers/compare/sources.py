"""From a path and changes to a Side: what a file is, is seen in its name and its first words."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import UserError, fault
from ...base.files import read_json
from ...base.memo import Memo
from ...base.shipped import is_name
from ...hardware import cluster_inputs, cluster_keys
from ...predict import AnyPrediction, simulate
from ...scenario import (
    change,
    check_question,
    open_report,
    open_table,
    parse_changes,
    resolve,
    retitle,
    value_at,
    what_if,
)
from ...systems.registry import SYSTEMS, AnyResolved
from ...systems.tables import FOR_PEOPLE
from ...uncertainty import Budget
from .comparison import Drawn, Side, Source, complete
from .spans import SPANS, SUMMARY, read_spans

if TYPE_CHECKING:
    from ...formats.traces import Run
    from ...timeline import Timeline

OPENINGS = ("gather_metas", "pause")
"""Kinds of op behind which the time of an update begins (`Resolved.opening`): the first that there is."""
REPORT = "report.json"
"""The report in the folder that `runcast simulate --out` writes."""
_MAY_BE_NULL = ("interval_low_s", "interval_high_s", "step_time_s", "wall_low_s", "wall_high_s")
"""Seconds that a report has where they are predicted: of a cycle whose parts are given there is no interval."""
_LARGEST_REPORT = 16 * 2**20  # bytes: reports are small, traces of real runs are not, and reading one twice takes long


@dataclass(frozen=True)
class Operand:
    """A file; where there are changes (`key=value`) or names of what-ifs, it must be a scenario."""

    path: Path
    changes: tuple[str, ...] = ()
    what_ifs: tuple[str, ...] = ()

    @property
    def source(self) -> Source:
        """The kind of a file; a UserError for a folder without any of these."""
        path = self.path
        if path.suffix == ".toml" or is_name(path):
            return "scenario"
        if os.path.isdir(path):
            return _of_folder(path)
        if path.name.endswith((".csv", ".csv.gz")):
            return "spans"
        return "report" if path.name.endswith((".json", ".json.gz")) and _is_report(path) else "run"

    @property
    def what(self) -> str:
        """The kind of this side in words."""
        return {"scenario": "a scenario", "report": "a report"}.get(self.source, "a measurement")

    def check(self, flag: str = "--set") -> None:
        """Raise a UserError if something is to change that is no scenario."""
        if (self.changes or self.what_ifs) and self.source != "scenario":
            raise UserError(f"{flag} changes a scenario, but {self.path} is {self.what}")


def _of_folder(path: Path) -> Source:
    """A run's, a prediction's, or traces of several ranks."""
    from ...formats.traces import SUFFIXES

    if (path / SPANS).is_file():
        return "spans"
    if (path / REPORT).is_file():
        return "report"
    if not any(file.name.endswith(SUFFIXES) for file in path.glob("*")):
        raise UserError(
            f"{path}: holds nothing to compare: expected {REPORT} (of `simulate --out`), {SPANS} (of `execute --out`), "
            f"or a trace per rank ({', '.join(SUFFIXES)})"
        )
    return "run"


def _is_report(path: Path) -> bool:
    """Whether a file is a JSON report of ours; unreadable files are left to the reader of traces."""
    from ...formats.traces import OF_RUNS

    try:
        found = read_json(path) if path.stat().st_size <= _LARGEST_REPORT else None
    except (UserError, OSError):
        return False
    return isinstance(found, dict) and OF_RUNS.isdisjoint(found)


def open_side(given: Operand, memo: Memo | None = None) -> Side:
    """Read or simulate an operand; predictions share a memo.

    A UserError if the file cannot be read, or says something that is not allowed.
    """
    path, where = given.path, str(given.path)
    match given.source:
        case "scenario":
            named = [what_if(name, "--what-if", "").changes for name in given.what_ifs]
            said, (table, beside) = parse_changes(given.changes), open_table(path)
            table = retitle(change(table, [said, *named], beside), given.changes)
            prediction = simulate(check_question(table, beside), memo=memo, where=beside)
            return side_of(prediction, where, given.what_ifs)
        case "report":
            return _read_report(path / REPORT if path.is_dir() else path)
        case "spans":
            return _side_of_spans(path)
    from ...formats.traces import read_run

    return _side_of_run(read_run(path))


# Predictions and reports.


def side_of(prediction: AnyPrediction, where: str, called: Sequence[str] = ()) -> Side:
    """A prediction as a Side; `called` are the what-ifs that its label names."""
    side = _side_of_report(prediction.report.to_json() | {"inputs": prediction.resolved.inputs}, where)
    return replace(
        side,
        source="scenario",
        label=f"{side.label} with {', '.join(called)}" if called else side.label,
        inputs={**_inputs_of(prediction.resolved), **side.inputs},
        all_inputs=True,
        drawn=Drawn(prediction.timeline, prediction.grid, prediction.shown_ranks),
    )


def _inputs_of(given: AnyResolved) -> dict[str, object]:
    """Keys as `--set` takes them; below `cluster` and `model` what the names stand for, the names themselves too."""
    scenario = given.scenario
    said = scenario.model_dump(mode="json", by_alias=True, exclude={*FOR_PEOPLE, "cluster"})
    found = dict(_flat(said)) | _machines(scenario.cluster, scenario.nodes, given.where)
    if found["profile"] is None:  # that of the device; a joined profile is called by it and by its stack
        found["profile"] = given.profile.name.partition(" + ")[0]
    shape = asdict(given.spec) if given.spec is not None else {}
    model = {key: value for key, value in shape.items() if key not in ("name", "assumptions")}
    return found | given.derived | dict(_flat(model, "model."))


def _machines(cluster: str | Mapping[str, Any], nodes: int, where: str) -> dict[str, object]:
    """Every key of the machines but names that the others stand for; of several kinds of node all they resolve to."""
    name = cluster if isinstance(cluster, str) else cluster.get("base", cluster.get("node"))
    try:
        keys = cluster_keys(cluster, where)
    except UserError:  # a mix, which has no one value per key
        keys = cluster_inputs(cluster, nodes, where) if isinstance(cluster, str) else dict(cluster)
    rest = {key: value for key, value in keys.items() if key not in ("base", "node", "about")}
    return {"cluster": name} | dict(_flat(rest, "cluster."))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested tables; lists are leaves, and so are sets, in order."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{prefix}{key}.")
        else:
            leaf = sorted(item) if isinstance(item, frozenset) else item
            yield f"{prefix}{key}", list(leaf) if isinstance(leaf, tuple) else leaf


def _read_report(path: Path) -> Side:
    """The side that a report file holds.

    A UserError if it cannot be read, is no report, or was written by another version and lacks what is needed.
    """
    report, where = read_json(path), str(path)
    kind = report.get("kind") if isinstance(report, dict) else None
    if not isinstance(kind, str) or kind not in SYSTEMS:
        raise UserError(fault(where, "kind", kind, f"expected a report of {', '.join(SYSTEMS)}, of `simulate --json`"))
    if missing := [key for key in SYSTEMS[kind].total_needs if key not in report]:
        lacks = f"lacks {', '.join(missing)}; another version of runcast wrote it: simulate its scenario again"
        raise UserError(f"{where}: this report {lacks}")
    _check(report, where)
    _check_types(report, where)
    side = _side_of_report(report, where)
    if (given := _resolve(report, where)) is None:
        return side
    return replace(side, inputs={**_inputs_of(given), **side.inputs}, all_inputs=True)


def _resolve(report: Mapping[str, Any], where: str) -> AnyResolved | None:
    """The scenario of a report with what its names stand for; None where that is no longer what was predicted."""
    try:
        given = resolve(check_question(open_report(report, where), where), where)
        return given if given.hash == report.get("scenario_hash") else None
    except UserError:  # another version wrote it, or a file that it rests on is not here
        return None


def _side_of_report(report: Mapping[str, Any], where: str) -> Side:
    kind = report["kind"]
    total_s, interval, terms = SYSTEMS[kind].total(report)
    roles = {one.name: one.role for one in SYSTEMS[kind].report.metrics}
    return Side(
        where=where,
        source="report",
        label=str(report.get("name", where)),
        kind=kind,
        total_s=total_s,
        interval=interval,
        work=_work_of(report),
        rate_interval=_rate_interval_of(report),
        budget=_budget(report.get("errors"), where),
        terms=complete(terms, total_s),
        inputs={key: value for key, value in report.items() if roles.get(key) == "input"},
        metrics={key: value for key, value in report.items() if roles.get(key) == "result" and _is_number(value)},
        fits=report.get("fits") is not False,
        hash=report.get("scenario_hash"),
        question=str(report.get("question", "")),
        notes=tuple(report.get("notes", ())),
        not_in_interval=tuple(report.get("not_in_interval", ())),
        rests_on=report.get("inputs"),
    )


def _work_of(report: Mapping[str, Any]) -> float | None:
    """What a step or a run trains on; of a run to a target, whose work this is, None."""
    said = report.get("inputs")
    scenario = said.get("scenario") if isinstance(said, Mapping) else None
    if isinstance(scenario, Mapping) and scenario.get("target") and value_at(scenario, "run.wall") is None:
        return None
    work = report.get("samples", report.get("tokens"))
    return work if _is_number(work) else None


def _rate_interval_of(report: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of the throughput, where it is not that of the time: of a run whose time is given."""
    low, high = report.get("tokens_per_s_low"), report.get("tokens_per_s_high")
    return (low, high) if _is_number(low) and _is_number(high) and low and high else None


def _budget(said: Any, where: str) -> Budget | None:
    """The errors of a report's time; None where it has none, as those of other versions."""
    try:
        return None if said is None else Budget.from_json(said)
    except ValueError:  # pydantic's own is one, too
        names = ", ".join(one.name for one in fields(Budget))
        raise UserError(fault(where, "errors", said, f"expected {names}, as reports have them")) from None


def _check(report: Mapping[str, Any], where: str) -> None:
    for key in SYSTEMS[report["kind"]].total_needs:
        value = report[key]
        parts = value if isinstance(value, Mapping) else {"": value}
        for name, number in parts.items():
            if not _is_number(number) or number < 0:
                raise UserError(fault(where, f"{key}.{name}".rstrip("."), number, "expected a number, at least 0"))
        if isinstance(value, Mapping) != (key in ("split_s", "exposed")):
            raise UserError(fault(where, key, value, "expected seconds by phase, or one number, as reports have it"))
    for key in _MAY_BE_NULL:
        if report.get(key) is not None and not _is_number(report[key]):
            raise UserError(fault(where, key, report[key], "expected a number"))
    low_s, high_s = report.get("interval_low_s"), report.get("interval_high_s")
    if low_s is not None and high_s is not None and low_s > high_s:
        raise UserError(fault(where, "interval_low_s", low_s, "expected at most interval_high_s"))
    if report["makespan_s"] <= 0 or report.get("steps", 1) < 1:
        raise UserError(fault(where, "makespan_s", report["makespan_s"], "expected a time above zero"))
    if not 0 < report.get("update_time_s", report["makespan_s"]) <= report["makespan_s"]:
        allowed = f"expected a time above zero, at most makespan_s = {report['makespan_s']:.6g}"
        raise UserError(fault(where, "update_time_s", report["update_time_s"], allowed))


def _check_types(report: Mapping[str, Any], where: str) -> None:
    """Raise a UserError if what is only shown or kept is of another type than reports have, or no finite number."""
    try:
        json.dumps(report, allow_nan=False)
    except ValueError:
        raise UserError(f"{where}: holds a number that is not finite; expected a report as it was written") from None
    for key in ("notes", "not_in_interval"):
        said = report.get(key, [])
        if not isinstance(said, list) or not all(isinstance(line, str) for line in said):
            raise UserError(fault(where, key, said, "expected a list of texts, as reports have them"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


# Real runs, and traces that a simulation wrote.

OWN = "runcast"
"""The form of traces that a simulation wrote."""
_INPUTS = {
    "world_size": "gpus", "tokens": "tokens", "global_batch": "batch.global", "micro_batch": "batch.micro",
    "seq_len": "batch.seq_len", "vpp": "schedule.vpp", "layers": "model.num_hidden_layers",
    **{axis: f"parallel.{axis}" for axis in ("tp", "cp", "pp", "dp", "ep")},
}  # fmt: skip
"""What a run tells of its question, by the keys of a scenario and the names of a report."""
_METRICS = {"memory_bytes": "peak_memory_bytes", "flop_per_s_per_gpu": "flop_per_s_per_gpu"}


def _side_of_run(run: "Run") -> Side:
    """The typical step of a run, or what a simulation's trace shows.

    A UserError if it is a trace of another kind, whose time is not that of the report, or does not tell its kind.
    """
    facts, timeline, kind = run.facts, run.timeline, _kind_of(run)
    total_s = run.step_s - (_opening_s(timeline) if kind == "weight_update" and timeline is not None else 0.0)
    metrics = {name: float(facts[fact]) for fact, name in _METRICS.items() if fact in facts}
    if "tokens" in facts:
        metrics["tokens_per_s"] = facts["tokens"] / run.step_s
        if "world_size" in facts:
            metrics["tokens_per_s_per_gpu"] = metrics["tokens_per_s"] / facts["world_size"]
    return Side(
        where=str(run.path),
        source="trace" if run.form == OWN else "run",
        label=run.path.name,
        kind=kind,
        total_s=total_s,
        work=facts.get("tokens"),
        terms=complete(run.split_s or {}, total_s),
        inputs={name: facts[fact] for fact, name in _INPUTS.items() if fact in facts},
        metrics=metrics,
        notes=run.notes,
        drawn=Drawn(timeline) if timeline is not None else None,
    )


def _kind_of(run: "Run") -> str:
    """A training step's, but for a simulation's trace, which says it; a UserError where that is not compared."""
    kind = run.facts.get("kind") if run.form == OWN else "train_step"
    if kind in ("train_step", "weight_update"):
        return str(kind)
    what = f"is the trace of {SYSTEMS[kind].title}" if kind in tuple(SYSTEMS) else "does not say of what kind it is"
    raise UserError(f"{run.path}: {what}: name its report or its scenario instead")


def _opening_s(timeline: "Timeline") -> float:
    """When the time of an update begins."""
    opening = next((kind for kind in OPENINGS if kind in timeline.program.kinds), None)
    return timeline.span_of(opening)[1] if opening else 0.0


def _side_of_spans(path: Path) -> Side:
    """A run of `runcast execute` as a total, from where its report begins; op by op it is compared in `spans`."""
    spans, summary = read_spans(path), path / SUMMARY
    about = read_json(summary) if summary.is_file() else {}
    ends = [spans["end_s"][spans["kind"] == kind] for kind in OPENINGS]
    began_s = float(next((of_kind.max() for of_kind in ends if len(of_kind)), 0.0))
    return Side(
        where=str(path),
        source="spans",
        label=str(about.get("name", path)) if isinstance(about, Mapping) else str(path),
        kind="weight_update",
        total_s=float(spans["end_s"].max()) - began_s,
        notes=("spans of a run have no terms: name its scenario file to compare op by op",),
    )
