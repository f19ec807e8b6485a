"""Bounds of training steps hold whatever a scenario says, not only in the spaces that are searched to the end."""

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.search.floors import floor_bytes, floor_s, states_bytes
from runcast.simulator.scenario import change, check_train
from runcast.simulator.systems.train_step.memory import _static_bytes, static_bytes
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from ..examples import examples
from .small import DENSE, EXPERTS

JUST = 1 + 1e-9
PLANS = st.fixed_dictionaries(
    {
        "parallel.tp": st.sampled_from([1, 2, 4]),
        "parallel.pp": st.sampled_from([1, 2, 4]),
        "parallel.zero": st.sampled_from([0, 1, 2]),
        "batch.micro": st.sampled_from([1, 2]),
        "schedule": st.sampled_from([
            {"name": "1f1b"}, {"name": "gpipe"}, {"name": "interleaved", "vpp": 2}, {"name": "zb-h1"}, {"name": "zb-v"},
            {"name": "interleaved-overlap", "vpp": 2}, {"name": "dualpipe"}, {"name": "v-min"},
        ]),
        "recompute": st.sampled_from([
            {"mode": "none"}, {"mode": "full"}, {"mode": "full", "layers": 1},
            {"mode": "selective", "modules": ["layernorm", "core_attn"]},
        ]),
    },
    optional={
        "nodes": st.sampled_from([2, 4]),
        "cluster.oversubscription": st.sampled_from([2.0, 8.0]),
        "cluster.leaf_radix": st.sampled_from([2, 4]),
        "parallel.cp": st.sampled_from([2, 4]),
        "parallel.cp_type": st.sampled_from(["ring", "all_gather", "ulysses"]),
        "parallel.ep": st.sampled_from([2, 4, 8]),
        "parallel.order": st.sampled_from(["tp-cp-pp-ep-dp", "tp-cp-ep-dp-pp"]),
        "overlap.tp": st.just(True),
        "overlap.wgrad": st.just(True),
        "overlap.pp": st.just(False),
        "overlap.dp": st.just(False),
        "offload.activations": st.sampled_from([0.5, 1.0]),
        "offload.optimizer": st.just(True),
        "attention": st.sampled_from(["flash-2", "flash-1", "unfused"]),
        "precision.compute": st.sampled_from(["fp8"]),
        "lora": st.just({"rank": 8}),
        "stack": st.sampled_from([
            "megatron-lm", "nemo", "pytorch-fsdp", "llm-foundry", "nanotron", "megatron-bridge-no-graphs",
        ]),
        "model.mtp": st.just(False),
    },
)  # fmt: skip


@examples(40, suppress_health_check=list(HealthCheck))
@given(base=st.sampled_from([DENSE, EXPERTS]), plan=PLANS)
def test_no_bound_is_above_a_simulation(base, plan):
    try:
        scenario = check_train(change(base, {**plan, "level": "coarse"}, "plan"), "plan")
        report = simulate(scenario).report
    except UserError:
        assume(False)
    resolved = ResolvedTrain(scenario)

    assert (floor_s(resolved) <= report.step_time_s * JUST, floor_bytes(resolved) <= report.peak.peak_bytes * JUST) == (
        True, True,
    )  # fmt: skip


@examples(20, suppress_health_check=list(HealthCheck))
@given(base=st.sampled_from([DENSE, EXPERTS]), plan=PLANS)
def test_states_of_another_schedule_are_no_more_than_a_plan_needs(base, plan):
    assume(plan["schedule"]["name"] not in ("zb-v", "v-min", "dualpipe"))
    other = {**plan, "batch.micro": 1, "schedule": {"name": "1f1b"}, "recompute": {"mode": "none"}}
    try:
        one, two = (check_train(change(base, {**of, "level": "coarse"}, "plan"), "plan") for of in (plan, other))
        states, needed = states_bytes(ResolvedTrain(two)), floor_bytes(ResolvedTrain(one))
    except UserError:
        assume(False)

    assert states <= needed * JUST


def test_memory_is_exact_where_nothing_is_offloaded():
    scenario = check_train(change(DENSE, {"parallel.pp": 4, "parallel.tp": 2, "level": "coarse"}, "plan"), "plan")

    assert floor_bytes(ResolvedTrain(scenario)) == pytest.approx(simulate(scenario).report.peak.peak_bytes, rel=1e-12)


@pytest.mark.parametrize(
    ("base", "plan"),
    [
        (DENSE, {"parallel.pp": 4, "parallel.tp": 2, "recompute": {"mode": "full", "layers": 1}}),
        (DENSE, {"model.overrides.num_hidden_layers": 14, "parallel.pp": 4, "schedule": {"name": "zb-v"}}),
        (EXPERTS, {"model.overrides.num_hidden_layers": 6, "parallel.pp": 4, "parallel.tp": 1, "parallel.ep": 2}),
        (EXPERTS, {"model.overrides.num_hidden_layers": 8, "parallel.pp": 8, "schedule": {"name": "dualpipe"}}),
    ],
)
def test_ranks_that_hold_the_same_have_the_memory_that_each_has_by_itself(base, plan):
    resolved = ResolvedTrain(check_train(change(base, {"batch.global": 64, **plan}, "plan"), "plan"))
    ranks, context = range(resolved.grid.ranks), resolved.profile.value("memory.context_bytes")
    shared = [static_bytes(resolved, rank) for rank in ranks]

    assert shared == [_static_bytes(resolved, rank, context) for rank in ranks]
