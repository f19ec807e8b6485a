"""The coarser level takes what kernels take, also where exchanges inside actions meet gradients or copies on links.

What an action loses is a mean over the action, for each kind of op beside it by itself. Where all that a rank sends
crosses one PCIe port, exchanges, gradients and copies meet there three at a time, and each lasts longer for the others:
the coarser level sees less of that. So it is on NICs where ZeRO-2 reduces gradients of experts and of all else while
experts of the next micro-batch exchange tokens between nodes: `CROWDED` shows how far off that is.

Where a host is too slow (nanotron's, for small steps) the levels differ: an action of the coarser level takes at least
what its host takes, while hosts issue ahead as long as their stage waits for others. So a stack with that much host
work is left out here; `docs/training.md` says so.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .plans import CLUSTERS, STACKS, steps
from .predict import law, resolved, seconds

AHEAD = tuple(stack for stack in STACKS if stack != "nanotron")
PCIE = ("h100-pcie", "l40s-pcie")
NVLINK = tuple(name for name in CLUSTERS if name not in PCIE)
SHARES = st.sampled_from([0.1, 0.3, 1.0])


CROWDED = {
    "kind": "train_step", "cluster": "dgx-h100", "nodes": 4, "stack": "generic",
    "model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 4}},
    "parallel": {"tp": 4, "zero": 2, "ep": 4}, "batch": {"global": 32, "seq_len": 1024}, "recompute": {"mode": "none"},
}  # fmt: skip


def is_crowded(table):
    parallel, node = table["parallel"], 4 if table["cluster"] == "gb200-nvl72" else 8
    return parallel["zero"] == 2 and parallel.get("ep", 1) > 1 and parallel["ep"] * parallel["tp"] > node


def plans(clusters):
    found = steps(clusters=clusters, stacks=AHEAD, zero=(0, 1, 1, 2))
    return found.filter(lambda table: not is_crowded(table))


def check_levels(table, within):
    fine, coarse = (seconds(resolved(table | {"level": level})) for level in ("kernels", "coarse"))

    assert coarse == pytest.approx(fine, rel=within)


def check_offload(table, share, within):
    check_levels(table | {"offload": {"activations": share}}, within)


@pytest.mark.xfail(strict=True, reason="7.6 % shorter: three at a time on a NIC, and each pair counts by itself")
def test_both_levels_take_as_long_where_experts_and_gradients_crowd_nics():
    check_levels(CROWDED, 0.02)


@law(15)
@given(table=plans(NVLINK))
def test_both_levels_take_as_long(table):
    check_levels(table, 0.02)


@law(8)
@given(table=plans(PCIE))
def test_both_levels_take_as_long_over_pcie(table):
    check_levels(table, 0.04)


@law(8)
@given(table=plans(NVLINK), share=SHARES)
def test_both_levels_take_as_long_with_activations_on_the_host(table, share):
    check_offload(table, share, 0.03)


@pytest.mark.slow
@law(150)
@given(table=plans(NVLINK))
def test_both_levels_take_as_long_in_many_steps(table):
    """Most within 0.5 %; the worst, 2.1 %, has four layers of experts on H800, whose NVLink is narrow."""
    check_levels(table, 0.025)


@pytest.mark.slow
@law(100)
@given(table=plans(PCIE), share=SHARES)
def test_both_levels_take_as_long_in_many_steps_over_pcie(table, share):
    check_levels(table, 0.04)
    check_offload(table, share, 0.1)


@pytest.mark.slow
@law(100)
@given(table=plans(NVLINK), share=SHARES)
def test_both_levels_take_as_long_in_many_steps_with_activations_on_the_host(table, share):
    check_offload(table, share, 0.03)
