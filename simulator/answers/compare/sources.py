"""From a path and changes to a Side: what a file is, is seen in its name and its first words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import UserError, fault
from ...base.files import read_json, read_toml
from ...base.memo import Memo
from ...hardware import described, resolved
from ...models import ModelSpec
from ...predict import AnyPrediction, simulate
from ...scenario import AnyScenario, changed, check_question, parsed, what_if
from ...systems.registry import SYSTEMS
from ...systems.tables import FOR_PEOPLE
from .side import OPENINGS, Drawn, Side, Source, summing
from .spans import SPANS, SUMMARY, read_spans

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...formats.traces import Run


_NAMES = ("base", "node", "about")
"""Of machines: what their other keys stand for."""


def inputs_of(prediction: AnyPrediction) -> dict[str, object]:
    """Keys as `--set` takes them; below `cluster` and `model` what the names stand for, the names themselves too."""
    given = prediction.resolved
    said = given.scenario.model_dump(mode="json", by_alias=True, exclude={*FOR_PEOPLE, "cluster"})
    found = dict(_flat(said))
    found |= _machines(given.scenario.cluster, given.scenario.nodes, given.where)
    if found["profile"] is None:  # that of the device; a joined profile is called by it and by its stack
        found["profile"] = given.profile.name.partition(" + ")[0]
    return found | given.derived | _shape(given.spec)


def _machines(cluster: str | Mapping[str, Any], nodes: int, where: str) -> dict[str, object]:
    """Every key of the machines; of several kinds of node all that they resolve to."""
    name = {"cluster": cluster} if isinstance(cluster, str) else {"cluster": cluster.get("base", cluster.get("node"))}
    try:
        keys = described(cluster, where)
    except UserError:  # a mix, which has no one value per key
        keys = resolved(cluster, nodes, where) if isinstance(cluster, str) else dict(cluster)
    return name | dict(_flat({"cluster": {key: value for key, value in keys.items() if key not in _NAMES}}))


def _shape(spec: ModelSpec | None) -> dict[str, object]:
    if spec is None:
        return {}
    names = ("name", "assumptions", "moe_name", "matrix_names", "second_norms")
    shape = {key: value for key, value in asdict(spec).items() if key not in names}
    return dict(_flat({"model": shape}))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested tables; lists are leaves."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(item) if isinstance(item, tuple) else item


def read_report(path: Path) -> Side:
    """The side that a report file holds.

    Raises:
        UserError: it cannot be read, is no report, or was written by another version and lacks what is needed.
    """
    report, where = read_json(path), str(path)
    kind = report.get("kind") if isinstance(report, dict) else None
    if not isinstance(kind, str) or kind not in SYSTEMS:
        raise UserError(fault(where, "kind", kind, f"expected a report of {', '.join(SYSTEMS)}, of `simulate --json`"))
    if missing := [key for key in SYSTEMS[kind].total_needs if key not in report]:
        lacks = f"lacks {', '.join(missing)}; another version of runcast wrote it: simulate its scenario again"
        raise UserError(f"{where}: this report {lacks}")
    _check(report, where)
    return side_of_report(report, where)


def side_of_report(report: Mapping[str, Any], where: str) -> Side:
    """The side that a report as plain values is."""
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
        terms=summing(terms, total_s),
        inputs={key: value for key, value in report.items() if roles.get(key) == "input"},
        metrics={key: value for key, value in report.items() if roles.get(key) == "result" and _is_number(value)},
        fits=report.get("fits") is not False,
        hash=report.get("scenario_hash"),
        question=str(report.get("question", "")),
        notes=tuple(report.get("notes", ())),
    )


def _check(report: Mapping[str, Any], where: str) -> None:
    for key in SYSTEMS[report["kind"]].total_needs:
        value = report[key]
        parts = value if isinstance(value, Mapping) else {"": value}
        for name, number in parts.items():
            if not _is_number(number) or number < 0:
                raise UserError(fault(where, f"{key}.{name}".rstrip("."), number, "expected a number, at least 0"))
        if isinstance(value, Mapping) != (key in ("split_s", "exposed")):
            raise UserError(fault(where, key, value, "expected seconds by phase, or one number, as reports have it"))
    if report.get("interval_low_s", 0) > report.get("interval_high_s", float("inf")):
        raise UserError(fault(where, "interval_low_s", report["interval_low_s"], "expected at most interval_high_s"))
    if report["makespan_s"] <= 0 or report.get("steps", 1) < 1:
        raise UserError(fault(where, "makespan_s", report["makespan_s"], "expected a time above zero"))
    if not 0 < report.get("update_time_s", report["makespan_s"]) <= report["makespan_s"]:
        allowed = f"expected a time above zero, at most makespan_s = {report['makespan_s']:.6g}"
        raise UserError(fault(where, "update_time_s", report["update_time_s"], allowed))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


OWN = "runcast"
"""The form of traces that a simulation wrote."""
_INPUTS = {
    "world_size": "gpus", "tokens": "tokens", "global_batch": "batch.global", "micro_batch": "batch.micro",
    "seq_len": "batch.seq_len", "vpp": "schedule.vpp", "layers": "model.num_hidden_layers",
    **{axis: f"parallel.{axis}" for axis in ("tp", "cp", "pp", "dp", "ep")},
}  # fmt: skip
"""What a run tells of its question, by the keys of a scenario and the names of a report."""
_METRICS = {"memory_bytes": "peak_memory_bytes", "flop_per_s_per_gpu": "flop_per_s_per_gpu"}


def side_of_run(run: "Run") -> Side:
    """The typical step of a run, or what a simulation's trace shows.

    Raises:
        UserError: it is the trace of an RL cycle, which does not tell its steps apart.
    """
    kind = _kind(run)
    total_s = run.step_s - (_began_s(run) if kind == "weight_update" else 0.0)
    inputs = {name: run.facts[fact] for fact, name in _INPUTS.items() if fact in run.facts}
    metrics = {name: float(run.facts[fact]) for fact, name in _METRICS.items() if fact in run.facts}
    if "tokens" in run.facts:
        metrics["tokens_per_s"] = run.facts["tokens"] / run.step_s
    if {"tokens", "world_size"} <= set(run.facts):
        metrics["tokens_per_s_per_gpu"] = metrics["tokens_per_s"] / run.facts["world_size"]
    return Side(
        where=str(run.path),
        source="trace" if run.form == OWN else "run",
        label=run.path.name,
        kind=kind,
        total_s=total_s,
        terms=summing(run.split_s or {}, total_s),
        inputs=inputs,
        metrics=metrics,
        notes=run.notes,
        drawn=Drawn(run.timeline) if run.timeline is not None else None,
    )


def _kind(run: "Run") -> str:
    """Real runs are training steps; a simulation's trace without a split is of something else."""
    if run.form != OWN or run.split_s is not None:
        return "train_step"
    if run.timeline is not None and "rollout" in run.timeline.program.kinds:
        raise UserError(f"{run.path}: is the trace of an RL cycle: name its report or its scenario instead")
    return "weight_update"


