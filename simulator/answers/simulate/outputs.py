"""The files of an answer (JSON, CSV, trace, HTML, PNG): paths checked before, files written whole or not at all.

Files are written before anything is printed: a reader that leaves early (`| head`) takes none of them away.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import UserError
from ...base.files import write_atomic
from ...base.units import format_bytes, format_rate, format_seconds
from ...predict import AnyPrediction, TrainPrediction
from ...report.spending import told_of_pause
from ...systems.rl_cycle.report import CycleReport
from ...systems.rl_cycle.text import PHASE_COLUMNS, phases, result_rows, staleness_rows
from ...systems.train_step.memory import over_time
from ...systems.train_step.report import TrainReport
from ...systems.train_step.text import SPLIT_COLUMNS, memory_rows
from ...systems.train_step.text import phases as split_rows
from ...systems.train_step.text import result_rows as train_rows
from ...systems.weight_update.report import PHASES, Report
from ...timeline import write_csv, write_trace

if TYPE_CHECKING:
    from ...figures import Table

_SUFFIXES = {"csv": (".csv", ".csv.gz"), "trace": (".json", ".json.gz"), "html": (".html",), "png": (".png",)}


@dataclass(frozen=True)
class Outputs:
    """Where each kind of output goes; None leaves it out, `json="-"` is stdout."""

    json: Path | str | None = None
    csv: Path | None = None
    trace: Path | None = None
    html: Path | None = None
    png: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> "Outputs":
        """The usual four in one folder, which is made if need be.

        Raises:
            UserError: the folder cannot be made.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {folder}: cannot make this folder: {error.strerror}") from None
        return cls(folder / "report.json", folder / "timeline.csv", folder / "trace.json.gz", folder / "index.html")

    def check(self) -> None:
        """Raise a UserError with one line per path that cannot be written, before any work is done."""
        if faults := list(self._faults()):
            raise UserError(*faults)
        if self.png is not None:
            from ...figures import png_browser

            png_browser()

    @property
    def json_alone(self) -> bool:
        """Whether stdout is for the JSON and nothing else."""
        return str(self.json) == "-"

    @property
    def files(self) -> list[Path]:
        """The files that are written."""
        return [Path(path) for path in vars(self).values() if path is not None and str(path) != "-"]

    def write_json(self, text: str) -> None:
        """Write JSON into its file, if it has one.

        Raises:
            UserError: the file cannot be written.
        """
        if self.json is not None and not self.json_alone:
            write_atomic(str(self.json), f"{text}\n".encode())

    def tell(self, text: str, lines: Iterable[str]) -> None:
        """Print the JSON `text` where stdout is for it alone, else `lines`, and then which files were written.

        Beside JSON the latter go to stderr.
        """
        print(text if self.json_alone else "\n".join(lines))
        for path in self.files:
            print(f"wrote {path}", file=sys.stderr if self.json_alone else sys.stdout)

    def _faults(self) -> Iterator[str]:
        places: dict[Path, str] = {}
        for kind, path in vars(self).items():
            if path is None or (kind == "json" and self.json_alone):
                continue
            place = Path(path)
            if (twin := places.setdefault(place.resolve(), kind)) != kind:
                yield f"--{kind} {path}: is written by --{twin} too"
            if place.is_dir():
                yield f"--{kind} {path}: is a folder; expected a file"
            elif not place.parent.is_dir():
                yield f"--{kind} {path}: there is no folder {place.parent}"
            elif kind in _SUFFIXES and not place.name.endswith(_SUFFIXES[kind]):
                yield f"--{kind} {path}: expected a name that ends in {' or '.join(_SUFFIXES[kind])}"


def json_text(content: Mapping[str, Any]) -> str:
    """Plain values as JSON, which knows no infinity and no NaN."""
    return json.dumps(content, indent=1, allow_nan=False)


def write_outputs(prediction: AnyPrediction, outputs: Outputs, text: str) -> None:
    """Write the files that are asked for; `text` is the report as JSON.

    Raises:
        UserError: a file cannot be written.
    """
    timeline = prediction.timeline
    outputs.write_json(text)
    if outputs.csv is not None:
        write_csv(timeline, outputs.csv)
    if outputs.trace is not None:
        write_trace(timeline, outputs.trace, prediction.shown_ranks)
    if outputs.html is not None or outputs.png is not None:
        _draw(prediction, outputs)


def _draw(prediction: AnyPrediction, outputs: Outputs) -> None:
    from ...figures import gantt, html, png

    if isinstance(prediction, TrainPrediction):
        _draw_train(prediction, outputs)
        return
    report = prediction.report
    figure = gantt(prediction.timeline, prediction.shown_ranks, title=report.name)
    if outputs.html is not None and isinstance(report, CycleReport):
        title = f"{report.name}: {format_seconds(report.step_time_s)} per step"
        html(outputs.html, title, {"Timeline of the cycle": figure}, cycle_tables(report))
    elif outputs.html is not None and isinstance(report, Report):
        title = f"{report.name}: {format_seconds(report.update_time_s)}"
        html(outputs.html, title, {"Timeline of the update": figure}, report_tables(report))
    if outputs.png is not None:
        png(figure, outputs.png)


