"""Drawn intervals agree with the first order where the path stands still, and lie above it where it moves."""

from dataclasses import replace
from math import log, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator import engine, simulate
from runcast.simulator.base.errors import UserError
from runcast.simulator.costs import PHASES, kind_costs
from runcast.simulator.costs.costs import bytes_by_link
from runcast.simulator.insight import critical_path
from runcast.simulator.predict import Prediction, TrainPrediction
from runcast.simulator.program import Program, ProgramBuilder
from runcast.simulator.uncertainty import Draws, Interval, draw, errors_of_costs, path_interval
from runcast.simulator.uncertainty.draws import slow_down
from runcast.simulator.verbs.simulating import simulate as verb

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
WIDTH = 0.15
"""What the logarithms of high over low may differ by, as a share."""

BELOW = 0.01
"""How far the middle of the draws may lie below that of the first order."""

COARSE = "level=coarse"
HOSTS = ("train-qwen3-30b-a3b-16xh100", "stack=megatron-bridge-no-graphs", "nodes=1", "parallel={ep=8}",
         "batch={global=16, micro=2, seq_len=4096}")  # fmt: skip
"""Hosts work for two thirds of the step beside its kernels, and their time is known to 25 %."""
ABOVE = {
    ("what-if-fp8",): 0.01,
    ("what-if-sender-gh200",): 0.01,
    ("deepseek-v3.1-256xh20",): 0.01,
    ("kimi-k2-16xh20",): 0.03,
    ("train-llama3-70b-64xh100", COARSE, "stack=nemo"): 0.03,
    ("train-llama3-70b-64xh100", COARSE): 0.03,
    ("train-llama3-8b-8xh100", "stack=torchtitan"): 0.05,
    ("train-qwen3-30b-a3b-16xh100", COARSE, "stack=megatron-bridge-26.02"): 0.12,
    ("train-qwen3-30b-a3b-16xh100", COARSE): 0.18,
    HOSTS: 0.12,  # the load of experts is known to 31 %
}
"""Scenarios with changes, and how far above it may: what overlaps may come to be waited for (docs/uncertainty.md)."""


def both(name: str, changes: tuple[str, ...], draws: int = 500) -> list[tuple[float, float]]:
    """The log-width and the geometric middle of the interval to first order, and of that of draws."""
    found = simulate(SCENARIOS / f"{name}.toml", changes)
    assert isinstance(found, Prediction | TrainPrediction)
    first_order = Interval(found.report.interval_low_s, found.report.interval_high_s)
    program = found.timeline.program
    intervals = first_order, draw(program, found.costs, found.errors, draws, 1, found.answer_s).interval
    return [(log(one.high_s / one.low_s), sqrt(one.high_s * one.low_s)) for one in intervals]


@pytest.mark.slow
@pytest.mark.parametrize("asked", ABOVE)
def test_draws_agree_with_the_first_order(asked):
    check(asked)


def test_draws_agree_on_a_small_update():
    check(("what-if-fp8",))


def check(asked: tuple[str, ...]) -> None:
    (width, middle), (drawn_width, drawn_middle) = both(asked[0], asked[1:])
    assert drawn_width == pytest.approx(width, rel=WIDTH)
    assert 1 - BELOW <= drawn_middle / middle <= 1 + ABOVE[asked]


def branches(*kinds: str) -> Program:
    """One op on each of several lanes, all at once."""
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    for kind in kinds:
        builder.op(kind, [builder.lane(place, kind)])
    return builder.build()


def drawn(program: Program, spread: float, draws: int = 4000, **seconds: float) -> Draws:
    costs = kind_costs(program, seconds)
    errors = replace(errors_of_costs(costs, "p"), of_class=np.full(len(program), spread))
    return draw(program, costs, errors, draws, seed=0)


def test_the_slower_of_two_equal_branches_is_late_as_theory_says():
    """E[max(X, Y)] = mean + deviation / sqrt(pi) of two independent normals (Clark, Operations Research 9, 1961)."""
    found = drawn(branches("a", "b"), 0.05, a=1.0, b=1.0)
    assert found.makespans_s.mean() == pytest.approx(1 + 0.05 / sqrt(pi), abs=0.003)