def _began_s(run: "Run") -> float:
    """When the time of an update begins, as its report counts it."""
    if run.timeline is None:
        return 0.0
    kinds = [kind for kind in OPENINGS if kind in run.timeline.program.kinds]
    return run.timeline.span_of(kinds[0])[1] if kinds else 0.0


REPORT = "report.json"
"""The report in the folder that `runcast simulate --out` writes."""
_LARGEST_REPORT = 16 * 2**20  # bytes: reports are small, traces of real runs are not, and reading one twice takes long


@dataclass(frozen=True)
class Given:
    """A file; where there are changes (`key=value`) or names of what-ifs, it must be a scenario."""

    path: Path
    changes: tuple[str, ...] = ()
    what_ifs: tuple[str, ...] = ()

    @property
    def source(self) -> Source:
        """What the file is.

        Raises:
            UserError: it is a folder that holds nothing of these.
        """
        path = self.path
        if path.suffix == ".toml":
            return "scenario"
        if path.is_dir():
            return _of_folder(path)
        if path.name.endswith((".csv", ".csv.gz")):
            return "spans"
        return "report" if path.suffix == ".json" and _is_report(path) else "run"

    def scenario(self) -> AnyScenario:
        """The scenario with all changes, what-ifs last.

        Raises:
            UserError: the file, a change or a what-if says something that is not allowed.
        """
        where = str(self.path)
        named = [what_if(name, "--what-if", "").changes for name in self.what_ifs]
        return check_question(changed(read_toml(self.path), [parsed(self.changes), *named], where), where)

    def check(self, flag: str = "--set") -> None:
        """Raise a UserError if something is to change that is no scenario."""
        if (self.changes or self.what_ifs) and self.source != "scenario":
            raise UserError(f"{flag} changes a scenario, but {self.path} is {self.what}")

    @property
    def what(self) -> str:
        """The same in words."""
        return {"scenario": "a scenario", "report": "a report"}.get(self.source, "a measurement")


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


