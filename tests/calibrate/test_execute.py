"""Real processes: what they do must be what the Program says, and every byte must arrive."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

import torch
from runcast.calibrate.execute.backend import Backend
from runcast.simulator.answers.compare.spans import compare, ops_of_one_side, read_spans, simulate_spans, unfold

from ..command import runcast
from ..once import once
from .ranks import CASES, FOURS, TRAINERS

ROOT = Path(__file__).parents[2]
TINY = {n: ROOT / f"data/scenarios/tiny-{n}ranks.toml" for n in (2, 4)}
TINY_P2P = ROOT / "data/scenarios/tiny-p2p.toml"
TINY_HEADS = ROOT / "data/scenarios/tiny-stage-heads.toml"
TINY_COLOCATED = ROOT / "data/scenarios/tiny-colocated.toml"
RUNCAST = str(Path(sys.executable).with_name("runcast"))
NEEDS_MEMFD = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="P2P is executed on Linux only")
NO_RANKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def run(*command, **env):
    clean = {key: value for key, value in os.environ.items() if key not in NO_RANKS}
    return subprocess.run([str(word) for word in command], env=clean | env, capture_output=True, text=True, timeout=300)


def torchrun(ranks, *command):
    return run(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *command)


@pytest.fixture
def execute(monkeypatch):
    """`execute(*arguments, RANK="0", ...)`: the verb in this process, on a rank or on none."""

    def started(*arguments, **env):
        for name in NO_RANKS:
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return runcast("execute", *arguments)

    return started


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """All updates by parameter servers on two ranks, once."""
    return run_set(2, "servers", TINY[2], tmp_path_factory)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """All updates from trainers on four ranks, once."""
    return run_set(4, "trainers", TINY_HEADS, tmp_path_factory)


@pytest.fixture(scope="module")
def fours(tmp_path_factory):
    """Updates by parameter servers on four ranks, once."""
    return run_set(4, "fours", TINY[4], tmp_path_factory)


def run_set(ranks, name, scenario, factory):
    def made(folder):
        done = torchrun(ranks, Path(__file__).with_name("ranks.py"), folder, scenario, name)
        assert done.returncode == 0, done.stderr
        return folder

    return once(factory, f"updates by {name}", made)


def check_run(folder, resolved, checked):
    """The run in the folder did what the Program says."""
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["tensors_checked"], summary["tensors_wrong"]) == (checked, 0)
    spans, program = read_spans(folder), resolved.program
    check_complete(spans, program)
    check_lanes(spans, program)
    check_dependencies(spans, program)
    compared = compare(spans, simulate_spans(resolved))
    assert ops_of_one_side(compared) == {"simulated": [], "measured": []}
    assert compared["measured_s"].ge(0).all()


def check_complete(spans, program):
    """One row per op and lane that it holds, with the op's name, kind and bytes."""
    lanes = [
        (op, program.places[program.lanes[lane].place].ranks[0], program.lanes[lane].name)
        for op in range(len(program))
        for lane in program.lanes_of[op]
    ]
    assert sorted(zip(spans["op"], spans["rank"], spans["lane"], strict=True)) == sorted(lanes)
    assert spans["name"].tolist() == [program.names[op] for op in spans["op"]]
    assert spans["kind"].tolist() == [program.kind_of(op) for op in spans["op"]]
    assert spans["bytes"].tolist() == program.bytes[spans["op"]].tolist()


def check_lanes(spans, program):
    for lane, order in zip(program.lanes, program.order, strict=True):
        here = spans[(spans["rank"] == program.places[lane.place].ranks[0]) & (spans["lane"] == lane.name)]
        by_start = here.sort_values("start_s", kind="stable")
        assert by_start["op"].tolist() == order.tolist()
        assert (by_start["start_s"].to_numpy()[1:] >= by_start["end_s"].to_numpy()[:-1]).all()


def check_dependencies(spans, program):
    """On each rank a part starts after its own part in what it waits for. Between ranks an op starts (a gang's last
    member joins) after what one other rank did for it; of a gang, each rank has its own end.
    """
    assert (spans["start_s"] >= spans["ready_s"]).all()
    assert (spans["end_s"] >= spans["start_s"]).all()
    part = spans.drop_duplicates(["op", "rank"]).set_index(["op", "rank"])
    whole = spans.groupby("op")[["start_s", "end_s"]].max()
    for op in range(len(program)):
        for dep in program.deps[op].tolist():
            assert len(program.ranks_of(dep)) > 1 or whole["start_s"][op] >= whole["end_s"][dep]
            for rank in set(program.ranks_of(op)) & set(program.ranks_of(dep)):
                assert part["ready_s"][op, rank] >= part["end_s"][dep, rank]


