"""`runcast execute` of a scenario of kind collective: its table, its file, and what cannot be executed."""

import json

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from ..command import runcast
from .test_execute import NO_RANKS, RUNCAST, run

SCENARIO = """
name = "all-reduce on a host's cores, 2 ranks"
kind = "collective"
cluster = { base = "cpu-host", gpus_per_node = 2 }
stack = "execute-gloo"
[collective]
op = "all_reduce"
sizes = ["1 KiB", "64 KiB"]
algorithm = "ring"
"""


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    for name in NO_RANKS:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            ["collective.op=all_gather", "collective.placement=interleaved"],
            "collective.op = 'all_gather': ranks that interleave leaves execute all_reduce only",
        ),
        (["collective.root=1"], "collective.root = 1: is for broadcast, reduce, gather, scatter (op = 'all_reduce')"),
    ],
)
def test_what_is_not_executed_is_one_line(scenario, changes, line):
    done = runcast("execute", scenario, *(word for change in changes for word in ("--set", change)))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {scenario}: {line}\n")


def test_too_little_memory_is_told_before_processes_start(scenario):
    done = runcast("execute", scenario, "--set", "collective.sizes=1024 TiB")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "collective.sizes = 1125899906842624: 2 processes here need" in done.stderr


def test_collectives_run_on_gloo_only(scenario):
    done = runcast("execute", scenario, "--device", "cuda")
    assert (done.returncode, done.stderr) == (2, "error: --device cuda: collectives are executed on Gloo only\n")


def test_the_wrong_number_of_processes_is_told(scenario, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    done = runcast("execute", scenario)
    assert done.stderr == f"error: {scenario}: takes 2 ranks and 0 switches, but 3 processes were started\n"


@pytest.mark.slow
def test_every_size_is_run_checked_and_saved(scenario, tmp_path):
    done = run(RUNCAST, "execute", scenario, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/summary.json").read_text())
    assert [(row["bytes"], row["algorithm"], row["wrong"], len(row["runs_s"])) for row in found["rows"]] == [
        (1024, "ring", 0, 5), (65536, "ring", 0, 5),
    ]  # fmt: skip
    assert len(done.stdout.splitlines()) == 1 + 2 + 1


@pytest.mark.slow
def test_groups_run_at_the_same_time_each_with_numbers_of_its_own(scenario, tmp_path):
    """Ranks 0 and 2, and 1 and 3: a broadcast in each, from its second rank."""
    changes = (
        "cluster.gpus_per_node=4",
        "collective.groups=2",
        "collective.placement=rails",
        "collective.op=broadcast",
        "collective.root=1",
        "collective.algorithm=all",
    )
    done = run(
        RUNCAST, "execute", scenario, "--out", tmp_path / "out", *(word for one in changes for word in ("--set", one))
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out/summary.json").read_text())["rows"]
    assert {row["wrong"] for row in rows} == {0}
    assert {row["algorithm"] for row in rows} >= {"chain", "binomial"}