def test_where_the_path_moves_draws_lie_above_the_first_order():
    program = branches("a", "b")
    costs = kind_costs(program, {"a": 1.0, "b": 1.0})
    errors = replace(errors_of_costs(costs, "p"), of_class=np.full(2, 0.05))
    straight = path_interval(critical_path(engine.simulate(program, costs)), errors, 1.0)

    found = draw(program, costs, errors, 2000, seed=0)

    assert found.quantile_s(0.5) > 1.02 * sqrt(straight.low_s * straight.high_s)


def test_branches_of_one_class_are_late_together():
    program = branches("a", "b")
    costs = kind_costs(program, {"a": 1.0, "b": 1.0})
    errors = replace(errors_of_costs(costs, "p"), of_class=np.full(2, 0.05), cost_class=np.zeros(2, int))
    found = draw(program, costs, errors, 4000, seed=0)
    assert found.makespans_s.mean() == pytest.approx(1.0, abs=0.003)


def test_errors_of_many_ops_average_out():
    builder = ProgramBuilder()
    lane = builder.lane(builder.place("r0", [0]), "compute")
    for _ in range(100):
        builder.op("a", [lane])
    program = builder.build()
    costs = kind_costs(program, {"a": 0.01})
    errors = replace(errors_of_costs(costs, "p"), of_op=np.full(100, 0.3))
    assert draw(program, costs, errors, 500, seed=0).makespans_s.std() == pytest.approx(0.03, rel=0.1)


def test_a_factor_is_of_its_phase_and_of_that_part_of_an_action():
    program = branches("a", "b")
    mix = np.zeros((1, len(PHASES)))
    mix[0, :2] = 0.5
    errors = replace(
        errors_of_costs(kind_costs(program, {}), "p"), phase=np.array([1, 6]), part=np.array([-1, 0]), mix=mix
    )
    factor = np.ones(len(PHASES))
    factor[1] = 3.0
    assert errors.factor_of_op(factor).tolist() == [3.0, 2.0]


def test_equal_seeds_give_equal_draws():
    again = [drawn(branches("a", "b"), 0.1, 20, a=1.0, b=2.0).makespans_s.tolist() for _ in range(2)]
    assert again[0] == again[1]


def test_slower_ops_move_as_many_bytes():
    found = simulate(SCENARIOS / "tiny-p2p.toml")
    assert isinstance(found, Prediction)
    costs, program = found.resolved.costs, found.resolved.program
    factor = np.exp(np.random.default_rng(0).normal(0, 0.3, len(program)))

    slower = slow_down(costs, program, factor)

    moved = [bytes_by_link(of.work_s, of.row, of.demand, of.rate_bytes_per_s, len(of.link_names))
             for of in (costs, slower)]  # fmt: skip
    assert moved[1] == pytest.approx(moved[0])


@pytest.mark.parametrize(
    ("draws", "seed", "fault"),
    [(1, 0, "--draws = 1: expected a number of simulations"), (2, -1, "--seed = -1: expected a whole number")],
)
def test_draws_that_cannot_be_are_refused(draws, seed, fault):
    with pytest.raises(UserError, match=fault):
        verb(SCENARIOS / "tiny-2ranks.toml", draws=draws, seed=seed)


@pytest.mark.parametrize(
    ("scenario", "title"),
    [("rl-split-given-update-8xh100-nodes", "an RL cycle"), ("run-llama3-405b-16384xh100", "a training run")],
)
def test_what_has_no_ops_has_no_draws(scenario, title):
    with pytest.raises(UserError, match=f"--draws: {title} has no ops to draw"):
        verb(SCENARIOS / f"{scenario}.toml", draws=2)


def test_both_intervals_are_printed(capsys):
    verb(SCENARIOS / "tiny-2ranks.toml", draws=20)
    lines = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == ["90 % interval to first order", "90 % interval of 20 draws"]
