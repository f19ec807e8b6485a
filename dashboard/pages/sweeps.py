"""Sweeps: open one, or start a small one; its points in figures and in a grid; a point opens as a question."""

import os
from base64 import b64decode
from binascii import Error as NotBase64
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from ...simulator.answers.sweep import Progress
from ...simulator.base.errors import UserError
from ...simulator.runner import InProcess, Processes
from .. import parts, tables
from ..background import Pace
from ..figures.sweep import axes, heat, number_columns, parallel, scatter
from ..library import Library
from ..page import Here, Page, inputs, keep_in_address, outputs, states
from ..question import choices_of
from ..sweeps import parts as sweep_parts
from ..sweeps import run as sweep_run
from ..sweeps.folders import SweepFolders
from ..sweeps.points import MOST_REPORT_BYTES, Source, Table
from ..sweeps.run import SweepRequest

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "Many configurations at once: which are best in two ways, what decides, what does not fit."
_SOURCE = State("sweeps-source", "data")
CHOICES = {one.key: one for one in (*sweep_parts.SCATTER, *sweep_parts.HEAT, *sweep_parts.PARALLEL)}
Choices = Mapping[str, str]
"""What an address says: columns by the keys of choices, the sweep, a point."""


def layout(here: Here, query: str) -> "Component":
    """The forms; what is opened is drawn by callbacks, with Stores of what it is: without it they have no inputs."""
    asked = choices_of(query)
    shipped = {name: f"{name} ({len(sweep)} points)" for name, sweep in sweep_run.ready_sweeps().items()}
    forms = [
        sweep_parts.open_form(list(here.library.sweeps()), asked.get("sweep")),
        sweep_parts.start_form(shipped, list(here.library.scenarios())),
    ]
    body = html.Div(id="sweeps-body", className="answer")
    kept = [dcc.Store(id=f"sweeps-{name}") for name in ("done", "ended", "query", "begun", "stopping", "far")]
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
    _grow(app, sweeps)
    _point(app, sweeps)
    _choose(app)
    _start(app, here.library.folder, home)
    _show_progress(app, home)


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
        *states("sweeps", "upload.filename", "asked.data", "query.data"),
    )
    def show(
        name: str | None, contents: str | None, done: str | None, file: str | None, asked: Choices, query: str | None
    ) -> Any:
        known = list(sweeps.folders())
        try:
            if ctx.triggered_id == "sweeps-upload" and contents:
                source: Source = read_upload(contents, file or "upload")
                name = None
            else:
                name = done if ctx.triggered_id == "sweeps-done" and done else name or next(iter(known), None)
                if name is None:
                    return sweep_parts.nothing_yet(), known, None
                source = sweeps.source(name)
            said = choices_for(source, asked, query)
            return _body(sweeps.here.library, sweeps.table(source), source, said), known, name
        except UserError as error:
            return parts.alert("This cannot be opened", error.faults), known, name

    app.clientside_callback(
        ClientsideFunction("uploads", "tell"),
        Output("sweeps-uploading", "id"),
        Input("sweeps-uploading", "id"),
        State("sweeps-upload", "max_size"),
    )


def _body(library: Library, table: Table, source: Source, asked: Choices) -> "list[Component]":
    chosen = sweep_parts.default_columns(table, asked)
    known = [*axes(table.frame), *number_columns(table.frame)]
    wanted = [column for column in asked.get("lines", "").split(" ") if column in known]
    first = [name for name in dict.fromkeys([*axes(table.frame), chosen["x"], chosen["y"]]) if name in known]
    bases = library.names_of_kind(table.kind) if table.kind else list(library.scenarios())
    drawn = sweep_parts.draw(table, source, chosen, wanted or first, bases)
    return [dcc.Store(id="sweeps-source", data=source), dcc.Store(id="sweeps-number"), *drawn]


def choices_for(source: Source, asked: Choices, query: str | None = None) -> Choices:
    """What the address says of what is open, as it was `asked` or as it is now: nothing, if it names another sweep."""
    said = choices_of(query) if query else asked
    return said if source.get("name") == said.get("sweep", source.get("name")) else {}


def _draw(app: Dash, sweeps: SweepFolders) -> None:
    """Each figure is drawn when its own columns change, or there are more points."""

    def connect_figure(figure: str, keys: list[str], draw: Callable[..., Any], *more: Input) -> None:
        @app.callback(Output(figure, "figure"), *(Input({"sweeps": key}, "value") for key in keys), *more,
                      Input("sweeps-source", "data"))  # fmt: skip
        def drawn(*values: Any) -> Any:
            *chosen, source = values
            try:
                frame = sweeps.table(source or {"name": ""}).frame
            except UserError:
                return no_update
            columns = chosen[: len(keys)]
            if not set(columns) <= set(frame.columns):  # of another sweep, or of none while one is opened
                return no_update
            return draw(frame, *chosen).update_layout(uirevision=" ".join(columns))  # more points: a zoom stays

    def draw_lines(frame: Any, shade: str, lines: list[str] | None) -> Any:
        return parallel(frame, [name for name in lines or () if name in frame.columns], shade)

    connect_figure("sweeps-scatter", ["x", "y", "colour"], scatter, Input("sweeps-all", "checked"))
    connect_figure("sweeps-heat", ["across", "up", "value"], heat)
    connect_figure("sweeps-parallel", ["shade"], draw_lines, Input("sweeps-lines", "value"))

    @app.callback(
        Output("sweeps-query", "data"),
        Input({"sweeps": ALL}, "value"),
        *inputs("sweeps", "lines.value", "number.data"),
        _SOURCE,
    )
    def address(values: list[str], lines: list[str], number: int | None, source: Source | None) -> Any:
        if source is None:
            return no_update
        keys = [one["id"]["sweeps"] for one in ctx.inputs_list[0]]
        said = {"sweep": source.get("name"), **dict(zip(keys, values, strict=True)), "lines": " ".join(lines or ())}
        said["point"] = None if number is None else str(number)
        return "?" + urlencode({key: value for key, value in said.items() if value})


