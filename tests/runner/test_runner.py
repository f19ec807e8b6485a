"""Running tasks: every item gets its result, whichever worker dies."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runcast.simulator.base.memo import Memo
from runcast.simulator.runner import Died, InProcess, Processes, keep_memo


def square(item, memo):
    """What workers of these tests do; an item below zero kills its worker."""
    if item < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.fixture
def task(monkeypatch):
    """`square` by a name under which workers find it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sys.modules.pop("test_runner", None)
    import test_runner

    return test_runner.square


def results(runner, task, *chunks):
    return dict(pair for pairs in runner.run(task, iter(chunks)) for pair in pairs)


def test_every_item_has_its_result(task):
    with InProcess() as here, Processes(2) as there:
        assert (results(here, task, [1, 2], [3]), results(there, task, [1, 2], [3])) == ({1: 1, 2: 4, 3: 9},) * 2


def test_an_item_that_kills_its_workers_is_given_up_and_the_next_run_has_new_ones(task):
    with Processes(2) as runner:
        first = results(runner, task, [1, -1], [2], [3])
        second = results(runner, task, [4])

    assert (first, second) == ({1: 1, -1: Died(3), 2: 4, 3: 9}, {4: 16})


def test_a_thread_of_a_worker_keeps_one_memo_for_a_run():
    def ask(run: str) -> Memo:
        return keep_memo(run, lambda item, memo: memo, [0])[0]

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first, again, new = (one.submit(ask, run).result() for run in ("a", "a", "b"))
        elsewhere = other.submit(ask, "a").result()

    assert (again is first, new is first, elsewhere is first) == (True, False, False)


SCRIPT = """
from operator import is_not
from runcast.simulator.runner import Processes
with Processes(2) as runner:
    print(sum(result for pairs in runner.run(is_not, iter([[1], [2]])) for _, result in pairs))
"""


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_workers_do_not_run_the_script_again(tmp_path, source):
    """It has no `if __name__ == "__main__"`, and from stdin it is no file."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    words = [str(file)] if source == "file" else []
    done = subprocess.run([sys.executable, *words], input=SCRIPT, capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("2\n", "")


def test_threads_that_start_workers_at_once_leave_the_main_module_alone(task):
    main = sys.modules["__main__"]

    def run(item):
        with Processes(1) as runner:
            return results(runner, task, [item])

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(run, range(4)))

    assert (found, sys.modules["__main__"] is main) == ([{n: n * n} for n in range(4)], True)
