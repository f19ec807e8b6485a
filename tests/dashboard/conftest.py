"""A served dashboard and pages of a browser before it: `served`, `page`, `pictured`.

A test fails when its page writes an error to the console, throws one, or asks another host for anything.
"""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from runcast.simulator.answers.sweep import load_sweep, run_sweep
from runcast.simulator.runner import InProcess

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "out" / "screenshots"
WIDTHS_PX = (1440, 390)
MARKUP = "<b onclick=alert(1)>bold<&b>"
"""The name of a scenario in the data folder: HTML, if anyone took it for that."""
ZOOMS_ARE_HEARD = """(plots => plots.length > 0 && plots.every(plot => plot._ev?.listenerCount("plotly_relayout") > 0))(
    [...document.querySelectorAll(".timeline .js-plotly-plot")])"""
"""Whether Dash listens to every timeline of a page: a zoom before that changes the axis and draws nothing anew."""

SCENARIO = f"""
name = "{MARKUP}"
kind = "train_step"
cluster = "dgx-h100"
level = "coarse"

[model]
preset = "llama3-8b"

[batch]
global = 8
seq_len = 4096

[recompute]
mode = "full"

[parallel]
tp = 4
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests before a served dashboard are slow: `make test` needs no browser."""
    for item in items:
        if "served" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """What `--data` names: the scenarios `mine` and MARKUP, and the sweep `bucket-tiny`."""
    place: Path = tmp_path_factory.mktemp("dashboard")
    for name in ("mine", MARKUP):
        (place / f"{name}.toml").write_text(SCENARIO)
    run_sweep(load_sweep(ROOT / "data" / "sweeps" / "bucket-tiny.toml"), place / "bucket-tiny", InProcess())
    return place


@pytest.fixture(scope="session")
def served(folder) -> Iterator[str]:
    """The address of `runcast dashboard --data <folder>`, without a slash at its end."""
    with serving("--data", str(folder)) as address:
        yield address


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """The address of `runcast dashboard` with these options, until the end of the context."""
    port = _free_port()
    runcast = Path(sys.executable).with_name("runcast")
    command = [str(runcast), "dashboard", "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            _until_it_answers(process, address := f"http://127.0.0.1:{port}")
            yield address
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):  # how it ends is the business of test_background
                process.wait(timeout=30)
            process.kill()


@pytest.fixture
def page(browser, served):
    """A page 1440 px wide, whose `goto` takes paths of the dashboard; nothing may go wrong in it by the test's end."""
    context = browser.new_context(viewport={"width": WIDTHS_PX[0], "height": 1000}, base_url=served)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if _stays(request.url, served) else wrong.append(request.url))
    opened.wrong = wrong
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture
def hold_back(page) -> Callable[[str], Any]:
    """`with hold_back(output) as release:` holds back the next question for this output until `release()`; that waits
    for its answer.
    """

    @contextmanager
    def hold(output: str) -> Iterator[Callable[[], None]]:
        held: list[Any] = []

        def asks(request: Any) -> bool:
            return "_dash-update-component" in request.url and output in request.post_data_json["output"]

        def keep(route: Any) -> None:
            if held or not asks(route.request):
                route.fallback()
            else:
                held.append(route)

        def release() -> None:
            with page.expect_response(lambda answer: answer.request == held[0].request):
                held[0].continue_()

        page.route(re.compile("_dash-update-component"), keep)
        with page.expect_request(asks):
            yield release

    return hold


@pytest.fixture
def pictured(page) -> Callable[[str], list[Path]]:
    """`pictured(name)` keeps the page as it stands as out/screenshots/<name>-<width>.png, and says where."""

    def picture(name: str) -> list[Path]:
        PICTURES.mkdir(parents=True, exist_ok=True)
        files = []
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 1000})
            page.wait_for_timeout(400)  # figures are drawn to their new width
            page.screenshot(path=PICTURES / f"{name}-{width}.png", full_page=True)
            files.append(PICTURES / f"{name}-{width}.png")
        page.set_viewport_size({"width": WIDTHS_PX[0], "height": 1000})
        return files

    return picture


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _until_it_answers(process: "subprocess.Popen[str]", address: str) -> None:
    for _ in range(600):
        assert process.poll() is None, process.stdout and process.stdout.read()
        try:
            urlopen(address, timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")


def _stays(url: str, served: str) -> bool:
    return url.startswith(("data:", "blob:")) or urlsplit(url).netloc == urlsplit(served).netloc
