"""Sweeps: open one, or start a small one; its points in figures and in a grid; a point opens as a question."""

import os
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from ...simulator.answers.sweep import Progress
from ...simulator.answers.sweep.results import MAIN
from ...simulator.base.errors import UserError, unknown
from ...simulator.runner import InProcess, Processes
from .. import parts, tables
from ..background import Pace
from ..figures.sweep import axes, cell_text, heat, number_columns, parallel, scatter
from ..library import Library
from ..page import Here, Page, inputs, keep_in_address, outputs, states
from ..question import choices_of
from ..sweeps import parts as sweep_parts
from ..sweeps import points as sweep_points
from ..sweeps import run as sweep_run
from ..sweeps.points import MOST_REPORT_BYTES, Table
from ..sweeps.run import SweepRequest

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "Many configurations at once: which are best in two ways, what decides, what does not fit."
_CHANGED_SINCE = "The page asks something else than the report: its sweep has changed since."
_SOURCE = State("sweeps-source", "data")
Source = Mapping[str, str]
"""What is open: the `name` of a sweep, or the `text` of an uploaded `file`."""


def layout(here: Here, query: str) -> "Component":
    """The forms; what is opened is drawn by callbacks, with Stores of what it is: without it they have no inputs."""
    asked = choices_of(query)
    shipped = {name: f"{name} ({len(sweep)} points)" for name, sweep in sweep_run.ready_sweeps().items()}
    forms = [
        sweep_parts.open_form(list(here.library.sweeps()), asked.get("sweep")),
        sweep_parts.start_form(shipped, list(here.library.scenarios())),
    ]
    body = html.Div(id="sweeps-body", className="answer")
    kept = [dcc.Store(id=f"sweeps-{name}") for name in ("done", "query", "begun", "stopping")]
    page = html.Div([html.Div(forms, className="form"), body], className="asking")
    return html.Div([page, dcc.Store(id="sweeps-asked", data=asked), *kept])


def connect(app: Dash, here: Here) -> None:
    """Opening, drawing, choosing a point, starting."""
    made = TemporaryDirectory(prefix="runcast-sweeps-") if here.library.folder is None else None
    app.server.config["SWEEPS_FOLDER"] = made  # lives as long as the server
    home = Path(made.name) if made is not None else here.library.folder
    assert home is not None
    sweeps = SweepFolders(here, home)
    keep_in_address(app, "sweeps-query")
    tables.connect(app, sweep_parts.GRID)
    _open(app, sweeps)
    _draw(app, sweeps)
    _point(app, sweeps)
    _choose(app)
    _start(app, here.library.folder, home)
    _show_progress(app, home)


class SweepFolders:
    """Sweeps that can be opened: those of the data folder, and those that were started here, in `home`."""

    def __init__(self, here: Here, home: Path):
        self.here, self.home = here, home

    def folders(self) -> dict[str, Path]:
        """The folders of all sweeps by name."""
        return {**self.here.library.sweeps(), **Library(self.home).sweeps()}

    def table(self, source: Source) -> Table:
        """The points of what is open.

        Raises:
            UserError: it is gone, or cannot be read.
        """
        if "text" in source:
            return sweep_points.read_csv(source["text"], source["file"])
        known = self.folders()
        if source["name"] not in known:
            raise unknown("address", "sweep", source["name"], known)
        return sweep_points.read_folder(known[source["name"]])

    def point(self, table: Table, number: int, base: str | None, name: str | None) -> "Component":
        """A point and the link to its page; `base` is the scenario that it changes, None for that of its sweep.

        Raises:
            UserError: there is no such point.
        """
        row = table.row(number)
        metrics = [MAIN[table.kind][0], "peak_memory_bytes"] if table.kind else []
        shown = ["point", *axes(table.frame), "status", *(["reason"] if row["reason"] else []), *metrics]
        cells = {column: cell_text(column, row[column]) for column in shown if column in row}
        folder = self.folders().get(name) if name is not None else None
        sweep = sweep_points.origin(folder) if folder is not None else None
        try:
            found = sweep_points.open_point(self.here, table, number, base, sweep)
        except UserError as error:
            return sweep_parts.point(cells, "", error.faults)
        notes = [_CHANGED_SINCE] if found.same is False else []
        return sweep_parts.point(cells, found.page + found.question.query(), notes)


def read_upload(contents: str, file: str) -> dict[str, str]:
    """An upload as the text of a CSV.

    Raises:
        UserError: too large, or no text.
    """
    data = contents.partition(",")[2]
    if len(data) > MOST_REPORT_BYTES * 4 // 3 + 4:
        raise UserError(f"{file}: more than {MOST_REPORT_BYTES / 2**20:g} MiB; give the dashboard its folder: --data")
    try:
        return {"text": b64decode(data, validate=True).decode("utf-8"), "file": file}
    except (NotBase64, ValueError):
        raise UserError(f"{file}: no text in UTF-8; expected the report.csv of a sweep") from None


