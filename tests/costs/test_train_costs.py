"""Prices of the ops of a training step against the closed forms that they come from."""

import numpy as np
import pytest
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.costs import cost

from ..lowering.steps import MOE, ops, resolved


def priced(step, label):
    """Seconds and bytes of the ops of a label."""
    found = ops(step.program, label=label)
    return step.costs.work_s[found], step.program.bytes[found]


def test_ops_that_are_equal_cost_the_same_and_only_those_are_priced_apart():
    step = resolved(4, 3, parallel={"tp": 2})
    program, work = step.program, step.costs.work_s
    prices: dict = {}
    for op in range(len(program)):
        key = (program.kind[op], program.dtype[op], program.group[op], program.bytes[op], *program.shape[op].tolist())
        prices.setdefault(key, set()).add(work[op])
    assert {len(seconds) for seconds in prices.values()} == {1}


def test_adam_on_the_host_takes_turns_with_the_other_gpus_of_its_socket():
    step = resolved(8, offload={"optimizer": True}, overrides={"hidden_size": 4096})
    ((seconds,), (size,)) = priced(step, "optimizer")
    memory = step.cluster.h2d_route(0)[0]
    share = step.profile.value("link_fraction.host_memory") * step.cluster.links[memory].bytes_per_s / 4
    assert seconds == pytest.approx(size / share)


def test_a_slow_host_issues_kernels_slowly_and_updates_weights_as_fast():
    step = resolved(8, offload={"optimizer": True})
    usual, slow = (step.restate({"time_factor.host": factor}) for factor in (1.0, 30.0))
    ratio = [slow.costs.work_s[found].sum() / usual.costs.work_s[found].sum() for found in _of_the_host(step.program)]

    assert ratio == pytest.approx([30.0, 1.0])


def _of_the_host(program):
    return ops(program, kind="issue"), ops(program, kind="host_adam")


def test_offloaded_activations_take_the_time_of_their_route():
    step = resolved(1, 5, schedule={"name": "gpipe"}, offload={"activations": 1.0}, batch={"seq_len": 4096})
    seconds, size = priced(step, "offload")
    rate = min(step.profile.value("link_fraction.pcie") * 63.015e9, 1e12)
    assert np.allclose(seconds, size / rate + step.profile["h2d.latency_s"].value, rtol=1e-6)


def test_a_group_inside_a_node_asks_for_nvlink_and_one_across_for_a_nic():
    names = {}
    for nodes, order in ((1, "tp-cp-ep-dp-pp"), (2, "dp-cp-ep-tp-pp")):
        step = resolved(8 * nodes, 1, parallel={"tp": 2 * nodes, "order": order})
        op = ops(step.program, label="tp all_gather")[0]
        names[nodes] = " ".join(step.costs.link_names[link] for link in step.costs.demand_of(op)[0])
    assert ["nvswitch" in names[1], "nic" in names[1], "nic" in names[2]] == [True, False, True]


def test_a_ring_takes_one_causal_step_and_halves_of_whole_ones():
    step = resolved(4, 1, parallel={"cp": 4}, batch={"seq_len": 16384})
    sizes = {"batch": 1, "seq": 4096, "heads": 8, "kv_heads": 4, "head_dim": 32}  # of 8, padded
    for label, direction in (("attention", "forward"), ("attention_dgrad", "backward")):
        seconds = {
            causal: step.profile.estimate(f"attention.{direction}", {**sizes, "causal": causal}).seconds[0]
            for causal in (0, 1)
        }
        expected = 4 * (seconds[1] + 3 * seconds[0] / 2)  # of four layers
        assert priced(step, label)[0].sum() == pytest.approx(expected)


