"""What a question gives as files: its scenario, its report, its timeline. Links, so that a browser saves them.

`/download/scenario.toml?base=...` is answered like the page of that question; nothing is kept on disk.
"""

import gzip
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dash import html
from flask import Flask, Response, request

from ..simulator.base.errors import UserError, unknown
from ..simulator.scenario import to_toml
from ..simulator.timeline.ranks import spans_csv
from ..simulator.timeline.trace import trace
from . import parts
from .answers import name_changed, table_of
from .page import Here
from .question import Question, parse_query

if TYPE_CHECKING:
    from dash.development.base_component import Component


TRACE = "trace.json.gz"
PERFETTO = "https://ui.perfetto.dev"
"""A page that draws traces in the browser; assets/perfetto.js hands it one."""


def links(question: Question) -> "Component":
    """Links to all files of a question."""
    files = [link(question, name, file.caption) for name, file in _FILES.items()]
    trace = f"/download/{TRACE}{question.query()}"
    opened = html.A("open in Perfetto", href=PERFETTO, **{"data-trace": trace, "data-title": question.base})
    return parts.link_row("Download", [*files, opened])


def link(question: Question, name: str, text: str) -> html.A:
    """A link to a file of a question: the browser asks for it anew."""
    return html.A(text, href=f"/download/{name}{question.query()}")


def connect(server: Flask, here: Here) -> None:
    """The files have addresses."""

    @server.get("/download/<name>")
    def download(name: str) -> Response:
        try:
            question = parse_query(request.query_string.decode(errors="replace"), "")
            if name not in _FILES:
                raise unknown("address", "download", name, _FILES)
            data = _FILES[name].make(here, question)
        except UserError as error:
            return Response(f"{parts.without_folders(str(error))}\n", 400, mimetype="text/plain")
        response = Response(data, mimetype=_FILES[name].type)
        response.headers.set("Content-Disposition", "attachment", filename=_file_name(question, name))
        return response


def _file_name(question: Question, name: str) -> str:
    """The name that the file is saved under: that of the scenario, in letters that any file system takes."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in question.base)
    return f"{safe}-{name}" if name != "scenario.toml" else f"{safe}.toml"


class _File(NamedTuple):
    """`make` gives what is in it, or raises a UserError where the question has no answer."""

    caption: str
    type: str
    make: Callable[[Here, Question], bytes]


def _scenario(here: Here, question: Question) -> bytes:
    """A scenario file that says what the question asks; files that it names are beside its base."""
    here.answers.scenario(question)
    return to_toml(name_changed(table_of(here.library, question)[0], question)).encode()


def _report(here: Here, question: Question) -> bytes:
    """The report, as `runcast simulate --json` writes it."""
    return (json.dumps(here.answers.predict(question).to_json(), indent=1) + "\n").encode()


def _timeline(here: Here, question: Question) -> bytes:
    """The spans, by place: a class of ranks that act alike stands once."""
    return spans_csv(here.answers.predict(question).timeline).encode()


def _trace(here: Here, question: Question) -> bytes:
    """The trace that ui.perfetto.dev opens, compressed."""
    prediction = here.answers.predict(question)
    text = json.dumps(trace(prediction.timeline, prediction.shown_ranks, prediction.report.kind), separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=5, mtime=0)


_FILES = {
    "scenario.toml": _File("scenario (TOML)", "application/toml", _scenario),
    "report.json": _File("report (JSON)", "application/json", _report),
    "timeline.csv": _File("timeline (CSV)", "text/csv", _timeline),
    TRACE: _File("trace (Perfetto)", "application/gzip", _trace),
}