@pytest.mark.slow
def test_an_update_started_by_the_command_itself_is_what_happened(execute, tmp_path):
    done = execute(TINY[2], "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    resolved = unfold(TINY[2])
    check_run(tmp_path / "out", resolved, checked=2 * len(resolved.weights))


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if not name.endswith("corrupt")])
def test_the_program_is_what_happened(cases, case):
    resolved = unfold(TINY[2], CASES[case])
    assert resolved.plan.buckets.rounds >= 2
    check_run(cases / case, resolved, checked=resolved.plan.listed * len(resolved.weights))


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in TRAINERS if not name.endswith("corrupt")])
def test_an_update_from_trainers_is_what_happened(trained, case):
    resolved = unfold(TINY_HEADS, TRAINERS[case])
    assert resolved.plan.rounds >= 2
    check_run(trained / case, resolved, checked=len(resolved.plan.receivers) * len(resolved.weights))


@pytest.mark.slow
def test_bytes_spoiled_between_trainers_and_engines_are_found(trained):
    """Each trainer flips a bit of its stage's first tensor; engines flip the first stage's back when they load it."""
    summary = json.loads((trained / "stage_heads_corrupt" / "summary.json").read_text())
    names = {name.partition(" on rank ")[0] for name in summary["first_wrong"]}
    assert (summary["tensors_wrong"], len(names)) == (2, 1)
    assert set(summary["first_wrong"]) == {f"{name} on rank {rank}" for name in names for rank in (2, 3)}


@pytest.mark.slow
@NEEDS_MEMFD
def test_bytes_spoiled_before_a_one_sided_write_are_found(trained):
    """Two trainers, each with the first byte of a tensor of its stage: it is in the half that rank 2 keeps."""
    summary = json.loads((trained / "replica_writes_corrupt" / "summary.json").read_text())
    assert [name.rpartition(" ")[2] for name in summary["first_wrong"]] == ["2", "2"]


@pytest.mark.slow
def test_a_spoiled_byte_is_found(cases):
    """Every rank spoils its first bucket once: each finds the wrong tensors."""
    summary = json.loads((cases / "corrupt" / "summary.json").read_text())
    assert summary["tensors_wrong"] == len(summary["first_wrong"]) > 0
    assert {name.rpartition(" ")[2] for name in summary["first_wrong"]} == {"0", "1"}


@pytest.mark.slow
@NEEDS_MEMFD
def test_a_byte_spoiled_on_its_way_from_the_owner_is_found(cases):
    """Both ranks spoil what they read first, the first byte of a tensor: two are wrong, on both ranks."""
    summary = json.loads((cases / "p2p_corrupt" / "summary.json").read_text())
    names = {name.partition(" on rank ")[0] for name in summary["first_wrong"]}
    assert (summary["tensors_wrong"], len(names)) == (4, 2)
    assert set(summary["first_wrong"]) == {f"{name} on rank {rank}" for name in names for rank in (0, 1)}