def test_deepep_takes_less_time_than_a_copy_per_expert():
    given = {
        "parallel": {"ep": 16},
        "batch": {"seq_len": 8192},
        "overrides": {"num_experts": 32, "num_experts_per_tok": 8},
    }
    every, once = (resolved(16, 1, MOE, experts={"dispatcher": name}, **given) for name in ("alltoall", "deepep"))
    assert priced(once, "dispatch")[0][0] < priced(every, "dispatch")[0][0]
    inside = resolved(8, 1, MOE, **given | {"parallel": {"ep": 8}})
    assert priced(once, "dispatch")[0][0] >= priced(inside, "dispatch")[0][0]  # nodes pass copies on over NVLink


def test_a_port_carries_what_deepep_sends_out_and_what_it_passes_on():
    given = {"parallel": {"ep": 16}, "cluster": "l40s-pcie", "experts": {"dispatcher": "deepep"}}
    step = resolved(16, 1, MOE, overrides={"num_experts": 32, "num_experts_per_tok": 8}, **given)
    program, costs = step.program, step.costs
    op = ops(program, label="dispatch")[0]
    rates = dict(zip(*costs.demand_of(op), strict=True))
    port = costs.link_names.index("n0.gpu0>pcie0")
    moved = float(program.shape[op][0]) + float(program.bytes[op]) * 7 / 8

    assert rates[port] * costs.work_s[op] == pytest.approx(moved)
    assert costs.work_s[op] >= moved / step.cluster.capacity[port]


@pytest.mark.parametrize(("experts", "load"), [
    ({}, 1.0),
    ({"capacity": 0.5}, 0.5),
    ({"routing": "histogram", "histogram": [2, 2, 1, 1, 1, 1, 0, 0]}, 2.0),
    ({"routing": "histogram", "histogram": [8, 1, 1, 1, 1, 1, 1, 1]}, (0.5 + 0.5 / 7) * 4),  # none has more
    ({"routing": "histogram", "histogram": [2, 2, 1, 1, 1, 1, 0, 0], "capacity": 1.0}, 1.0),
])  # fmt: skip
def test_the_most_loaded_rank_sets_what_all_experts_take(experts, load):
    step = resolved(4, 1, MOE, parallel={"ep": 4}, experts=experts)
    even = resolved(4, 1, MOE, parallel={"ep": 4})
    assert step.plan.shard.load == pytest.approx(load)
    rows, all_rows = (one.program.shape[ops(one.program, label="experts")[0]][0] for one in (step, even))
    assert rows == pytest.approx(all_rows * load, abs=1)


def test_popular_experts_of_a_power_law_lie_on_the_first_rank():
    shares = np.arange(1, 9) ** -0.5
    step = resolved(4, 1, MOE, parallel={"ep": 4}, experts={"routing": "zipf", "zipf": 0.5})
    assert step.plan.shard.load == pytest.approx(4 * shares[:2].sum() / shares.sum())


def test_whole_actions_take_what_their_kernels_take():
    for name in ("1f1b", "zb-h1", "dualpipe"):
        given = {"parallel": {"pp": 2, "zero": 1}, "schedule": {"name": name}, "batch": {"seq_len": 4096}}
        fine, coarse = (resolved(8, 8, level=level, **given) for level in ("kernels", "coarse"))
        on_device = (~one.program.is_kind("issue", "hosts") for one in (fine, coarse))
        of_kernels, of_actions = (one.costs.work_s[of].sum() for one, of in zip((fine, coarse), on_device, strict=True))
        assert of_actions == pytest.approx(of_kernels, rel=0.02)


FACTORS = {
    "gemm": {"gemm", "dgrad", "wgrad"},
    "attention": {"attention", "attention_backward"},
    "loss": {"cross_entropy", "cross_entropy_backward"},
    "tp": {"all_gather", "reduce_scatter", "all_reduce"},
}


@pytest.mark.parametrize("phase", FACTORS)
def test_software_takes_longer_for_one_phase_alone(phase):
    step = resolved(2, parallel={"tp": 2, "zero": 0})
    slower = step.profile.set_values({f"time_factor.{phase}": 2.0}, "a test")
    costs = cost(step.program, step.cluster, slower, "measured")
    ratio = costs.work_s / np.where(step.costs.work_s > 0, step.costs.work_s, 1)
    assert {step.program.kind_of(op) for op in np.flatnonzero(ratio > 1.5)} == FACTORS[phase]