def _draw_train(prediction: TrainPrediction, outputs: Outputs) -> None:
    from ...figures import html, pipeline, png

    report = prediction.report
    if outputs.html is not None:
        title = f"{report.name}: {format_seconds(report.step_time_s)} per step"
        html(outputs.html, title, train_figures(prediction), train_tables(report))
    if outputs.png is not None:
        png(pipeline(prediction.timeline, prediction.resolved.plan.grid, title=report.name), outputs.png)


PIPELINE = "Pipeline of the step"


def train_figures(prediction: TrainPrediction, most_spans: int | None = None) -> dict[str, Any]:
    """The plotly figures of a training step by what they show; kernels are those of a pipeline rank in the middle.

    `most_spans` is how many exchanges the first figure, PIPELINE, draws apart: by default what a page bears.
    """
    from ...figures import breakdown, layer_view, memory_by_owner, memory_by_rank, pipeline

    timeline, report, resolved = prediction.timeline, prediction.report, prediction.resolved
    grid, end_s, fullest = resolved.plan.grid, report.step_time_s, report.peak.pipeline_rank
    first = report.peak.place - fullest  # of the replicas that are fullest
    held = {rank: over_time(resolved, timeline, first + rank) for rank in range(grid.ranks)}
    figures = {
        PIPELINE: pipeline(timeline, grid, most_spans=most_spans),
        "Where the time goes, by rank": breakdown(report.by_rank_s, names=report.rank_names),
        "Memory by owner": memory_by_owner(held[fullest], report.memory_bytes, end_s, fullest),
    }
    if grid.ranks > 1:
        figures["Memory by rank"] = memory_by_rank(held, report.memory_bytes, end_s)
    if resolved.coarse is None:
        figures["Kernels of a rank"] = layer_view(timeline, grid, grid.ranks // 2)
    return figures


def report_tables(report: Report) -> "list[Table]":
    """The report as tables for a page."""
    from ...figures import Table

    low, high = format_seconds(report.interval_low_s), format_seconds(report.interval_high_s)
    headline = [
        ("what", report.question),
        ("update time", f"{format_seconds(report.update_time_s)} (90 % interval {low} to {high})"),
        ("pause as rollouts see it", format_seconds(report.pause_s)),
        *told_of_pause(report.rates, report.spent, report.paused),
        ("effective rate", format_rate(report.effective_bytes_per_s)),
        ("bytes, tensors", f"{format_bytes(report.bytes)}, {report.tensors:,}"),
        ("bound by", report.bound_by),
        ("scenario", report.scenario_hash),
    ]
    phases = [
        (phase, format_seconds(report.busy_s[phase]), format_seconds(report.exposed.get(phase, 0.0)))
        for phase in PHASES
    ]
    held = [(name, format_bytes(size)) for name, size in (*report.peak.held, ("total", report.peak.bytes))]
    basis = [(name, f"{share:.1%}") for name, share in report.provenance.items()]
    return [
        Table("Result", ("what", "value"), headline),
        Table("Phases", ("phase", "busy", "on the critical path"), phases),
        Table("Memory per device at its peak", ("held by", "size"), held),
        Table("What the critical path rests on", ("provenance", "share"), basis),
        Table("Notes", ("assumed where the scenario is silent",), [(note,) for note in report.notes]),
    ]


def train_tables(report: TrainReport) -> "list[Table]":
    """The report of a training step as tables for a page."""
    from ...figures import Table

    basis = [(name, f"{share:.1%}") for name, share in report.provenance.items()]
    held = [(name, format_bytes(size)) for name, size in (*report.peak.held, ("total", report.peak.peak_bytes))]
    return [
        Table("Result", ("what", "value"), train_rows(report)),
        Table("Where the time goes", SPLIT_COLUMNS, split_rows(report)),
        Table("Memory by pipeline rank", ("rank", "peak", "at", "most of it"), memory_rows(report)),
        Table(f"Memory of pipeline rank {report.peak.pipeline_rank} at its peak", ("held by", "size"), held),
        Table("What the critical path rests on", ("provenance", "share"), basis),
        Table("Notes", ("assumed where the scenario is silent",), [(note,) for note in report.notes]),
    ]


def cycle_tables(report: CycleReport) -> "list[Table]":
    """The report of an RL cycle as tables for a page; its update's own are below."""
    from ...figures import Table

    own = [
        Table("Result", ("what", "value"), result_rows(report)),
        Table("Phases", PHASE_COLUMNS, phases(report)),
        Table("Staleness", ("versions behind", "requests"), staleness_rows(report)),
        Table("Notes", ("assumed where the scenario is silent",), [(note,) for note in report.notes]),
    ]
    update = report_tables(report.update)[:-1] if report.update is not None else []
    return own + [table._replace(caption=f"Its update: {table.caption}") for table in update]
