"""A faster machine never makes a step or an update longer, but for what sharing does.

Three laws, from exact to bounded:

- No op takes longer when it runs alone.
- Nor does the whole where links are never shared: lanes keep their order, so it is the longest path over the ops.
- Where links are shared, the whole may grow. Graham's anomalies (Bounds on multiprocessing timing anomalies, 1969) have
  their like in fair sharing: what a faster link lets go ahead takes a share of another from what the end waits for.
  FSDP trainers that feed a chain of engines: at half of NVLink's rate their gathers leave room on the NICs; at its full
  rate they ask for all of them, and the chain's hop between nodes, which all wait for, gets half a NIC.
"""

import pytest
from hypothesis import given

from .plans import CLUSTERS, steps, updates
from .predict import law, resolved, seconds, unshared_s

FASTER = {
    "nic": {"cluster.nic": {"times": 2}},
    "nvlink": {"cluster.nvlink_bytes_per_s": {"times": 2}},
    "memory": {"cluster.device.memory_bytes_per_s": {"times": 1.3}},
    "flops": {f"cluster.device.peak_flop_per_s.{dtype}": {"times": 1.3} for dtype in ("bf16", "fp16")},
}
WITH_NVLINK = tuple(name for name in CLUSTERS if name != "l40s-pcie")
LATENCIES = ("latency_s", "hop_s", "message_s")


def halved_latencies(now):
    """The same scenario with software and wires that take half as long to start a message."""
    return now.scale({name: 0.5 for name in now.profile.parameters if name.endswith(LATENCIES)})


def check_faster(now, faster, at_most):
    """What the three laws say; the whole is at most `at_most` times as long."""
    alone_s = unshared_s(now.program, now.costs)

    assert (faster.costs.uncontended_s <= now.costs.uncontended_s * (1 + 1e-9)).all()
    assert unshared_s(faster.program, faster.costs) <= alone_s * (1 + 1e-9)
    assert seconds(faster) <= seconds(now) * at_most


def check_faster_machine(table, at_most):
    now = resolved(table)
    for name, changes in FASTER.items():
        if name != "nvlink" or table["cluster"] in WITH_NVLINK:
            check_faster(now, resolved(table, changes), at_most)
    check_faster(now, halved_latencies(now), at_most)


@law(5)
@given(table=steps())
def test_a_faster_machine_makes_no_step_longer(table):
    """Of 2,000 comparisons one was longer, by 0.3 %: on PCIe lanes that tokens and gradients share."""
    check_faster_machine(table, 1.01)


@law(10)
@given(table=updates())
def test_a_faster_machine_makes_no_update_longer(table):
    """Of 2,600 comparisons some 20 were longer, by up to 9 %: a chain that FSDP trainers feed."""
    check_faster_machine(table, 1.15)


@law(10)
@given(table=updates(clusters=WITH_NVLINK))
def test_a_slower_nvlink_makes_no_update_shorter(table):
    check_faster(resolved(table, {"cluster.nvlink_bytes_per_s": {"times": 0.5}}), resolved(table), 1.15)


@pytest.mark.slow
@law(150)
@given(table=steps())
def test_a_faster_machine_makes_none_of_many_steps_longer(table):
    check_faster_machine(table, 1.01)


@pytest.mark.slow
@law(150)
@given(table=updates(clusters=WITH_NVLINK))
def test_nvlink_and_nics_make_none_of_many_updates_longer(table):
    check_faster_machine(table, 1.15)
    check_faster(resolved(table, {"cluster.nvlink_bytes_per_s": {"times": 0.5}}), resolved(table), 1.15)
