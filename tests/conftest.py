import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest
from hypothesis import settings
from runcast.simulator.base.memo import collect_seldom

from .examples import examples
from .once import once

settings.register_profile("unhurried", examples(100), deadline=None)  # a busy machine is no fault of ours
settings.load_profile("unhurried")

collect_seldom()  # as the command does

NEEDS = "needs Debian package"
UNTIL_S = float(os.environ.get("RUNCAST_TESTS_UNTIL", "inf"))  # since 1970: .ci/run has no time for tests after that


def pytest_runtest_setup(item):
    if time() > UNTIL_S:
        pytest.skip("no time left")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _no_missing_package_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _no_missing_package_in_ci((yield))


def _no_missing_package_in_ci(report):
    """Where RUNCAST_CI is set, a test that skips for a Debian package fails: it would pretend to have been run."""
    if os.environ.get("RUNCAST_CI") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith(NEEDS):
            report.outcome, report.longrepr = "failed", f"{report.nodeid}: {reason}"
    return report


@pytest.fixture(scope="session")
def simgrid() -> Callable[[Path | str, Any], Any]:
    """`simgrid(script, data)`: what the script prints as JSON, given `data` as JSON on stdin.

    The bindings are built for Debian's own Python, which this one cannot load: the script runs there, with SimGrid and
    the standard library only.
    """
    python = "/usr/bin/python3"
    found = shutil.which(python) and subprocess.run([python, "-I", "-c", "import simgrid"], capture_output=True)
    if not found or found.returncode:
        pytest.skip(f"{NEEDS} python3-simgrid")

    def run(script: Path | str, data: Any) -> Any:
        given = json.dumps(data)
        done = subprocess.run([python, "-I", str(script)], input=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """The path of a Chromium, which kaleido finds too (BROWSER_PATH) as long as the fixture lives."""
    path = os.environ.get("BROWSER_PATH") or shutil.which("chromium")
    if not path:
        pytest.skip(f"{NEEDS} chromium")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER_PATH", path)
        yield path


FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium for all tests of a process; what is expected of a page may take as long as anything else in it."""
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect.set_options(timeout=30_000)
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def update_ledger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The shipped ledger of weight updates with all its rows predicted: once for all who read it."""
    from runcast.simulator.answers.validate import read_ledger
    from runcast.simulator.runner import InProcess

    return once(tmp_path_factory, "ledger of weight updates", lambda _: read_ledger(runner=InProcess()))


@pytest.fixture(scope="module")
def unfitted() -> Iterator[None]:
    """Numbers as profiles and stacks state them: what ledgers moved is no part of closed forms."""
    from runcast.simulator.profile import load

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "fitted_parameters", _none_fitted)
        yield


def _none_fitted(folder: str = "stacks") -> dict[str, Any]:
    return {}
