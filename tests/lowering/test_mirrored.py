"""DualPipe: a stage lies on two pipeline ranks, whose gradients and weights are exchanged together, by hand.

Of two stages on two ranks, both end with a whole backward of stage 1 and then both gradients of stage 0, apart.
"""

import pytest

from .steps import HIDDEN, LAYER, TABLE, makespan, ops, program

OF_STAGE = {1: 2 * LAYER + TABLE + HIDDEN, 0: 2 * LAYER + TABLE}
TIMES = {"attention": 1.0, "attention_dgrad": 1.0, "proj_wgrad": 1.0}


def made(gpus=4, **tables):
    parallel = {"pp": 2, "zero": 0, **tables.pop("parallel", {})}
    return program(gpus, 4, parallel=parallel, schedule={"name": "dualpipe"}, **{"bucket": 10**9, **tables})


def held(step, op):
    return [(step.lanes[lane].place, step.lanes[lane].name) for lane in sorted(step.lanes_of[op].tolist())]


@pytest.mark.parametrize("overlapped", [True, False])
def test_gradients_of_a_stage_are_reduced_once_by_all_that_hold_it(overlapped):
    step = made(overlap={"dp": overlapped})
    found = {(step.groups[step.group[op]], *sorted(held(step, op))) for op in ops(step, label="reduce gradients")}
    assert found == {((0, 1, 2, 3), (0, "dp"), (1, "dp"))}


def test_they_are_as_many_as_the_model_has_parameters():
    step = made()
    assert [int(step.bytes[op]) for op in ops(step, label="reduce gradients")] == [
        4 * OF_STAGE[stage] for stage in (1, 0)
    ]


def test_each_waits_for_the_backwards_of_both_ranks():
    step = made()
    waits = [
        sorted((held(step, dep)[0][0], int(step.tags["stage"][dep])) for dep in step.deps[op].tolist())
        for op in ops(step, label="reduce gradients")
    ]
    assert waits == [[(0, stage), (1, stage)] for stage in (1, 0)]


@pytest.mark.parametrize(("seconds", "exposed"), [(3.0, 3), (5.0, 1 + 5)])  # stage 1's has 4 s to hide under
def test_those_of_the_first_stage_are_exposed(seconds, exposed):
    assert makespan(made(), {**TIMES, "reduce gradients": seconds}) - makespan(made(), TIMES) == exposed


@pytest.mark.parametrize("beside", [True, False])
def test_new_weights_are_gathered_once_by_all_that_hold_them(beside):
    step = made(parallel={"zero": 1}, overlap={"params": beside})
    gathered = ops(step, label="gather weights")
    assert sum(int(step.bytes[op]) for op in gathered) == 2 * sum(OF_STAGE.values())
