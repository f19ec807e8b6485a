"""What is the same is written once: cells of the schedule whatever their rank, stage and micro-batch, and layers."""

import numpy as np
import pytest
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.lower import coarse, lower
from runcast.simulator.systems.train_step.lower.script import Script
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
    """All of a Program, but for the order of its tables."""
    names = [[program.kinds[kind] for kind in program.kind], [program.groups[group] for group in program.group]]
    lanes = {program.lane_name(lane): ops.tolist() for lane, ops in enumerate(program.order)}
    arrays = (program.bytes, *program.tags.values())
    deps = [sorted(set(row.tolist())) for row in program.deps]
    rows = (program.shape, program.accesses)
    return (
        names, lanes, [array.tolist() for array in arrays], [(row.start.tolist(), row.values.tolist()) for row in rows],
        deps, program.buffers, list(program.names),
    )  # fmt: skip


def one_by_one(_step, cells):
    """Every cell is a piece of its own."""
    every = np.arange(len(cells.rank))
    return every, every


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_cells_are_what_they_are_one_by_one(monkeypatch, schedule, overlap):
    given = plan(schedule, overlap={"pp": overlap})
    at_once = lower(given)
    monkeypatch.setattr(Step, "_alike", one_by_one)
    assert columns(at_once) == columns(lower(given))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_so_are_coarse_ones(monkeypatch, schedule):
    given = plan(schedule)
    at_once = coarse(given)
    monkeypatch.setattr(Step, "_classes", property(lambda step: np.arange(step.plan.grid.ranks * 64).reshape(-1, 64)))
    stage_by_stage = coarse(given)
    assert without_shapes(at_once) == without_shapes(stage_by_stage)


def without_shapes(step):
    """Columns, but for the numbers of parts; and how long messages are."""
    names, lanes, arrays, (_, accesses), *others = columns(step.program)
    return names, lanes, arrays, accesses, others, step.times.tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_layers_are_what_they_are_one_by_one(monkeypatch, schedule, recompute):
    given = plan(schedule, recompute={"mode": recompute})
    at_once = lower(given)

    def write(script, position, number, fragments):
        for step in script._own(script._parts(position, number)):
            step()

    monkeypatch.setattr(Script, "_append", write)
    assert columns(at_once) == columns(lower(given))
