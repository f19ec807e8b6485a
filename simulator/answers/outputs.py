"""The files of an answer (JSON, CSV, trace, HTML, PNG): paths checked before, files written whole or not at all.

Files are written before anything is printed: a reader that leaves early (`| head`) takes none of them away.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import UserError
from ..base.files import write_by_suffix
from ..report.report import page_tables
from ..systems.registry import SYSTEMS, AnyPrediction
from ..timeline import write_csv, write_trace

if TYPE_CHECKING:
    from ..systems.collective.system import CollectivePrediction
    from ..systems.run.system import RunPrediction
    from ..systems.train_step.system import TrainPrediction

_SUFFIXES = {"csv": (".csv", ".csv.gz"), "trace": (".json", ".json.gz"), "html": (".html",), "png": (".png",)}


@dataclass(frozen=True)
class Outputs:
    """The files for each kind of output. None: no such output; `json="-"` is stdout."""

    json: Path | str | None = None
    csv: Path | None = None
    trace: Path | None = None
    html: Path | None = None
    png: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> "Outputs":
        """The usual four in one folder, which is made if need be; a UserError if it cannot be made."""
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
            from ..figures import png_browser

            png_browser()

    @property
    def json_alone(self) -> bool:
        """Whether stdout is for the JSON and nothing else."""
        return str(self.json) == "-"

    @property
    def files(self) -> list[Path]:
        """The files that are written."""
        return [Path(path) for path in vars(self).values() if path is not None and str(path) != "-"]

    @contextmanager
    def staged(self) -> Iterator["Outputs"]:
        """These outputs under other names, from which they are moved to their own when all are written: all or none.

        A UserError names the place that cannot be written. Devices and pipes are written to at once.
        """
        given = {kind: Path(path) for kind, path in vars(self).items() if path and str(path) != "-"}
        places = {kind: path.resolve() for kind, path in given.items() if path.is_file() or not path.exists()}
        names = {kind: place.with_name(f".{os.getpid()}.{place.name}") for kind, place in places.items()}
        try:
            yield replace(self, **names)
            for kind, place in places.items():
                os.replace(names[kind], place)
        except UserError as error:
            said = str(error)
            for kind, name in names.items():
                said = said.replace(str(name), str(vars(self)[kind]))
            raise UserError(*said.split("\n")) from error
        finally:
            for name in names.values():
                name.unlink(missing_ok=True)

    def write(self, text: str, csv: bytes = b"") -> None:
        """Write JSON and CSV into their files, if they have one; a UserError if a file cannot be written."""
        if self.json is not None and not self.json_alone:
            write_by_suffix(self.json, f"{text}\n".encode())
        if self.csv is not None and csv:
            write_by_suffix(self.csv, csv)

    def tell(self, text: str, lines: Iterable[str], besides: Iterable[str] = (), files: Iterable[Path] = ()) -> None:
        """Print the JSON `text` where stdout is for it alone, else `lines`; then lines besides, and the files written.

        Beside JSON the latter go to stderr.
        """
        print(text if self.json_alone else "\n".join(lines))
        for line in (*besides, *(f"wrote {path}" for path in (*self.files, *files))):
            print(line, file=sys.stderr if self.json_alone else sys.stdout)

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
    """Write the files that are asked for, all or none; `text` is the report as JSON. A UserError if one cannot be."""
    with outputs.staged() as staged:
        _write(prediction, staged, text)


def _write(prediction: AnyPrediction, outputs: Outputs, text: str) -> None:
    timeline, report = prediction.timeline, prediction.report
    outputs.write(text)
    if outputs.csv is not None:
        write_csv(timeline, outputs.csv)
    if outputs.trace is not None:
        write_trace(timeline, outputs.trace, prediction.shown_ranks, report.kind)
    if outputs.html is None and outputs.png is None:
        return
    from ..figures import Section, png, write_html

    if outputs.html is not None:
        words = SYSTEMS[report.kind].words(report)
        section = Section(figures=figures_of(prediction), tables=page_tables(report, words))
        write_html(outputs.html, f"{report.name}: {words.answer}", [section])
    if outputs.png is not None:
        png(_first_figure(prediction), outputs.png)


def _timeline(prediction: AnyPrediction, most_spans: int | None = None, opens_near: bool = False) -> Any:
    from ..figures import draw_timeline

    report = prediction.report
    return draw_timeline(report.kind, prediction.timeline, prediction.grid, prediction.shown_ranks, report.name,
                         most_spans=most_spans, opens_near=opens_near)  # fmt: skip


PIPELINE = "Pipeline of the step"


def timeline_caption(kind: str) -> str:
    """What the timeline of a system of this kind is called among its figures."""
    return PIPELINE if kind == "train_step" else f"Timeline of the {SYSTEMS[kind].short}"


def figures_of(prediction: AnyPrediction, most_spans: int | None = None, opens_near: bool = False) -> dict[str, Any]:
    """The plotly figures of a prediction by what they show: its timeline first, then those of its kind.

    `most_spans` is how many exchanges the pipeline of a step draws apart: by default what a page bears. `opens_near`
    shows a part of a long pipeline at first.
    """
    kind = prediction.report.kind
    first = {timeline_caption(kind): _timeline(prediction, most_spans, opens_near)} if _has_timeline(prediction) else {}
    return first | (_MORE[kind](prediction) if kind in _MORE else {})


def _has_timeline(prediction: AnyPrediction) -> bool:
    """Whether there is anything to draw: a run may keep no spans, but has other figures then."""
    return prediction.report.kind not in _MORE or len(prediction.timeline.end_s) > 0


def _first_figure(prediction: AnyPrediction) -> Any:
    if _has_timeline(prediction):
        return _timeline(prediction)
    return next(iter(_MORE[prediction.report.kind](prediction).values()))


def _of_ranks(prediction: "TrainPrediction") -> dict[str, Any]:
    """Time and memory of pipeline ranks; kernels are those of one in the middle."""
    from ..figures import breakdown, layer_view, memory_by_owner, memory_by_rank
    from ..systems.train_step.memory import memory_table

    timeline, report, resolved = prediction.timeline, prediction.report, prediction.resolved
    grid, end_s, fullest = prediction.grid, report.step_time_s, report.peak.pipeline_rank
    first = report.peak.place - fullest  # of the replicas that are fullest
    held = {rank: memory_table(resolved, timeline, first + rank) for rank in range(grid.ranks)}
    figures = {
        "Where the time goes, by rank": breakdown(report.by_rank_s, names=report.rank_names),
        "Memory by owner": memory_by_owner(held[fullest], report.memory_bytes, end_s, fullest),
    }
    if grid.ranks > 1:
        figures["Memory by rank"] = memory_by_rank(held, report.memory_bytes, end_s)
    if resolved.coarse is None:
        figures["Kernels of a rank"] = layer_view(timeline, grid, grid.ranks // 2)
    return figures


def _of_run(prediction: "RunPrediction") -> dict[str, Any]:
    """Where the time went, and how stale gradients were."""
    from ..figures import staleness, waterfall

    history = prediction.history
    figures = {"Where the time goes": waterfall(history.breakdown_s, "run")}
    return figures | ({"Staleness": staleness(history.staleness)} if history.staleness_mean else {})


def _of_collective(prediction: "CollectivePrediction") -> dict[str, Any]:
    """Time and bandwidth by size and algorithm."""
    from ..figures import busbw_by_size, time_by_size

    report = prediction.report
    return {
        "Bus bandwidth by size": busbw_by_size(report.rows, f"Bus bandwidth: {report.question}"),
        "Time by size": time_by_size(report.rows, f"Time: {report.question}"),
    }


_MORE: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "train_step": _of_ranks, "run": _of_run, "collective": _of_collective,
}  # fmt: skip
"""Figures beside the timeline, by kind of system."""
