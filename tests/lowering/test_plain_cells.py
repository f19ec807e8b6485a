"""Cells to which nothing hangs on but sends, written all at once, are those that are written one by one; so are actions
of equal stages, written once.
"""

import numpy as np
import pytest
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.lower import coarse, lower
from runcast.simulator.systems.train_step.lower.actions import ActionWriter, Written
from runcast.simulator.systems.train_step.lower.step import Step
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

MODEL = {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 16}}
SCHEDULES = {
    "gpipe": {},
    "1f1b": {},
    "interleaved": {"vpp": 2},
    "interleaved-overlap": {"vpp": 2},
    "zb-h1": {},
    "zb-v": {},
    "v-half": {},
    "dualpipe": {},
    "dualpipe-v": {},
}


def plan(schedule, **tables):
    given = {
        "kind": "train_step", "cluster": "dgx-h100", "nodes": 4, "model": MODEL,
        "parallel": {"pp": 4, "ep": 8}, "batch": {"global": 64, "seq_len": 1024},
        "schedule": {"name": schedule, **SCHEDULES[schedule]},
    }  # fmt: skip
    return ResolvedTrain(check_train(given | tables)).plan


def columns(program):
    arrays = (program.kind, program.bytes, program.dtype, program.group, *program.tags.values())
    rows = (program.shape, program.order, program.accesses)
    deps = [sorted(set(row.tolist())) for row in program.deps]
    return (
        [array.tolist() for array in arrays], [(row.start.tolist(), row.values.tolist()) for row in rows], deps,
        program.lanes, program.buffers, program.kinds, program.groups, list(program.names),
    )  # fmt: skip


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_is_what_it_is_one_by_one(monkeypatch, schedule, overlap):
    given = plan(schedule, overlap={"pp": overlap})
    at_once = lower(given)
    monkeypatch.setattr(Step, "_all_special", True)
    assert columns(at_once) == columns(lower(given))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_so_is_a_coarse_one(monkeypatch, schedule):
    given = plan(schedule)
    at_once = coarse(given)
    monkeypatch.setattr(Step, "_all_special", True)
    one_by_one = coarse(given)

    assert columns(at_once.program) == columns(one_by_one.program)
    assert columns(at_once.actions) == columns(one_by_one.actions)
    assert (at_once.parts, at_once.alike) == (one_by_one.parts, one_by_one.alike)
    assert np.array_equal(at_once.times, one_by_one.times)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_stages_share_what_is_written_once(monkeypatch, schedule):
    given = plan(schedule)
    shared = lower(given)
    monkeypatch.setattr(ActionWriter, "_made", lambda writer, passes: Written(writer._write(passes)))
    assert columns(shared) == columns(lower(given))
