"""Long work of a page ends with its server, however that ends, and leaves nothing behind."""

import os
import signal
import sys
from contextlib import suppress
from subprocess import PIPE, Popen

import pytest
from runcast.dashboard.background import Pace, Spawning

SERVER = """
from runcast.dashboard import background, verbs

def job(*_):
    import time
    print("at work", flush=True)
    time.sleep(300)

class Working(background.Spawning):
    def __enter__(self):
        self.call_job_fn("key", job, (), {})
        return super().__enter__()

background.Spawning = Working
verbs.dashboard(port=0)
"""
"""`runcast dashboard` on any free port, with a job that lasts."""


@pytest.fixture
def ended(tmp_path):
    """`ended(number)`: the exit code of a server that gets a signal while its job is at work, when both have ended."""

    def end(number: signal.Signals) -> int:
        place = {**os.environ, "TMPDIR": str(tmp_path)}
        with Popen([sys.executable, "-c", SERVER], stdout=PIPE, text=True, env=place, start_new_session=True) as server:
            assert server.stdout is not None
            try:
                while server.stdout.readline() not in ("at work\n", ""):
                    pass
                server.send_signal(number)
                server.communicate(timeout=300)  # the job writes to the same pipe: it stays open as long as it lives
            finally:
                with suppress(ProcessLookupError):  # as it should be
                    os.killpg(server.pid, signal.SIGKILL)
        return server.returncode

    return end


@pytest.mark.slow
def test_sigterm_ends_jobs_and_leaves_no_folder(ended, tmp_path):
    assert (ended(signal.SIGTERM), list(tmp_path.iterdir())) == (0, [])


@pytest.mark.slow
def test_jobs_end_with_a_server_that_is_killed(ended):
    assert ended(signal.SIGKILL) == -signal.SIGKILL


def test_what_is_left_follows_from_the_pace():
    clock = iter([0.0, 10.0, 20.0, 30.0])
    pace = Pace(lambda: next(clock))

    assert [pace.left(done, 10) for done in (2, 4, 6, 10)] == ["", ", about 30 s left", ", about 20 s left", ""]


def test_equal_work_of_two_tabs_has_keys_of_its_own():
    with Spawning() as background:
        keys = {background.build_cache_key(Pace.left, [1], [], []) for _ in range(2)}

    assert len(keys) == 2