def _open(app: Dash, sweeps: SweepFolders) -> None:
    @app.callback(
        *outputs("sweeps", "body.children", "name.data", "name.value"),
        *inputs("sweeps", "name.value", "upload.contents", "done.data"),
        *states("sweeps", "upload.filename", "asked.data"),
    )
    def show(name: str | None, contents: str | None, done: str | None, file: str | None, asked: Source) -> Any:
        known = list(sweeps.folders())
        try:
            if ctx.triggered_id == "sweeps-upload" and contents:
                source, name = read_upload(contents, file or "upload"), None
            else:
                name = done if ctx.triggered_id == "sweeps-done" and done else name or next(iter(known), None)
                if name is None:
                    return sweep_parts.nothing_yet(), known, None
                source = {"name": name}
            return _body(sweeps.here.library, sweeps.table(source), source, choices_for(source, asked)), known, name
        except UserError as error:
            return parts.alert("This cannot be opened", error.faults), known, name

    app.clientside_callback(
        ClientsideFunction("uploads", "tell"),
        Output("sweeps-uploading", "id"),
        Input("sweeps-uploading", "id"),
        State("sweeps-upload", "max_size"),
    )


def _body(library: Library, table: Table, source: Source, asked: Mapping[str, str]) -> "list[Component]":
    chosen = sweep_parts.default_columns(table, asked)
    known = [*axes(table.frame), *number_columns(table.frame)]
    wanted = [column for column in asked.get("lines", "").split(" ") if column in known]
    first = [name for name in dict.fromkeys([*axes(table.frame), chosen["x"], chosen["y"]]) if name in known]
    bases = library.names_of_kind(table.kind) if table.kind else list(library.scenarios())
    drawn = sweep_parts.draw(table, source.get("name") or source["file"], chosen, wanted or first, bases)
    return [dcc.Store(id="sweeps-source", data=source), dcc.Store(id="sweeps-number"), *drawn]


def choices_for(source: Source, asked: Mapping[str, str]) -> Mapping[str, str]:
    """What the address says of what is open: nothing, if it names another sweep."""
    return asked if source.get("name") == asked.get("sweep", source.get("name")) else {}


def _draw(app: Dash, sweeps: SweepFolders) -> None:
    """Each figure is drawn when its own columns change."""

    def connect_figure(figure: str, keys: list[str], draw: Callable[..., Any], *more: Input) -> None:
        @app.callback(Output(figure, "figure"), *(Input({"sweeps": key}, "value") for key in keys), *more, _SOURCE)
        def drawn(*values: Any) -> Any:
            *chosen, source = values
            try:
                frame = sweeps.table(source or {"name": ""}).frame
            except UserError:
                return no_update
            columns = [name for name in chosen if isinstance(name, str)]
            return draw(frame, *chosen) if set(columns) <= set(frame.columns) else no_update

    def draw_lines(frame: Any, shade: str, lines: list[str] | None) -> Any:
        return parallel(frame, [name for name in lines or () if name in frame.columns], shade)

    connect_figure("sweeps-scatter", ["x", "y", "colour"], scatter, Input("sweeps-all", "checked"))
    connect_figure("sweeps-heat", ["across", "up", "value"], heat)
    connect_figure("sweeps-parallel", ["shade"], draw_lines, Input("sweeps-lines", "value"))

    @app.callback(
        Output("sweeps-query", "data"),
        Input({"sweeps": ALL}, "value"),
        *inputs("sweeps", "lines.value", "number.data", "source.data"),
    )
    def address(values: list[str], lines: list[str], number: int | None, source: Source | None) -> Any:
        if source is None:
            return no_update
        keys = [one["id"]["sweeps"] for one in ctx.inputs_list[0]]
        said = {"sweep": source.get("name"), **dict(zip(keys, values, strict=True)), "lines": " ".join(lines or ())}
        said["point"] = None if number is None else str(number)
        return "?" + urlencode({key: value for key, value in said.items() if value})


def _point(app: Dash, sweeps: SweepFolders) -> None:
    @app.callback(
        Output("sweeps-number", "data"),
        Input("sweeps-scatter", "clickData"),
        Input("sweeps-heat", "clickData"),
        Input({"grid": sweep_parts.GRID}, "selectedRows"),
        Input("sweeps-source", "data"),
        State("sweeps-asked", "data"),
    )
    def choose(dot: Any, cell: Any, rows: Any, source: Source | None, asked: Mapping[str, str]) -> Any:
        clicked = {"sweeps-scatter": dot, "sweeps-heat": cell}.get(str(ctx.triggered_id))
        if clicked:
            number = clicked["points"][0].get("customdata")
            return no_update if number is None else number
        if ctx.triggered_id == {"grid": sweep_parts.GRID}:
            return rows[0]["point"] if rows else no_update
        said = choices_for(source, asked).get("point", "") if source else ""
        return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None

    @app.callback(
        Output("sweeps-point", "children"),
        *inputs("sweeps", "number.data", "of.value", "source.data"),
    )
    def tell(number: int | None, base: str | None, source: Source | None) -> Any:
        if number is None or source is None:
            return html.P("Choose a point in a figure or a row of the grid.", className="said")
        try:
            return sweeps.point(sweeps.table(source), int(number), base, source.get("name"))
        except UserError as error:
            return parts.alert("This point cannot be opened", error.faults)


