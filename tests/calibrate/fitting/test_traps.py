"""The ways in which measurements mislead, each as samples that would mislead a careless fit."""

import numpy as np
import pytest
from runcast.simulator.hardware import Limits
from runcast.simulator.profile.forms import cost_class

SIZES = 2.0 ** np.arange(12, 33)
TWO_IS_FASTER = {"e": 0.75, "e2": 1.25}


def over_nodes(made, nodes, sizes=SIZES):
    size, node = np.array([(s, n) for s in sizes for n in nodes], float).T
    return made("all_reduce.network", TWO_IS_FASTER, group=node.astype(str), bytes=size, gpus=8 * node, nodes=node)


def test_two_nodes_do_not_tell_about_four(made, fit, off):
    model = fit("all_reduce.network", over_nodes(made, [2]))
    two, four = (over_nodes(made, [n], SIZES[-3:]) for n in (2, 4))
    asked = [model.estimate({"bytes": t["bytes"], "gpus": t["gpus"], "nodes": t["nodes"]}) for t in (two, four)]
    assert [estimate.labels()[0] for estimate in asked] == ["fitted", "extrapolated"]
    assert (asked[1].spread > asked[0].spread).all()
    assert np.abs(off(model, two)).max() < 0.03 < np.abs(off(model, four)).min()
    assert (np.abs(off(model, four)) < 1.645 * asked[1].spread).all()


def test_four_nodes_are_right_once_they_were_measured(made, fit, off):
    model = fit("all_reduce.network", over_nodes(made, [2, 3, 8]))
    assert np.abs(off(model, over_nodes(made, [2, 4]))).max() < 0.03


def test_noise_of_small_messages_does_not_run_to_absurd_rates(made, fit):
    sizes, gpus = np.array([(s, n) for s in SIZES[:6] for n in (2, 4, 8)] * 3).T
    noise = np.exp(np.random.default_rng(5).normal(0, 0.3, len(sizes)))
    found = fit("all_reduce", made("all_reduce", {}, noise=noise, bytes=sizes, gpus=gpus)).coefficients
    bounds = {c.name: (c.low, c.high) for c in cost_class("all_reduce").form.coefficients}
    assert {name: np.clip(value, *bounds[name]) for name, value in found.items()} == pytest.approx(found)


def test_even_falling_times_leave_a_rate_that_hardware_has(made, fit):
    falling = made("send_recv", {}, bytes=SIZES[:8]).assign(seconds=np.geomspace(3e-5, 1e-5, 8))
    model = fit("send_recv", falling)
    assert 1e12 / model.estimate({"bytes": 1e12}).seconds[0] < 1.25 * 400e9 * 1.001


@pytest.mark.parametrize(
    ("kind", "fixed"), [("send_recv", {}), ("all_reduce", {"gpus": 8}), ("memory.add", {}), ("copy.h2d", {})]
)
def test_nothing_is_extrapolated_upwards_in_silence(kind, fixed, made, fit):
    model = fit(kind, made(kind, {}, bytes=SIZES, **fixed))
    asked = model.estimate({"bytes": SIZES[-1] * np.array([1, 2, 4, 8]), **fixed})
    assert (asked.labels()[0] != "extrapolated", asked.labels()[1:]) == (True, ["extrapolated"] * 3)
    assert (np.diff(asked.spread) > 0).all()


@pytest.mark.parametrize("kind", ["send_recv", "all_reduce", "all_reduce.network"])
def test_the_next_generation_is_not_what_was_measured(kind, made, fit, limits):
    where = {"bytes": SIZES, "gpus": 32.0, "nodes": 4.0} if kind.endswith("network") else {"bytes": SIZES, "gpus": 8.0}
    model = fit(kind, made(kind, {}, **where))
    twice = Limits(limits.flop_per_s, limits.memory_bytes_per_s, 100, 50e6, 800e9, 60e9, 100e9, 8)
    here, there = model.estimate(where), model.estimate(where, twice)
    assert set(there.labels()) == {"extrapolated"}
    assert (there.spread > here.spread).all()


def test_an_average_of_efficiencies_is_not_an_efficiency(made, fit):
    table = made("send_recv", {"a_s": 1e-5, "e": 0.8}, bytes=SIZES)
    averaged = (table["bytes"] / table["seconds"] / 400e9).mean()
    assert fit("send_recv", table).coefficients["e"] == pytest.approx(0.8, rel=0.01)
    assert averaged < 0.6


@pytest.mark.parametrize(("op", "highest"), [("all_reduce", 1.25), ("all_gather", 1.1), ("reduce_scatter", 1.1)])
def test_bus_bandwidth_above_the_link_is_believed_of_switches_that_reduce(op, highest, made, fit):
    table = made(op, {"a_s": 1e-5, "h_s": 1e-7, "c_s": 1e-8, "e": 1.2}, bytes=SIZES, gpus=8)
    assert fit(op, table).coefficients["e"] == pytest.approx(min(1.2, highest), rel=0.01)


def test_latency_and_bandwidth_of_a_long_ring_are_not_added(made, fit, off):
    sizes, nodes = np.array([(s, n) for s in SIZES for n in (1, 2, 128)]).T
    model = fit("all_gather.network", made("all_gather.network", {}, bytes=sizes, gpus=8 * nodes, nodes=nodes))
    hop, rate = model.coefficients["h_s"], model.coefficients["e"] * 400e9
    long = made("all_gather.network", {}, bytes=1023 * hop * rate, gpus=1024, nodes=128)
    added = model.coefficients["a_s"] + 1023 * hop + 1023 / 1024 * 1023 * hop
    assert abs(off(model, long)[0]) < 0.02
    assert added / long["seconds"][0] > 1.6


def test_what_sizes_mean_is_part_of_the_class():
    made_of = {"all_reduce": 7 / 4, "all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8, "broadcast": 1}
    tiny = {"a_s": 1e-30, "h_s": 0.0, "c_s": 0.0, "g": 0.5, "e": 1.0}
    limits = Limits({"bf16": 1e15}, 3e12, 100, 50e6, 400e9, 60e9, 50e9, 8)
    kinds = {op: cost_class(op) for op in made_of}
    found = {
        op: k.form.seconds(k.columns({"bytes": 400e9, "gpus": 8}, limits), limits, tiny)[0] for op, k in kinds.items()
    }
    assert found == pytest.approx(made_of)
