"""The suite as users start it: real processes, real Gloo, and cases that misbehave."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.records import read_records, visits_in

from .launching import CALIBRATE, environment

RUN = [*CALIBRATE, "run", "--device", "cpu", "--cases", "misbehaving", "--rounds", "1"]


def alone(*arguments):
    command = [*RUN, *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)


class Ranks:
    """The ranks of a run as srun would start them: nobody else looks after them."""

    def __init__(self, ranks, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = environment(
            WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port
        )
        command = [*RUN, *map(str, arguments)]
        self.processes = [
            subprocess.Popen(
                command, env=shared | {"RANK": str(r), "LOCAL_RANK": str(r)}, stderr=subprocess.PIPE, text=True
            )
            for r in range(ranks)
        ]

    def end(self, timeout_s=120):
        """Exit codes and what each has said."""
        said = [process.communicate(timeout=timeout_s)[1] for process in self.processes]
        return [process.returncode for process in self.processes], said


def by_name(path):
    records = [record for record in read_records(path) if record["group"] != "environment"]
    return {record["case"]: record for record in records}


def wait_for_records(path, count):
    until = time.monotonic() + 60
    while not path.exists() or len(path.read_text().splitlines()) < 1 + count:
        assert time.monotonic() < until, "nothing was measured"
        time.sleep(0.05)


def worker_of(process):
    """The process that a supervisor has started."""
    (worker,) = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    return Path("/proc", worker)


def all_end(workers):
    """Whether all of these processes end soon."""
    until = time.monotonic() + 15
    while any(worker.exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(worker.exists() for worker in workers)


@pytest.mark.slow
def test_a_good_case_is_measured(tmp_path):
    out = tmp_path / "s.jsonl"
    done = alone("--out", out, "--only", "misbehaving/good")
    found = by_name(out)
    assert (done.returncode, list(found), len(found["good"]["samples"]) >= 5) == (0, ["good"], True), done.stderr


@pytest.mark.slow
def test_a_bad_case_is_recorded_and_the_suite_goes_on(tmp_path):
    out = tmp_path / "s.jsonl"
    done = alone("--out", out, "--only", "misbehaving", "--timeout-s", 15)
    assert done.returncode == 0, done.stderr
    found = by_name(out)
    assert {name: record.get("error") for name, record in found.items()} == {
        "good": None,
        "fails": "RuntimeError: nobody likes this",
        "hangs": "timed out after 15 s",
        "crashes": "its worker was killed by SIGABRT",
    }
    assert "6 visits of cases" in done.stderr
    assert "misbehaving    3 cases measured, 3 failed" in done.stderr


@pytest.mark.slow
def test_on_several_ranks_all_go_on_alike(tmp_path):
    out = tmp_path / "s.jsonl"
    codes, said = Ranks(2, "--out", out, "--only", "misbehaving", "--timeout-s", 15).end()
    assert codes == [0, 0], said
    found = by_name(out)
    assert {name: record.get("error") for name, record in found.items()} == {
        "good": None,
        "good_together": None,
        "fails_on_one": "rank 1: RuntimeError: rank 1 does not like this",
        "fails": "RuntimeError: nobody likes this",
        "hangs": "rank 0: timed out after 15 s",
        "crashes": "rank 0: its worker was killed by SIGABRT",
    }
    assert len(found["good_together"]["samples"]) >= 5
    assert read_records(out)[0]["nodes"] == [[0, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_all_with_a_clear_line_and_a_restart_resumes(tmp_path, victim):
    out = tmp_path / "s.jsonl"
    flags = ("--out", out, "--only", "slow", "--silence-s", 4)
    ranks = Ranks(2, *flags)
    wait_for_records(out, 3)
    workers = [worker_of(process) for process in ranks.processes]
    ranks.processes[victim].kill()
    killed = time.monotonic()
    codes, said = ranks.end(timeout_s=30)
    assert time.monotonic() - killed < 15
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] == 1
    lost = f"rank {victim} has been silent for 4 s and is lost"
    gone = "the store of rank 0 or of the launcher is gone"
    assert (lost if victim else gone) in said[1 - victim]
    assert "the same command goes on where it stopped" in said[1 - victim]
    assert all_end(workers)
    before = out.read_text().splitlines()
    assert len(before) >= 4

    codes, said = Ranks(2, *flags).end()
    assert codes == [0, 0], said
    records = read_records(out)
    assert out.read_text().splitlines()[: len(before)] == before
    assert len(records) - 1 == len(visits_in(records)) == 40
    assert f"{40 - (len(before) - 1)} visits of cases" in said[0]


@pytest.mark.slow
def test_a_worker_ends_with_its_supervisor(tmp_path):
    out = tmp_path / "s.jsonl"
    process = subprocess.Popen(
        [*RUN, "--out", str(out), "--only", "slow"], env=environment(), stderr=subprocess.DEVNULL
    )
    wait_for_records(out, 1)
    worker = worker_of(process)
    process.kill()
    process.wait()
    assert all_end([worker])


@pytest.mark.slow
def test_interrupting_keeps_what_is_done(tmp_path):
    out = tmp_path / "s.jsonl"
    process = subprocess.Popen(
        [*RUN, "--out", str(out), "--only", "slow"], env=environment(), stderr=subprocess.PIPE, text=True
    )
    wait_for_records(out, 2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "error: interrupted; the same command goes on where it stopped" in said
    assert len(read_records(out)) >= 3


@pytest.mark.slow
def test_a_limit_stops_in_time_and_says_what_is_left(tmp_path):
    out = tmp_path / "s.jsonl"
    done = alone("--out", out, "--only", "slow", "--limit-min", 0.08)
    assert done.returncode == 0, done.stderr
    measured = len(read_records(out)) - 1
    assert 0 < measured < 40
    assert f"{40 - measured} visits are left" in done.stderr


@pytest.mark.slow
def test_a_file_of_another_machine_is_refused(tmp_path):
    out = tmp_path / "s.jsonl"
    environment_record = {"group": "environment", "suite": 1, "gpu": "NVIDIA H100 80GB HBM3"}
    out.write_text(json.dumps(environment_record) + "\n")
    done = alone("--out", out, "--only", "slow")
    assert done.returncode == 2
    assert (
        f"error: {out}: was measured with gpu = NVIDIA H100 80GB HBM3, here it is CPU; name another --out"
        in done.stderr
    )
    assert json.loads(out.read_text()) == environment_record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--only", "gemmm"], "--only = 'gemmm': names no case; families here: "),
        (["--cases", "no_such_module"], "--cases = 'no_such_module': expected an importable module with cases(facts)"),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, told):
    done = alone("--out", tmp_path / "s.jsonl", *flags)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {told}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_runs_do_not_write_one_file(tmp_path):
    out = tmp_path / "s.jsonl"
    command = [*RUN, "--out", str(out), "--only", "slow"]
    first = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for_records(out, 1)
        os.killpg(first.pid, signal.SIGSTOP)  # it must not end before the second starts, on a machine however slow
        second = alone("--out", out, "--only", "slow")
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert second.returncode == 2
    assert f"error: {out}: another run is writing it" in second.stderr


@pytest.mark.slow
def test_an_out_that_cannot_be_opened_is_one_line(tmp_path):
    done = alone("--out", "/dev/full/s.jsonl", "--only", "slow")
    assert done.returncode == 2
    assert "error: --out = '/dev/full/s.jsonl': " in done.stderr


@pytest.mark.slow
def test_a_second_failure_on_one_rank_keeps_its_reason(tmp_path):
    """With this seed `fails` comes before `fails_on_one`."""
    out = tmp_path / "s.jsonl"
    flags = ("--out", out, "--only", "misbehaving/fails*", "--timeout-s", 25, "--seed", 6)
    codes, said = Ranks(2, *flags).end(timeout_s=60)
    assert codes == [0, 0], said
    assert by_name(out)["fails_on_one"]["error"] == "rank 1: RuntimeError: rank 1 does not like this"


@pytest.mark.slow
def test_a_store_that_stops_answering_ends_all(tmp_path):
    """As on a power cut: rank 0 holds the store, and says nothing any more, not even goodbye."""
    out = tmp_path / "s.jsonl"
    ranks = Ranks(2, "--out", out, "--only", "slow", "--silence-s", 3)
    wait_for_records(out, 2)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    try:
        _, said = ranks.processes[1].communicate(timeout=30)
    finally:
        ranks.processes[0].kill()
        ranks.processes[0].wait()
    assert ranks.processes[1].returncode == 1
    assert "rank 0 has been silent for 3 s" in said or "does not answer" in said


@pytest.mark.slow
def test_a_worker_that_has_just_started_ends_with_its_supervisor(tmp_path):
    """It is killed while the worker still imports torch."""
    process = subprocess.Popen([*RUN, "--out", str(tmp_path / "s.jsonl")], env=environment(), stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 30
    while not children.read_text() and time.monotonic() < until:
        time.sleep(0.01)
    worker = worker_of(process)
    process.kill()
    process.wait()
    assert all_end([worker])