def _choose(app: Dash) -> None:
    """Connect the choice of a sweep: a shipped one, or axes, with a default name."""

    @app.callback(Output("sweeps-own", "style"), Input("sweeps-shipped", "value"))
    def own(which: str) -> dict[str, str]:
        return {} if which == sweep_parts.OWN else {"display": "none"}

    @app.callback(Output("sweeps-new", "value"), Input("sweeps-shipped", "value"), State("sweeps-new", "value"))
    def name(which: str, typed: str | None) -> Any:
        first = sweep_parts.NAME if which == sweep_parts.OWN else which
        return first if typed != first and typed in (None, sweep_parts.NAME, *sweep_run.ready_sweeps()) else no_update


def _start(app: Dash, data: Path | None, home: Path) -> None:
    """A sweep in a process of its own; Cancel leaves a mark by which it ends with what is done."""
    place = str(home)
    workers = max(1, min(4, (os.cpu_count() or 1) - 1))  # others keep a core

    @app.callback(
        *outputs("sweeps", "told.children", "done.data"),
        Input("sweeps-start", "n_clicks"),
        *(State(f"sweeps-{field}", "value") for field in _FIELDS),
        background=True,
        running=[
            (Output("sweeps-start", "loading"), True, False),
            (Output("sweeps-new", "disabled"), True, False),
            (Output("sweeps-begun", "data"), False, False),
        ],
        progress=[
            Output("sweeps-bar", "value"),
            Output("sweeps-bar", "max"),
            Output("sweeps-told", "children"),
            Output("sweeps-begun", "data"),
        ],
        interval=500,
        prevent_initial_call=True,
    )
    def start(tell: Callable[[Any], None], _: int, *typed: str | None) -> tuple[Any, Any]:
        pace = Pace()

        def watch(progress: Progress) -> None:
            far = f"{progress.done} of {progress.total} points{pace.left(progress.done, progress.total)}"
            tell((str(progress.done), str(progress.total), far, True))

        asked = _asked(*(text or "" for text in typed))
        runner = Processes(workers) if workers > 1 else InProcess()
        tell(("0", "1", f"{asked.name}: starts", False))
        try:
            done = sweep_run.run(Library(data), Path(place), asked, runner, watch)
        except UserError as error:
            return parts.alert("This cannot be run", error.faults), no_update
        found = sweep_run.progress_of(Path(place), asked.name)
        text = found.text(asked.name) if found is not None else ""
        return html.P(text), asked.name if sum(done.counts.values()) else no_update

    @app.callback(
        Output("sweeps-stopping", "data"),
        Input("sweeps-cancel", "n_clicks"),
        State("sweeps-new", "value"),
        prevent_initial_call=True,
    )
    def cancel(clicks: int | None, name: str | None) -> Any:
        if clicks and name:
            sweep_run.stop(home, name)
        return clicks


_FIELDS = ("shipped", "base", "new", "key1", "values1", "key2", "values2")


def _asked(which: str, base: str, name: str, key1: str, values1: str, key2: str, values2: str) -> SweepRequest:
    """The fields of the form as a sweep to start."""
    if which != sweep_parts.OWN:
        return SweepRequest(name, shipped=which)
    return SweepRequest(name, base=base, axes=((key1.strip(), values1), (key2.strip(), values2)))


def _show_progress(app: Dash, home: Path) -> None:
    """What became of the sweep of this name: one whose page was left goes on, one that was killed can go on."""

    @app.callback(
        Output("sweeps-told", "children", allow_duplicate=True),
        Output("sweeps-bar", "value", allow_duplicate=True),
        Output("sweeps-bar", "max", allow_duplicate=True),
        Output("sweeps-done", "data", allow_duplicate=True),
        Output("sweeps-wait", "disabled"),
        *inputs("sweeps", "new.value", "wait.n_intervals"),
        *states("sweeps", "wait.disabled", "start.loading"),
        prevent_initial_call="initial_duplicate",
    )
    def show(name: str | None, _: Any, idle: bool, started_here: bool | None) -> tuple[Any, ...]:
        if started_here:  # which tells by itself
            raise PreventUpdate
        found = sweep_run.progress_of(home, name or "")
        if name is None or found is None:
            return None, "0", "1", no_update, True
        ended = not idle and not found.at_work and ctx.triggered_id == "sweeps-wait"
        text = html.P(found.text(name))
        return text, str(found.done), str(found.total), name if ended else no_update, not found.at_work

    app.clientside_callback(
        "(begun_here, idle) => !begun_here && idle",
        Output("sweeps-cancel", "disabled"),
        *inputs("sweeps", "begun.data", "wait.disabled"),
    )


PAGE = Page("/sweeps", "Sweeps", "many at once, Pareto", ABOUT, layout, connect)
