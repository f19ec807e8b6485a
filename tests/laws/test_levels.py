"""The coarser level takes what kernels take, also where exchanges inside actions meet gradients or copies on links.

What an action asks of links is a mean over its seconds, and what it loses there a mean for each kind of op beside it.

Where a host is too slow (eager PyTorch, for small steps) the levels differ: an action of the coarser level takes
at least what its host takes, while hosts issue ahead as long as their stage waits for others. So a stack with that much
host work is left out here; `docs/training.md` says so.
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


def plans(clusters):
    return steps(clusters=clusters, stacks=AHEAD, zero=(0, 1, 1, 2))


def check_levels(table, within):
    fine, coarse = (seconds(resolved(table | {"level": level})) for level in ("kernels", "coarse"))

    assert coarse == pytest.approx(fine, rel=within)


def check_offload(table, share, within):
    check_levels(table | {"offload": {"activations": share}}, within)


def test_both_levels_take_as_long_where_experts_and_gradients_crowd_nics():
    """ZeRO-2 reduces two kinds of gradients while experts of the next micro-batch exchange tokens: three on a NIC."""
    check_levels(CROWDED, 0.02)


@law(8)
@given(table=plans(NVLINK))
def test_both_levels_take_as_long(table):
    check_levels(table, 0.02)


@law(8)
@given(table=plans(PCIE))
def test_both_levels_take_as_long_over_pcie(table):
    check_levels(table, 0.02)


@law(8)
@given(table=plans(NVLINK), share=SHARES)
def test_both_levels_take_as_long_with_activations_on_the_host(table, share):
    check_offload(table, share, 0.02)


@pytest.mark.slow
@law(150)
@given(table=plans(NVLINK))
def test_both_levels_take_as_long_in_many_steps(table):
    """Most within 0.5 %; the worst, 1.8 %, has four layers of experts on H800, whose NVLink is narrow."""
    check_levels(table, 0.02)


@pytest.mark.slow
@law(100)
@given(table=plans(PCIE), share=SHARES)
def test_both_levels_take_as_long_in_many_steps_over_pcie(table, share):
    """With activations on the host all crosses one port."""
    check_levels(table, 0.02)
    check_offload(table, share, 0.03)


@pytest.mark.slow
@law(100)
@given(table=plans(NVLINK), share=SHARES)
def test_both_levels_take_as_long_in_many_steps_with_activations_on_the_host(table, share):
    check_offload(table, share, 0.02)
