"""How soon the dashboard answers: one user's first page and slider, and 20 users at once.

`python tests/bench/dashboard_sessions.py` starts a server of its own and a Chromium, records what pages send when their
fields are changed, sends the same from 20 sessions with values of their own, and prints a table.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from playwright.sync_api import sync_playwright

SESSIONS, EACH = 20, 4
ANSWERED = "location.search"  # numbers and question come in one response


def main() -> None:
    """Measure and print."""
    address, process = started()
    try:
        rows = [*alone(address)]
        recorded = {"training": record(address, "/training?level=coarse"), "update": record(address, "/update")}
        for page, sent in recorded.items():
            rows.append((f"{SESSIONS} sessions, {page}", many(address, sent)))
    finally:
        process.terminate()
    print(f"{'ms':<44} {'median':>8} {'95 %':>8} {'count':>6}   load {os.getloadavg()[0]:.1f}")
    for name, seconds in rows:
        ordered = sorted(seconds)
        high = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
        print(f"{name:<44} {1e3 * statistics.median(ordered):>8.0f} {1e3 * high:>8.0f} {len(ordered):>6}")


def started() -> "tuple[str, subprocess.Popen[bytes]]":
    """A server on a free port, that answers."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [str(Path(sys.executable).with_name("runcast")), "dashboard", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(300):
        try:
            urlopen(f"http://127.0.0.1:{port}").close()
            break
        except URLError:
            time.sleep(0.1)
    else:
        raise SystemExit("the server does not answer")
    return f"http://127.0.0.1:{port}", process


def browser(tool):
    """A page of a fresh browser: nothing is cached."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    path = os.environ.get("BROWSER_PATH", "/usr/bin/chromium")
    return tool.chromium.launch(executable_path=path, args=flags)


def alone(address: str):
    """One user: pages until fields and numbers stand, and a slider until the number is another."""
    with sync_playwright() as tool:
        opened = browser(tool)
        for name, path, shown in (
            ("first page: its links can be used", "/", "ul.pages"),
            ("/training: fields can be used", "/training", "form.form"),
            ("/update: fields can be used", "/update", "form.form"),
            ("/update: numbers stand", "/update", ".number"),
        ):
            yield name, [opening(opened, address + path, shown) for _ in range(3)]
        yield "/update: the slider of buckets, to the number", slider(opened, address)


def opening(opened, url: str, shown: str) -> float:
    context = opened.new_context()
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_selector(shown)
    took = time.perf_counter() - begun
    context.close()
    return took


def slider(opened, address: str) -> list[float]:
    """From the key that moves the slider to the answer."""
    page = opened.new_page()
    page.goto(f"{address}/update")
    page.wait_for_selector(".number")
    page.wait_for_timeout(3000)
    handle = page.locator('[role="slider"]').first
    found = []
    for _ in range(6):  # each a size that was not asked for before
        before = page.evaluate(ANSWERED)
        begun = time.perf_counter()
        handle.press("ArrowLeft")
        page.wait_for_function(f"before => {ANSWERED} !== before", arg=before, timeout=20_000, polling=5)
        found.append(time.perf_counter() - begun)
        page.wait_for_timeout(4000)  # figures are drawn: one user, who looks at what changed
    return found


def record(address: str, path: str) -> dict:
    """What the browser sends to have the numbers of a page."""
    with sync_playwright() as tool:
        page = browser(tool).new_page()
        sent = []
        page.on("request", lambda request: sent.append(request.post_data) if request.post_data else None)
        page.goto(address + path)
        page.wait_for_selector(".number")
        return next(body for body in map(json.loads, sent) if "-numbers.children" in body["output"])


def many(address: str, sent: dict) -> list[float]:
    """Every session changes a number of its own again and again, and waits for each answer."""

    def session(number: int) -> list[float]:
        return [answer(address, changed(sent, number * EACH + i)) for i in range(EACH)]

    with ThreadPoolExecutor(SESSIONS) as pool:
        return [seconds for found in pool.map(session, range(SESSIONS)) for seconds in found]


def changed(sent: dict, number: int) -> bytes:
    """The request with another batch, or another bucket: no two ask the same."""
    body = json.loads(json.dumps(sent))
    for one in body["inputs"][0]:
        if one["id"].get("key") == "batch.seq_len":
            one["value"] = 1024 + 64 * number
        if one["id"].get("key") == "update.bucket":
            one["value"] = f"{2304 + 8 * number} MiB"  # the largest tensor has 2.19 GiB
    return json.dumps(body).encode()


def answer(address: str, body: bytes) -> float:
    request = Request(f"{address}/_dash-update-component", body, {"Content-Type": "application/json"})
    begun = time.perf_counter()
    with urlopen(request, timeout=60) as response:
        said = response.read()
    took = time.perf_counter() - begun
    assert b"cannot be simulated" not in said, said[:500]
    return took


if __name__ == "__main__":
    main()
