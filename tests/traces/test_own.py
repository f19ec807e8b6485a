"""Our own traces read back: a simulation's split survives the way through its trace."""

import json

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.formats.traces import read_run
from runcast.simulator.timeline.trace import write_trace

SMALL = (
    ("train-llama3-70b-64xh100", ("batch.global=16",)),  # tensors and pipeline
    ("train-llama3-8b-8xh100", ()),  # sharded weights
    ("train-qwen3-30b-a3b-16xh100", ("batch.global=32",)),  # experts
    ("train-llama3-8b-8xh100", ("parallel.tp=2", "parallel.cp=2", "parallel.zero=1")),
)


def round_trip(folder, scenario, changes=()):
    """The report of a scenario and its trace as a run."""
    prediction = simulate(f"data/scenarios/{scenario}.toml", changes)
    path = folder / "trace.json.gz"
    write_trace(prediction.timeline, path, prediction.shown_ranks)
    return prediction.report, read_run(path)


@pytest.mark.parametrize(("scenario", "changes"), SMALL)
def test_the_split_of_a_training_step_survives(tmp_path, scenario, changes):
    report, run = round_trip(tmp_path, scenario, changes)

    assert run.split_s == pytest.approx(report.split_s, abs=1e-6)


def test_the_step_survives_to_the_nanosecond(tmp_path):
    report, run = round_trip(tmp_path, "train-llama3-8b-8xh100")

    assert (run.form, run.steps, run.step_s) == ("runcast", (0,), pytest.approx(report.step_time_s, abs=1e-9))


def test_the_split_sums_to_the_step(tmp_path):
    _, run = round_trip(tmp_path, "train-llama3-8b-8xh100")

    assert sum(run.split_s.values()) == pytest.approx(run.step_s, abs=1e-12)


def test_the_lanes_survive(tmp_path):
    prediction = simulate("data/scenarios/train-llama3-8b-8xh100.toml")
    write_trace(prediction.timeline, tmp_path / "trace.json", prediction.shown_ranks)
    program = prediction.timeline.program

    read = {lane.name for lane in read_run(tmp_path / "trace.json").timeline.program.lanes}

    assert read == {lane.name for lane, ops in zip(program.lanes, program.order, strict=True) if len(ops)}


def test_a_weight_update_has_a_timeline_but_no_phases_of_a_step(tmp_path):
    report, run = round_trip(tmp_path, "tiny-2ranks")

    assert (run.split_s, run.timeline.makespan_s) == (None, pytest.approx(report.makespan_s, abs=1e-9))


def test_another_step_is_refused(tmp_path):
    round_trip(tmp_path, "tiny-2ranks")

    with pytest.raises(UserError, match=r"trace\.json\.gz: holds no step 3; it has 0$"):
        read_run(tmp_path / "trace.json.gz", step=3)


def test_a_trace_changed_by_hand_is_one_line(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "a"}], "otherData": {"makespan_s": 1.0}}))

    with pytest.raises(UserError, match=r"^[^\n]*not all is as it was written$"):
        read_run(path)


def test_whole_actions_stay_together(tmp_path):
    report, run = round_trip(tmp_path, "train-llama3-70b-64xh100", ("level=coarse", "batch.global=32"))

    told = {phase: seconds for phase, seconds in report.split_s.items() if phase in ("pipeline", "dp", "optimizer")}

    assert (
        run.notes[1],
        {phase: run.split_s[phase] for phase in told},
        run.split_s["coarse"] + run.split_s["tp"],  # sums over tp after the last action
    ) == (
        "whole actions are not told apart: the simulation's level is coarse",
        pytest.approx(told, abs=1e-6),
        pytest.approx(report.step_time_s - sum(told.values()), abs=1e-6),
    )