@pytest.mark.parametrize("name", ["direct", "pairwise", "hierarchical"])
def test_a_named_algorithm_takes_its_closed_form_whatever_a_stack_takes_over_the_curve(name):
    step = resolved(16, 1, MOE, parallel={"ep": 16}, overrides={"num_experts": 16}, collectives={"all_to_all": name})
    program, op = step.program, ops(step.program, label="dispatch")[0]
    net = ClusterNet(Machines(step.cluster, step.profile), program.groups[program.group[op]], "all_to_all")
    factored = step.restate({"time_factor.ep": 0.01})
    expected = net.formula(algorithms("all_to_all")[name], float(program.bytes[op])).seconds
    assert factored.costs.work_s[op] == pytest.approx(expected)


def test_a_slower_exchange_moves_as_many_bytes():
    step = resolved(2, parallel={"tp": 2})
    costs = cost(step.program, step.cluster, step.profile.set_values({"time_factor.tp": 2.0}, "a test"), "measured")
    assert costs.link_bytes == pytest.approx(step.costs.link_bytes)


def test_settled_clocks_slow_products_of_their_type():
    step = resolved(1)
    settled = {"gemm.training_rate": 0.8, "gemm.training_rate.fp8": 0.5}
    costs = cost(step.program, step.cluster, step.profile.set_values(settled, "a test"), "measured")
    gemm = step.program.is_kind("gemm")
    assert costs.work_s[gemm] == pytest.approx(step.costs.work_s[gemm] / 0.8)


def test_host_work_around_the_optimizer_is_added():
    step = resolved(1)
    costs = cost(step.program, step.cluster, step.profile.set_values({"optimizer.s": 0.5}, "a test"), "measured")
    assert (costs.work_s - step.costs.work_s).sum() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("gpus", "parallel", "more_s"),
    [(16, {"tp": 2, "pp": 2}, 0.02 * 2**0.5), (8, {"tp": 2, "pp": 2}, 0.0), (16, {"tp": 2}, 0.0), (16, {"pp": 2}, 0.0)],
)
def test_pipelines_over_nodes_hold_up_the_host_by_tensor_parallel_rank_and_node(gpus, parallel, more_s):
    step = resolved(gpus, 2, parallel=parallel)
    slower = step.restate({"layer.tp_s": 0.01})
    issue = step.program.is_kind("issue")
    assert slower.costs.work_s[issue] - step.costs.work_s[issue] == pytest.approx(more_s)


@pytest.mark.parametrize(("order", "factor"), [("tp-cp-ep-dp-pp", 2.0), ("dp-cp-ep-tp-pp", 2.0 * 3.0)])
def test_tensor_parallel_groups_over_nodes_have_a_factor_more(order, factor):
    step = resolved(16, 1, parallel={"tp": 2, "order": order})
    slower = step.restate({"time_factor.tp": 2.0, "time_factor.tp.network": 3.0})
    exchanges = ops(step.program, label="tp all_gather")
    assert slower.costs.work_s[exchanges] == pytest.approx(factor * step.costs.work_s[exchanges])


def test_exchanges_between_nodes_take_longer_and_a_far_pipeline_waits_for_them():
    step = resolved(32, 1, parallel={"tp": 2, "pp": 2, "order": "dp-cp-ep-tp-pp"})
    slower = step.restate({"exchange.s": 0.01, "time_factor.host": 5.0})
    host = step.restate({"time_factor.host": 5.0})
    exchanges, issue = ops(step.program, label="tp all_gather"), step.program.is_kind("issue")
    assert slower.costs.work_s[exchanges] - step.costs.work_s[exchanges] == pytest.approx(0.01)
    assert slower.costs.work_s[issue] - host.costs.work_s[issue] == pytest.approx(4 * 0.01)
