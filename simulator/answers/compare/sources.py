"""From a path and changes to a Side: what a file is, is seen in its name and its first words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import UserError
from ...base.files import read_json, read_toml
from ...base.memo import Memo
from ...predict import AnyPrediction, simulate
from ...scenario import AnyScenario, changed, check_question, parsed, what_if
from .inputs import inputs_of
from .reports import read_report, side_of_report
from .runs import side_of_run
from .side import OPENINGS, Drawn, Side, Source
from .spans import SPANS, SUMMARY, read_spans

if TYPE_CHECKING:
    from pandas import DataFrame

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
        total_s=float(spans["end_s"].max()) - _began_s(spans),
        notes=("spans of a run have no terms: name its scenario file to compare op by op",),
    )


def _began_s(spans: "DataFrame") -> float:
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
