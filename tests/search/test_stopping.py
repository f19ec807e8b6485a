"""A search says how far it is, keeps what it has when it is stopped, and samples what is too large to look at."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from runcast.simulator.answers.search import Wanted, search
from runcast.simulator.answers.search.outputs import lines
from runcast.simulator.answers.search.records import LEFT, REFUSED, SIMULATED, UNSEEN
from runcast.simulator.runner import Died, InProcess

from .small import DENSE

WANTED = Wanted(("1f1b",), {"batch.micro": [1, 2], "parallel.cp": [1], "recompute": [{"mode": "none"}]})


def asked(**options):
    return search(DENSE, wanted=WANTED, check=0, workers=1, **options)


@pytest.mark.slow
def test_progress_tells_both_phases_to_their_ends():
    seen = []

    found = asked(watch=seen.append)

    ends = {one.phase: (one.done, one.total) for one in seen}
    assert (ends["screening"][0], ends["simulating"][0], seen[-1].best) == (
        len(found.rows), ends["simulating"][1], found.rows[found.best[0]],
    )  # fmt: skip


@pytest.mark.parametrize("phase", ["screening", "simulating"])
def test_a_stopped_search_has_what_it_found_and_says_that_this_is_no_proof(phase, monkeypatch):
    monkeypatch.setattr("runcast.simulator.answers.search.explore._BATCH", 2)

    def stop(progress):
        if progress.phase == phase and (progress.best or phase == "screening"):
            raise KeyboardInterrupt

    found = asked(watch=stop)

    said = "the search was stopped" in "\n".join(lines(found))
    assert (found.stopped, found.proved, found.winner is not None, said) == (True, False, phase == "simulating", True)


def test_a_sampled_search_counts_what_it_looked_at_and_is_no_proof():
    found = asked(most=5, budget=4, seed=3)

    counts = found.counts
    assert (found.proved, counts[SIMULATED] <= 4, counts[UNSEEN] > 0, found.winner is not None) == (
        False, True, True, True,
    )  # fmt: skip


@pytest.mark.slow
def test_equal_seeds_sample_equally():
    assert asked(most=5, budget=4, seed=3).rows == asked(most=5, budget=4, seed=3).rows


@pytest.mark.parametrize("options", [{"most": 5}, {"budget": 3}])
def test_without_optuna_the_best_bounds_are_simulated_and_what_to_install_is_said(options, monkeypatch):
    monkeypatch.setattr("runcast.simulator.answers.search.explore.find_spec", lambda name: None)

    found = asked(**options)

    said = "\n".join(lines(found))
    assert ("runcast[search]" in said, "not proved" in said, found.winner is not None, found.proved) == (
        True, True, True, False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_budget_without_optuna_is_spent_on_the_users_plan_and_the_best_bounds(monkeypatch):
    monkeypatch.setattr("runcast.simulator.answers.search.explore.find_spec", lambda name: None)
    found = asked(budget=3)

    rows = [row for row in found.rows if row.floor]
    last = max(row.floor.time_s for row in rows if row.measured and row != found.rows[found.own])

    left = [row for row in rows if row.status == LEFT and row.floor.time_s < last]
    assert (sum(row.measured is not None for row in rows), left) == (3, [])


class Dying(InProcess):
    """Workers die of the first plan that is given to them."""

    def run(self, task, chunks):
        for pairs in super().run(task, chunks):
            yield [(item, Died(3) if item[0] == 0 else result) for item, result in pairs]


@pytest.mark.slow
def test_a_plan_that_workers_die_of_is_refused_and_the_others_are_not(monkeypatch):
    refused = [row.status == REFUSED for row in asked().rows]
    monkeypatch.setattr("runcast.simulator.answers.search.run.InProcess", Dying)

    first, *others = asked().rows

    assert (first.reason, [row.status == REFUSED for row in others]) == (
        "its worker process died 3 times, perhaps for lack of memory", refused[1:],
    )  # fmt: skip


@pytest.mark.slow
def test_sigterm_ends_a_search_as_ctrl_c_does_and_leaves_nothing():
    """Neither processes nor semaphores, of which Python's resource tracker would warn."""
    command = [str(Path(sys.executable).with_name("runcast")), "search", "train-llama3-70b-64xh100", "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(began := psutil.Process(process.pid).children(recursive=True)) < 2 and process.poll() is None:
        time.sleep(0.02)
    time.sleep(1)  # workers are at work
    process.terminate()
    _, error = process.communicate(timeout=300)

    _, left = psutil.wait_procs(began, timeout=20)
    assert (process.returncode, left, "leaked" in error) == (130, [], False)