def test_wrong_bytes_are_exit_code_1(execute, monkeypatch):
    """Through three copies (to the device, to the half, out of it) each byte is wrong in its last bit."""
    alone = ["cluster.gpus_per_node=1", "update.inference.tp=1"]
    world = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    flags = [flag for change in alone for flag in ("--set", change)]
    monkeypatch.setattr(Backend, "copy", lambda self, target, source: target.copy_(source ^ 1))

    done = execute(TINY[2], *flags, **world)

    assert done.returncode == 1
    assert "135 tensors checked, 135 wrong" in done.stdout
    assert done.stderr.startswith("error: 135 tensors hold wrong values: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_clocks_by_ping_pong_agree_with_the_common_one(cases):
    (exact_0, asked_0), (exact_1, asked_1) = pairs(ast.literal_eval((cases / "clocks").read_text()))
    assert exact_0 == asked_0 == exact_1 == (0, 0)
    offset_ns, bound_ns = asked_1
    assert abs(offset_ns) <= bound_ns < 1e9


def pairs(values):
    return list(zip(values[::2], values[1::2], strict=True))


@pytest.mark.slow
def test_four_ranks_under_torchrun(tmp_path):
    done = torchrun(4, "--no-python", RUNCAST, "execute", TINY[4], "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    resolved = unfold(TINY[4])
    assert "221 ops on 4 ranks; 540 tensors checked, 0 wrong" in done.stdout
    check_run(tmp_path / "out", resolved, checked=4 * len(resolved.weights))


@pytest.mark.slow
def test_uneven_owners_and_odd_sizes(fours):
    """Five tensors: ranks 0 and 1 own two each, rank 2 the last one, rank 3 none."""
    resolved = unfold(TINY[4], FOURS["uneven"])
    assert resolved.plan.buckets.owner.tolist() == [0, 1, 2, 0]
    check_run(fours / "uneven", resolved, checked=20)


@pytest.mark.slow
def test_a_rank_may_own_nothing(fours):
    """Three tensors on four ranks: the last rank has nothing to send, and receives everything."""
    resolved = unfold(TINY[4], FOURS["owns_nothing"])
    assert resolved.plan.buckets.owner.tolist() == [0, 1, 2]
    check_run(fours / "owns_nothing", resolved, checked=12)


@pytest.mark.slow
@NEEDS_MEMFD
def test_owners_that_are_not_listed_are_read_without_a_part_in_it(fours):
    out, resolved = fours / "two_of_four_listed", unfold(TINY_P2P)
    check_run(out, resolved, checked=2 * len(resolved.weights))
    spans = read_spans(out)
    assert set(spans[spans["rank"] >= 2]["kind"]) == {"gather_metas"}
    reads = spans[spans["kind"] == "read"].drop_duplicates("op")
    assert {name.rpartition(" from ")[2] for name in reads["name"]} == {"r0", "r1", "r2", "r3"}
    done = runcast("compare", out, TINY_P2P)
    assert "only in simulated: 0 spans\nonly in measured: 0 spans" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", [TINY_HEADS, pytest.param(TINY_COLOCATED, marks=NEEDS_MEMFD)], ids=["heads", "colocated"]
)
def test_updates_from_trainers_by_the_command_itself(tmp_path, scenario):
    done = run(RUNCAST, "execute", scenario, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    resolved = unfold(scenario)
    check_run(tmp_path / "out", resolved, checked=len(resolved.plan.receivers) * len(resolved.weights))
    done = runcast("compare", tmp_path / "out", scenario)
    assert "only in simulated: 0 spans\nonly in measured: 0 spans" in done.stdout, done.stderr


@pytest.mark.slow
def test_odd_tensors_split_unevenly_over_trainers_and_engines(trained):
    """Five tensors over two trainers of one stage, an engine of two: no half is a whole number of bytes."""
    resolved = unfold(TINY_HEADS, TRAINERS["odd_halves"])
    assert set(resolved.weights.nbytes % 2) == {1}
    check_run(trained / "odd_halves", resolved, checked=10)


@pytest.mark.slow
@NEEDS_MEMFD
def test_all_of_four_ranks_listed(fours):
    resolved = unfold(TINY_P2P, ["update.ranks=4"])
    check_run(fours / "four_of_four_listed", resolved, checked=4 * len(resolved.weights))


@pytest.mark.slow
def test_wrong_number_of_ranks():
    """One line of ours; then torchrun's own block, which refers to it."""
    done = torchrun(2, "--no-python", RUNCAST, "execute", TINY[4])
    lines = done.stderr.splitlines()
    ours = [i for i, line in enumerate(lines) if line.startswith("error:")]
    assert [lines[i] for i in ours] == [f"error: {TINY[4]}: has 4 GPUs, but 2 ranks were started"]
    assert "see the line of runcast above" in "".join(lines[ours[0] + 1 :])
    assert done.returncode != 0  # torchrun's own


def test_exit_code_of_wrong_number_of_ranks(execute, tmp_path):
    done = execute(TINY[4], "--out", tmp_path / "out", RANK="0", WORLD_SIZE="3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {TINY[4]}: has 4 GPUs, but 3 ranks were started\n"
    assert not (tmp_path / "out").exists()


def test_cuda_is_asked_for_and_needs_a_gpu_per_rank(execute):
    if (found := torch.cuda.device_count()) > 1:
        pytest.skip("has a GPU for each of two ranks")
    done = execute(TINY[2], "--device", "cuda")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --device cuda: 2 ranks on this machine need a GPU each, but torch finds {found}\n"


def test_mistakes_are_found_before_anything_starts(execute):
    done = execute(TINY[4], "--set", "update.pipeline=fast")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.slow
def test_spans_are_those_of_a_timeline(cases):
    columns = ["rank", "lane", "op", "name", "kind", "ready_s", "start_s", "end_s", "bytes"]
    assert pd.read_csv(cases / "two_stage" / "spans.csv").columns.tolist() == columns