def open_side(given: Given, memo: Memo | None = None) -> Side:
    """Read or simulate what is given; predictions share a memo.

    Raises:
        UserError: the file cannot be read, or says something that is not allowed.
    """
    return {"scenario": _simulated, "report": _reported, "spans": _executed, "run": _real}[given.source](given, memo)


def _simulated(given: Given, memo: Memo | None) -> Side:
    where = str(given.path)
    return side_of(simulate(given.scenario(), memo=memo, where=where), where, [*given.changes, *given.what_ifs])


def side_of(prediction: AnyPrediction, where: str, called: Sequence[str] = ()) -> Side:
    """A prediction as a Side; `called` are the changes that its label names."""
    side = side_of_report(prediction.report.to_json(), where)
    return replace(
        side,
        source="scenario",
        label=f"{side.label} with {', '.join(called)}" if called else side.label,
        inputs={**inputs_of(prediction), **side.inputs},
        all_inputs=True,
        drawn=Drawn(prediction.timeline, prediction.grid, prediction.shown_ranks),
    )


def _reported(given: Given, _memo: Memo | None) -> Side:
    return read_report(given.path / REPORT if given.path.is_dir() else given.path)


def _executed(given: Given, _memo: Memo | None) -> Side:
    """A run of `runcast execute` as a total; op by op it is compared in `spans`."""
    spans = read_spans(given.path)
    summary = given.path / SUMMARY
    about = read_json(summary) if summary.is_file() else {}
    return Side(
        where=str(given.path),
        source="spans",
        label=str(about.get("name", given.path)) if isinstance(about, Mapping) else str(given.path),
        kind="weight_update",
        total_s=float(spans["end_s"].max()) - _executed_from_s(spans),
        notes=("spans of a run have no terms: name its scenario file to compare op by op",),
    )


def _executed_from_s(spans: "DataFrame") -> float:
    """When the time of an update begins, as its report counts it."""
    ends = [spans["end_s"][spans["kind"] == kind] for kind in OPENINGS]
    return float(next((of_kind.max() for of_kind in ends if len(of_kind)), 0.0))


def _real(given: Given, _memo: Memo | None) -> Side:
    from ...formats.traces import read_run

    return side_of_run(read_run(given.path))


def _is_report(path: Path) -> bool:
    """Whether this is JSON of ours; what cannot be read is told by who reads traces."""
    try:
        found = read_json(path) if path.stat().st_size <= _LARGEST_REPORT else None
    except (UserError, OSError):
        return False
    return isinstance(found, dict) and "traceEvents" not in found