def _grow(app: Dash, sweeps: SweepFolders) -> None:
    """While a sweep is at work, what is shown of it grows; its first points open it, and its end."""
    for store, write in (("sweeps-far", "grow"), ("sweeps-ended", "end")):
        app.clientside_callback(ClientsideFunction("sweeps", write), Output(store, "id"), Input(store, "data"))

    @app.callback(
        Output("sweeps-counts", "children"),
        Output({"grid": sweep_parts.GRID}, "columnDefs"),
        Output({"grid": sweep_parts.GRID}, "rowData"),
        Output({"sweeps": ALL}, "data"),
        Input("sweeps-source", "data"),
        prevent_initial_call=True,
    )
    def more(source: Source) -> Any:
        try:
            table = sweeps.table(source)
        except UserError:
            raise PreventUpdate from None
        known = [sweep_parts.columns(table, CHOICES[one["id"]["sweeps"]]) for one in ctx.outputs_list[-1]]
        cells = sweep_parts.grid_columns(table.frame), sweep_parts.rows(table.frame)
        return sweep_parts.counts(table, source), *cells, known


def _point(app: Dash, sweeps: SweepFolders) -> None:
    @app.callback(
        Output("sweeps-number", "data"),
        Input("sweeps-scatter", "clickData"),
        Input("sweeps-heat", "clickData"),
        Input({"grid": sweep_parts.GRID}, "selectedRows"),
        _SOURCE,
        *states("sweeps", "asked.data", "query.data"),
    )
    def choose(dot: Any, cell: Any, rows: Any, source: Source | None, asked: Choices, query: str | None) -> Any:
        clicked = {"sweeps-scatter": dot, "sweeps-heat": cell}.get(str(ctx.triggered_id))
        if clicked:
            number = clicked["points"][0].get("customdata")
            return no_update if number is None else number
        if ctx.triggered_id == {"grid": sweep_parts.GRID}:
            return rows[0]["point"] if rows else no_update
        said = choices_for(source, asked, query).get("point", "") if source else ""
        return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None

    @app.callback(
        Output("sweeps-point", "children"),
        *inputs("sweeps", "number.data", "of.value"),
        _SOURCE,
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
        *outputs("sweeps", "told.children", "ended.data"),
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
            Output("sweeps-far", "data"),
        ],
        interval=500,
        prevent_initial_call=True,
    )
    def start(tell: Callable[[Any], None], _: int, *typed: str | None) -> tuple[Any, Any]:
        pace = Pace()

        def watch(progress: Progress) -> None:
            far = f"{progress.done} of {progress.total} points{pace.left(progress.done, progress.total)}"
            points = {"name": asked.name, "done": str(progress.done), "opens": progress.done > progress.infeasible}
            tell((str(progress.done), str(progress.total), far, True, points))

        asked = _asked(*(text or "" for text in typed))
        runner = Processes(workers) if workers > 1 else InProcess()
        tell(("0", "1", f"{asked.name}: starts", False, None))
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
    paces = defaultdict[str, Pace](Pace)

    @app.callback(
        Output("sweeps-told", "children", allow_duplicate=True),
        Output("sweeps-bar", "value", allow_duplicate=True),
        Output("sweeps-bar", "max", allow_duplicate=True),
        Output("sweeps-ended", "data", allow_duplicate=True),
        Output("sweeps-wait", "disabled"),
        Output("sweeps-far", "data"),
        *inputs("sweeps", "new.value", "wait.n_intervals"),
        *states("sweeps", "wait.disabled", "start.loading"),
        prevent_initial_call="initial_duplicate",
    )
    def show(name: str | None, _: Any, idle: bool, started_here: bool | None) -> tuple[Any, ...]:
        if started_here:  # which tells by itself
            raise PreventUpdate
        found = sweep_run.progress_of(home, name or "")
        if name is None or found is None:
            return None, "0", "1", no_update, True, no_update
        ended = not idle and not found.at_work and ctx.triggered_id == "sweeps-wait"
        left = paces[name].left(found.done, found.total) if found.at_work else ""
        if not found.at_work:
            paces.pop(name, None)
        far = {"name": name, "done": str(found.done)} if found.at_work else no_update
        text = html.P(found.text(name) + left)
        return text, str(found.done), str(found.total), name if ended else no_update, not found.at_work, far

    app.clientside_callback(
        "(begun_here, idle) => !begun_here && idle",
        Output("sweeps-cancel", "disabled"),
        *inputs("sweeps", "begun.data", "wait.disabled"),
    )


PAGE = Page("/sweeps", "Sweeps", "many at once, Pareto", ABOUT, layout, connect)
