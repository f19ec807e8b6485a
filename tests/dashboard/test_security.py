"""What a browser may not do: name files, run code, hide markup in names, flood the server, reach it from elsewhere."""

import ast
import re
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import runcast.dashboard
from runcast.dashboard.app import MOST_UPLOADED_BYTES, make_app
from runcast.dashboard.pages import PAGES
from runcast.dashboard.parts import without_folders
from runcast.dashboard.verbs import dashboard
from runcast.simulator.base.errors import UserError
from typer.testing import CliRunner

from .conftest import MARKUP

SOURCES = sorted(Path(runcast.dashboard.__file__).parent.rglob("*.py"))
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}
UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "subprocess", "yaml"}
UNSAFE_PROPERTIES = {"dangerously_allow_html", "DangerouslySetInnerHTML", "dangerously_allow_code"}
ELSEWHERE = ("../../etc/passwd", "/etc/passwd", "..%2f..%2fetc%2fpasswd", "tiny-2ranks.toml", "\\\\host\\c", "~root")


@pytest.fixture(scope="module")
def client(folder):
    return make_app(folder).server.test_client()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_nothing_is_evaluated_or_unpickled(source):
    tree = ast.parse(source.read_text())

    assert set(unsafe(tree)) == set()


def unsafe(tree):
    """What a syntax tree calls, imports or sets that could run what a user wrote."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
            yield node.func.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.name for one in node.names] + [getattr(node, "module", None) or ""]
            yield from {name.partition(".")[0] for name in names} & UNSAFE_MODULES
        elif isinstance(node, ast.keyword) and node.arg in UNSAFE_PROPERTIES:
            yield node.arg
        elif isinstance(node, ast.Constant) and node.value in UNSAFE_PROPERTIES:
            yield node.value


def test_the_scan_sees_what_it_looks_for():
    code = "import pickle\nfrom yaml import load\neval('1')\ndag.AgGrid(dangerously_allow_code=True)"

    assert set(unsafe(ast.parse(code))) == {"pickle", "yaml", "eval", "dangerously_allow_code"}


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("file", ["scenario.toml", "report.json"])
def test_a_name_in_an_address_opens_nothing_else(client, name, file):
    refused = client.get(f"/download/{file}", query_string={"base": name})

    assert (refused.status_code, refused.mimetype, "root:" in refused.text) == (400, "text/plain", False)


@pytest.mark.parametrize(
    "key", ["cluster", "stack", "profile", "model.config", "cluster.device.base", "cycle.train", "plan"]
)
def test_a_change_in_an_address_opens_nothing(client, key):
    refused = client.get("/download/report.json", query_string={"base": "mine", key: "/etc/passwd"})

    assert (refused.status_code, "expected a name of the catalogue" in refused.text) == (400, True)


@pytest.mark.parametrize("path", ["/download/../app.py", "/download/x", "/assets/../app.py", "/assets/%2e%2e/app.py"])
def test_no_other_file_is_served(client, path):
    served = client.get(path)

    assert "make_app" not in served.text
    assert served.status_code in (400, 404) or "<!doctype html>" in served.text


def test_a_file_is_saved_under_a_plain_name(client):
    given = client.get("/download/scenario.toml", query_string={"base": MARKUP}).headers["Content-Disposition"]

    assert re.fullmatch(r"attachment; filename=[\w.-]+\.toml", given)


def test_a_flood_is_refused(client):
    flood = b'{"a": "' + b"x" * MOST_UPLOADED_BYTES + b'"}'

    assert client.post("/_dash-update-component", data=flood, content_type="application/json").status_code == 413


ASKED = ("127.0.0.1:8050", "localhost", "[::1]:8050", "evil.example:8050", "127.0.0.1.evil.example", "[::", "")
"""Names that a browser may ask for: three of this machine, and others."""


def test_names_of_this_machine_alone_are_answered(client):
    codes = [client.get("/", headers={"Host": name}).status_code for name in ASKED]

    assert codes == [200] * 3 + [421] * 4


def test_a_server_for_others_is_asked_under_any_name():
    everyone = make_app(open_to_all=True).server.test_client()

    assert everyone.get("/", headers={"Host": "node17.cluster:8050"}).status_code == 200


def test_another_address_is_asked_for_and_said_to_be_open(monkeypatch):
    from runcast.dashboard import verbs
    from typer import Typer

    asked = []

    def create_server(server, host, **_):
        asked.append((host, server.test_client().get("/", headers={"Host": "elsewhere"}).status_code))
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr("waitress.create_server", create_server)
    app = Typer()
    app.command()(verbs.dashboard)
    alone, open_to_all = CliRunner().invoke(app, []), CliRunner().invoke(app, ["--host", "0.0.0.0"])

    assert asked == [("127.0.0.1", 421), ("0.0.0.0", 200)]
    assert ("there is no login" in alone.output, "there is no login" in open_to_all.output) == (False, True)


def test_markup_in_a_name_is_text(page):
    page.goto("/training?base=mine")
    page.wait_for_selector(".number")
    page.locator("#training-base").click()
    page.locator('[role="option"]', has_text=MARKUP).click()
    page.wait_for_function("window.location.search.includes('onclick')")
    page.wait_for_selector(".js-plotly-plot")

    assert page.locator("b[onclick]").count() == 0


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_a_hostile_address_opens_a_page_without_markup_of_its_own(page, one):
    page.goto(f"{one.path}?base=<img src=x onerror=alert(1)>&<b onclick=x>=<script>x()</script>&cluster=/etc/passwd")
    page.wait_for_selector("h1")
    page.wait_for_load_state("networkidle")

    assert page.locator("b[onclick], img[onerror], #page script").count() == 0


def test_a_flood_without_a_length_is_refused_before_it_is_read(served):
    host, port = served.removeprefix("http://").split(":")
    head = f"POST /_dash-update-component HTTP/1.1\r\nHost: {host}:{port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode())
        with suppress(OSError):  # the server may have closed it
            for _ in range(MOST_UPLOADED_BYTES // 2**20 + 1):
                connection.sendall(chunk)
        answer = connection.recv(1000)

    assert b" 413 " in answer.partition(b"\r\n")[0]


def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="cannot listen on"):
        dashboard(port=taken.getsockname()[1])


def test_messages_name_files_without_their_folders(tmp_path):
    line = f"{tmp_path}/mine.toml: parallel.tp = 3: at 64 GB/s and 1/2 of /data it is not"

    assert without_folders(line) == "mine.toml: parallel.tp = 3: at 64 GB/s and 1/2 of /data it is not"
