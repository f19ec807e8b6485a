"""Gradients that wait for a coordinator's tick and travel fused: how many, how large, what stays exposed, by hand."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.profile import PROVENANCE, load
from runcast.simulator.profile.load import fitted_parameters
from runcast.simulator.systems.train_step.memory import static_bytes

from .steps import HIDDEN, LAYER, LAYERS, TABLE, makespan, ops, program, resolved

BACKWARD = {"up_wgrad": 1.0}  # seconds: gradients of the four layers are there at 1, 2, 3 and 4


def fused(threshold, **overlap):
    return program(4, parallel={"zero": 0}, overlap={"fusion": {"cycle": "1 ms", "threshold": threshold}, **overlap})


def reduced(made):
    return [int(made.bytes[op]) for op in ops(made, label="reduce gradients")]


def test_larger_thresholds_make_fewer_and_larger_all_reduces():
    layers, twice, all_ = fused(4 * LAYER), fused(8 * LAYER), fused("64 MiB")
    first, last, total = LAYER + TABLE, LAYER + TABLE + HIDDEN, LAYERS * LAYER + 2 * TABLE + HIDDEN
    assert reduced(layers) == [2 * last, 2 * last, 4 * LAYER, 4 * LAYER, 2 * first, 2 * first]
    assert reduced(twice) == [2 * (last + LAYER)] * 2 + [2 * (first + LAYER)] * 2
    assert reduced(all_) == [4 * total]
    assert {made.kind_of(op) for made in (layers, all_) for op in ops(made, lane="dp")} == {"all_reduce"}


def test_every_fused_message_fits_the_threshold():
    assert max(reduced(fused(5 * LAYER))) <= 5 * LAYER


def test_messages_that_are_full_together_share_a_tick():
    assert [len(ops(fused(size), lane="fusion")) for size in (4 * LAYER, 8 * LAYER, "64 MiB")] == [4, 2, 1]


def test_what_stays_exposed_is_the_last_tick_and_its_messages():
    # messages start at 1.25 and 2.0, 2.75, 3.5, and the last two behind the tick from 4 to 4.25
    seconds = {**BACKWARD, "cycle": 0.25, "reduce gradients": 0.75}
    assert makespan(fused(4 * LAYER), seconds) == 4 + 0.25 + 2 * 0.75
    assert makespan(fused("64 MiB"), seconds) == 4 + 0.25 + 0.75


def test_ticks_follow_each_other():
    # the tick for gradients of second 1 ends at 2.5, those of 2, 3 and 4 wait until 4, 5.5 and 7
    assert makespan(fused(4 * LAYER), {**BACKWARD, "cycle": 1.5, "reduce gradients": 0.75}) == 7 + 2 * 0.75


def test_a_tick_takes_what_the_scenario_says():
    step = resolved(4, parallel={"zero": 0}, overlap={"fusion": {"cycle": "3 ms"}})
    (tick,) = ops(step.program, lane="fusion")
    assert (step.costs.work_s[tick], step.costs.spread[tick]) == (3e-3, 0)
    assert PROVENANCE[step.costs.provenance[tick]] == "exact"


def test_no_fit_changes_what_the_scenario_says(monkeypatch):
    monkeypatch.setattr(load, "fitted_parameters", fitted_parameters)
    step = resolved(4, parallel={"zero": 0}, overlap={"fusion": {"cycle": "3 ms"}})
    (tick,) = ops(step.program, lane="fusion")
    assert step.costs.work_s[tick] == 3e-3


def test_the_fusion_buffer_is_held():
    plain = resolved(4, parallel={"zero": 0})
    step = resolved(4, parallel={"zero": 0}, overlap={"fusion": {"threshold": "1 MiB"}})
    held = [static_bytes(one, 0).get("exchange buffers", 0) for one in (plain, step)]
    assert held[1] - held[0] == 2**20


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"parallel": {"zero": 1}}, "goes with parallel.zero = 0, not 1"),
        ({"overlap": {"dp": False}}, "overlap.dp = true"),
        ({"bucket": 1000}, "takes the place of bucket"),
        ({"level": "coarse"}, "level = 'kernels'"),
    ],
)
def test_what_fusion_does_not_go_with(tables, line):
    tables = {"parallel": {"zero": 0}, **tables}
    tables["overlap"] = {"fusion": {}, **tables.get("overlap", {})}
    with pytest.raises(UserError, match=rf"overlap.fusion = .*{line}"):
        assert resolved(4, **tables).plan
