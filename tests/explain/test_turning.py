"""Several numbers turned at once: the total is that of the scenario which says them so."""

import pytest
from runcast.simulator.answers.explain import first_look, knobs, make_case, turn
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.memo import Memo
from runcast.simulator.predict import simulate
from runcast.simulator.scenario import change, check_question

TABLE = {
    "name": "small", "kind": "train_step", "cluster": "dgx-h100", "level": "coarse",
    "model": {"preset": "llama3-8b"}, "batch": {"global": 8, "seq_len": 4096},
    "recompute": {"mode": "full"}, "parallel": {"tp": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def case():
    return make_case(TABLE, "small", Memo())


def named(case, name):
    return next(knob for knob in knobs(case) if knob.name == name)


def test_a_turned_machine_is_that_of_the_changed_scenario(case):
    changes = {"cluster.nvlink_bytes_per_s": {"times": 0.5}, "cluster.device.memory_bytes_per_s": {"times": 2.0}}
    asked = {named(case, key): change["times"] for key, change in changes.items()}

    found = turn(case, asked)

    told = simulate(check_question(change(TABLE, changes, "small"), "small")).report.step_time_s
    assert found.total_s == pytest.approx(told, rel=1e-12)


def test_numbers_of_machine_and_software_turned_together_are_nearly_the_sum_of_each(case):
    asked = {named(case, "cluster.nvlink_bytes_per_s"): 0.8, named(case, "time_factor.gemm"): 1.5}
    apart_s = [turn(case, {knob: factor}).first_order_s - case.total_s for knob, factor in asked.items()]

    found = turn(case, asked, simulate=False)

    assert (found.simulated_s, found.first_order_s - found.now_s) == (None, pytest.approx(sum(apart_s), rel=0.02))


def test_nothing_turned_is_the_case(case):
    found = turn(case, {})

    assert (found.total_s, found.first_order_s, found.now_s) == (case.total_s, case.total_s, first_look(case).total_s)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e9])
def test_a_factor_beyond_what_a_file_may_say_is_refused(case, factor):
    capped = next(knob for knob in knobs(case) if knob.most < float("inf"))

    with pytest.raises(UserError, match=capped.name):
        turn(case, {capped: factor})
