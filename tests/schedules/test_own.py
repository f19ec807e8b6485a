"""A schedule of one's own: its text reads back, what is wrong with it is told, and a step runs it as its own kind."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.pipelines import Pipeline, pipelines, pipelines_of_step
from runcast.simulator.answers.sweep.load import load_sweep
from runcast.simulator.base.files import read_toml
from runcast.simulator.scenario import change
from runcast.simulator.schedules import SCHEDULES, build, load_grid, read_grid

from ..command import runcast

SCENARIO = Path(__file__).parents[2] / "data/scenarios/tiny-train-pp4.toml"
ONE_RANK = sorted(name for name, schedule in SCHEDULES.items() if schedule.copies == 1)


@pytest.fixture
def file(tmp_path):
    """Writes a schedule into a file, and gives its path."""

    def write(text, name="mine.txt"):
        path = tmp_path / name
        path.write_text(str(text))
        return str(path)

    return write


def step(path, *changes):
    return simulate(SCENARIO, [f"schedule.file={path}", *changes])


@given(st.sampled_from(ONE_RANK), st.integers(1, 3), st.integers(1, 2))
def test_the_text_of_any_schedule_reads_back(name, half, times):
    grid = build(name, 2 * half, 4 * half * times, 2 if name.startswith("interleaved") else 1)
    text = "# a comment\n\n" + "\n".join(f"{line}  # rank" for line in str(grid).splitlines())

    assert read_grid(text, name) == grid


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no actions; expected a line for each pipeline rank"),
        ("# nothing\n\n", "holds no actions"),
        ("0F0 0B0\n\n1F0 1X0", "line 3, action 2: '1X0' is no action"),
        ("0F0 0B0 0F1\n1F0 1B0 1F1 1B1", "there are 7: 0B1 is missing"),
        ("0F999999 0B0", "need 2,000,000 actions or more"),
        ("0F9999999 0B0", "'0F9999999' is no action"),
        ("0F0,0F1,0B0,0B1", "line 1, action 1: '0F0,0F1,0B0,0B1' is no action"),
        ("0F0,0F1,0B0,0B1", "with blanks between actions"),
        ("0F99999999999", "'0F99999999999' is no action; expected stage, F, B, I, W and micro-batch, as in 2F4"),
        ("PASSWORD=hunter2", "line 1, action 1: what stands there is no action"),
        ("0F0 0B1\n0F1 0B0", "stage 0 is on ranks 0, 1; expected one rank"),
        ("0F0 0F1 0B0 0B0\n1F0 1B0 1F1 1B1", "stage 0, micro-batch 0: 2xB 1xF; expected one F and one B"),
        ("0F0 0F1 0B1 0B0\n1F1 1B1 1F0 1B0\n", ""),
        ("0F1 0B1 0F0 0B0\n1F0 1B0 1F1 1B1", "deadlock: 2 of 2 ranks are stuck; rank 0 stands at 0B1, which waits"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text, fault):
    try:
        read_grid(text, "mine")
        told = ""
    except ValueError as error:
        told = str(error)

    assert told[: len(fault)] == fault or fault in told
    assert bool(told) is bool(fault)


def test_of_many_faults_the_first_are_told():
    text = "\n".join(" ".join(f"{rank}F{i} {rank}F{i}" for i in range(40)) for rank in range(2))

    with pytest.raises(ValueError, match=r"75 more$"):
        read_grid(text, "mine")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"none\.txt: no such file"):
        load_grid(tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "gpipe"])
def test_a_step_takes_as_long_with_the_text_of_a_schedule_as_with_its_name(file, name):
    by_name, by_text = simulate(SCENARIO, [f"schedule.name={name}"]), step(file(build(name, 4, 8)))

    assert by_text.report.step_time_s == by_name.report.step_time_s
    assert by_text.report.memory == by_name.report.memory
    assert "mine" in by_text.report.question


def test_chunks_are_those_of_the_text(file):
    text = file(build("zb-v", 2, 8))
    changes = ["parallel.pp=2", "batch.global=16"]

    assert (
        step(text, *changes).report.step_time_s
        == simulate(SCENARIO, ["schedule.name=zb-v", *changes]).report.step_time_s
    )


def test_the_hash_is_of_the_actions_not_of_the_name(file):
    text = str(build("zb-h1", 4, 8))
    one, other = (step(file(text, name)).report.scenario_hash for name in ("a.txt", "b.txt"))

    assert one == other == step(file(f"# said why\n{text}\n", "c.txt")).report.scenario_hash
    assert one != step(file(build("zb-h2", 4, 8), "a.txt")).report.scenario_hash


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (["parallel.pp=2"], "has 4 lines, one for each pipeline rank; parallel.pp makes 2"),
        (["batch.global=16"], "has 8 micro-batches; batch makes 16; batch.global = 8 makes 8"),
        (["schedule.vpp=2"], "schedule.vpp = 2: schedule.file says it by itself"),
        (["schedule.name=zb-h1"], "schedule.name = 'zb-h1': schedule.file is given"),
    ],
)
def test_what_a_file_does_not_go_with_is_told(file, changes, fault):
    with pytest.raises(UserError) as refused:
        step(file(build("1f1b", 4, 8)), *changes)

    assert fault in str(refused.value)


def test_a_name_takes_the_place_of_a_file_and_back(file):
    table = change(read_toml(SCENARIO), {"schedule": {"file": file(build("1f1b", 4, 8))}}, "a.toml")

    assert change(table, {"schedule.name": "zb-h1"}, "a.toml")["schedule"] == {"name": "zb-h1"}


def test_a_deadlock_is_one_line_and_exit_2(file):
    rows = str(build("1f1b", 4, 8)).replace("0F0 0F1 0F2 0F3 0B0", "0F0 0B0 0F1 0F2 0F3")
    path = file(rows.replace("1F0 1F1 1F2 1B0", "1F0 1B0 1F1 1F2"))
    done = runcast("simulate", SCENARIO, "--set", f"schedule.file={path}")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        "rank 1 stands at 1B0, which waits for 2B0 of rank 2; rank 2 stands at 2F1, which waits for 1F1" in done.stderr
    )


@pytest.mark.slow
def test_a_sweep_over_files_has_a_point_for_each_and_knows_what_they_hold(file, tmp_path):
    files = [file(build(name, 4, 8), f"{name}.txt") for name in ("1f1b", "zb-h1")]
    (tmp_path / "base.toml").write_text(SCENARIO.read_text())
    said = f'base = "base.toml"\n[[axes]]\nkey = "schedule.file"\nvalues = {[Path(one).name for one in files]}\n'
    (tmp_path / "sweep.toml").write_text(said)
    done = runcast("sweep", tmp_path / "sweep.toml", "--out", tmp_path / "out")
    report = (tmp_path / "out/report.csv").read_text()

    assert (done.returncode, report.count(",ok,")) == (0, 2)

    before = load_sweep(tmp_path / "sweep.toml").digest
    file(build("gpipe", 4, 8), "1f1b.txt")

    assert load_sweep(tmp_path / "sweep.toml").digest != before


def test_alone_the_bubble_of_1f1b_is_its_closed_form(file):
    (found,), left = pipelines([file(build("1f1b", 4, 8))], None, None)

    assert (found.bubble, found.peak, found.sends, left) == (pytest.approx(3 / 11), 4, 48, [])


def test_a_file_with_other_sizes_than_the_options_say_is_refused(file):
    path = file(build("1f1b", 4, 8))
    assert pipelines([path, "1f1b"], 4, 8)[0][1].grid == build("1f1b", 4, 8)
    with pytest.raises(UserError, match=r"--microbatches = 6: .*mine\.txt has 8: leave the option out"):
        pipelines([path, "1f1b"], None, 6)


def test_an_unknown_schedule_is_told_before_sizes_are_asked_for():
    with pytest.raises(UserError, match="schedule 'zb-h3'; known: gpipe, 1f1b"):
        pipelines(["1f1b", "zb-h3"], None, None)


def test_all_schedules_stand_beside_each_other_in_one_unit():
    found, left = pipelines([], 8, 24)
    makespans = {one.name: 2 * one.dry.makespan for one in found}  # docs/schedules.md has F = 2

    assert (makespans["1f1b"], makespans["interleaved"], makespans["dualpipe"], makespans["zb-v"]) == (
        186,
        165,
        156,
        151,
    )
    assert left == []


def test_schedules_of_a_step_are_ranked_and_those_that_do_not_go_with_it_say_why(file):
    table = change(read_toml(SCENARIO), {"schedule.file": file(build("gpipe", 4, 8))}, "a.toml")
    found, left = pipelines_of_step([], table, "a.toml")
    seconds = [one.report.step_time_s for one in found]

    assert seconds == sorted(seconds)
    assert "mine, the scenario's" in [one.name for one in found]
    assert all(isinstance(one, Pipeline) for one in found)
    assert {one.name for one in left} >= {"interleaved", "zb-v"}
