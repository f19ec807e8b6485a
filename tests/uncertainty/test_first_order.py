"""The interval to first order, by hand."""

from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest
from runcast.simulator.costs import PHASES, kind_costs
from runcast.simulator.insight import CriticalPath, busiest_lanes, critical_path
from runcast.simulator.predict import simulate
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.systems.train_step.errors import step_errors
from runcast.simulator.uncertainty import Interval, PhaseErrors, chain_intervals, errors_of_costs, latest, path_interval

from ..lowering.steps import labels, resolved

Z = 1.6448536
PATH = CriticalPath(np.array([0, 1, 2]), np.array([10.0, 20.0, 40.0]))


@pytest.fixture
def errors():
    """Of three ops, two of one class; nothing is off yet."""
    return replace(
        errors_of_costs(kind_costs(three_ops(), {}), "p"), cost_class=np.array([0, 0, 1]), of_class=np.zeros(3),
        of_op=np.zeros(3),
    )  # fmt: skip


def three_ops():
    builder = ProgramBuilder()
    lane = builder.lane(builder.place("r0", [0]), "compute")
    for kind in ("a", "a", "b"):
        builder.op(kind, [lane])
    return builder.build()


def deviation(errors) -> float:
    """Of ln(seconds)."""
    found = path_interval(PATH, errors, 70.0)
    return log(found.high_s / found.low_s) / 2 / Z


def test_without_errors_the_interval_is_a_point(errors):
    found = path_interval(PATH, errors, 70.0)
    assert (found.low_s, found.high_s) == (70.0, 70.0)


def test_errors_add_inside_a_class_and_in_squares_between(errors):
    relative = 5.0 / 70.0  # (1 + 2) and 4
    assert deviation(replace(errors, of_class=np.full(3, 0.1))) == pytest.approx(sqrt(log(1 + relative**2)))


def test_errors_of_ops_average_out(errors):
    relative = sqrt(1 + 4 + 16) / 70.0
    assert deviation(replace(errors, of_op=np.full(3, 0.1))) == pytest.approx(sqrt(log(1 + relative**2)))


def test_a_phase_is_off_as_one_and_so_are_phases_that_go_together(errors):
    sizes = np.zeros((1, len(PHASES)))
    sizes[0, :2] = 0.2, -0.1
    shares = np.array([30, 40]) / 70
    found = deviation(replace(errors, of_phases=PhaseErrors(("e",), sizes), phase=np.array([0, 0, 1])))
    assert found == pytest.approx(abs(0.2 * shares[0] - 0.1 * shares[1]))


def test_an_action_is_off_as_the_phases_in_it(errors):
    sizes = np.zeros((1, len(PHASES)))
    sizes[0, 0] = 0.2
    mix = np.zeros((1, len(PHASES)))
    mix[0, [0, 1]] = 0.25, 0.75
    errors = replace(errors, of_phases=PhaseErrors(("e",), sizes), phase=np.full(3, 6))
    found = deviation(replace(errors, part=np.zeros(3, int), mix=mix))
    assert found == pytest.approx(0.2 * 0.25)


def test_the_floor_is_of_the_whole(errors):
    assert deviation(replace(errors, floor=0.07)) == pytest.approx(0.07)


def test_spreads_are_about_the_mean_so_the_middle_lies_below_it(errors):
    found = path_interval(PATH, replace(errors, of_class=np.full(3, 1.0)), 70.0)
    variance = log(1 + (50 / 70) ** 2)
    assert sqrt(found.low_s * found.high_s) == pytest.approx(70 * exp(-variance / 2))


def test_products_of_awkward_shapes_are_off_together():
    """No step of the ledger had such shapes: the 30 % of their factor are one error, beside the kernels' own ones."""
    step = resolved(1, 1, overrides={"vocab_size": 20001, "hidden_size": 512, "head_dim": 64})
    errors, logits = step_errors(step), np.char.startswith(labels(step.program), "logits")
    neat = step_errors(resolved(1, 1, overrides={"vocab_size": 20032, "hidden_size": 512, "head_dim": 64}))
    assert errors.of_class[logits] == pytest.approx(0.3)
    assert not errors.of_class[~logits].any()
    assert not neat.of_class.any()
    assert errors.of_op == pytest.approx(neat.of_op, rel=0.02)


def test_each_end_is_that_of_the_chain_that_reaches_farthest():
    assert latest([Interval(2.0, 5.0), Interval(1.0, 9.0), Interval(3.0, 4.0)]) == Interval(3.0, 9.0)


def test_a_step_whose_hosts_may_be_faster_takes_no_less_than_its_kernels():
    """Hosts hold it up, and are known to a factor of four; kernels take half of it."""
    found = simulate({
        "kind": "train_step", "cluster": "dgx-h100", "stack": "megatron-bridge-eager", "level": "kernels",
        "model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 4, "vocab_size": 8192}},
        "parallel": {"ep": 8}, "batch": {"global": 64, "seq_len": 8192},
    })  # fmt: skip
    path, lanes = critical_path(found.timeline), busiest_lanes(found.timeline)
    ends = {name: one.low_s for name, one in chain_intervals(path, lanes, found.errors).items()}

    assert 1.3 * ends["critical path"] < ends["compute"] == found.report.interval_low_s
