"""What a question gives as files: its scenario, its report, its timeline. Links, so that a browser saves them.

`/download/scenario.toml?base=...` is answered like the page of that question; nothing is kept on disk.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dash import html
from flask import Flask, Response, request

from ..simulator.base.errors import UserError, unknown
from ..simulator.scenario import changed, to_toml
from ..simulator.timeline.table import spans_csv
from ..simulator.timeline.trace import trace
from . import parts
from .page import Here
from .question import Question, from_query

if TYPE_CHECKING:
    from dash.development.base_component import Component


def links(question: Question) -> "Component":
    """Links to all files of a question."""
    return parts.links("Download", {_address(name, question): caption for name, caption in _CAPTIONS.items()})


def scenario_link(question: Question, text: str) -> html.A:
    """A link to the scenario file of a question."""
    return html.A(text, href=_address("scenario.toml", question))


def connect(server: Flask, here: Here) -> None:
    """The files have addresses."""

    @server.get("/download/<name>")
    def download(name: str) -> Response:
        try:
            question = from_query(request.query_string.decode(errors="replace"), "")
            if name not in _FILES:
                raise unknown("address", "download", name, _FILES)
            data = _FILES[name](here, question)
        except UserError as error:
            return Response(f"{error}\n", 400, mimetype="text/plain")
        response = Response(data, mimetype=_TYPES[name.rpartition(".")[2]])
        response.headers.set("Content-Disposition", "attachment", filename=_saved(question, name))
        return response


def scenario_toml(here: Here, question: Question) -> bytes:
    """A scenario file that says what the question asks; files that it names are beside its base.

    Raises:
        UserError: it asks something that is not allowed.
    """
    here.answers.scenario(question)
    table, where = here.library.scenario(question.base)
    return to_toml(changed(table, question.changes, where)).encode()


def report_json(here: Here, question: Question) -> bytes:
    """The report, as `runcast simulate --json` writes it.

    Raises:
        UserError: the question has no answer.
    """
    return (json.dumps(here.answers.predict(question).report.to_json(), indent=1) + "\n").encode()


def timeline_csv(here: Here, question: Question) -> bytes:
    """The spans, by place: a class of ranks that act alike stands once.

    Raises:
        UserError: the question has no answer.
    """
    return spans_csv(here.answers.predict(question).timeline).encode()


def trace_json(here: Here, question: Question) -> bytes:
    """The trace that ui.perfetto.dev opens, compressed.

    Raises:
        UserError: the question has no answer.
    """
    prediction = here.answers.predict(question)
    text = json.dumps(trace(prediction.timeline, prediction.shown_ranks), separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=5, mtime=0)


_FILES: Mapping[str, Callable[[Here, Question], bytes]] = {
    "scenario.toml": scenario_toml,
    "report.json": report_json,
    "timeline.csv": timeline_csv,
    "trace.json.gz": trace_json,
}
_CAPTIONS = {
    "scenario.toml": "scenario (TOML)",
    "report.json": "report (JSON)",
    "timeline.csv": "timeline (CSV)",
    "trace.json.gz": "trace (Perfetto)",
}
_TYPES = {"toml": "application/toml", "json": "application/json", "csv": "text/csv", "gz": "application/gzip"}


def _address(name: str, question: Question) -> str:
    return f"/download/{name}{question.query()}"


def _saved(question: Question, name: str) -> str:
    """The name that the file is saved under: that of the scenario, in letters that any file system takes."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in question.base)
    return f"{safe}-{name}" if name != "scenario.toml" else f"{safe}.toml"
