"""The coarser level takes what kernels take, also where exchanges inside actions meet gradients or copies on links.

What an action loses to what runs beside it is a mean over forwards and backwards. Copies to the host run beside
forwards alone and those from it beside backwards: steps of a few layers that offload may differ by a little more.

Where a host is too slow (nanotron's, for small steps) the levels differ: an action of the coarser level takes at least
what its host takes, while hosts issue ahead as long as their stage waits for others. So a stack with that much host
work is left out here; `docs/training.md` says so.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .plans import STACKS, steps
from .predict import law, resolved, seconds

AHEAD = tuple(stack for stack in STACKS if stack != "nanotron")
PLANS = steps(stacks=AHEAD, zero=(0, 1, 1, 2))
SHARES = st.sampled_from([0.1, 0.3, 1.0])


def check_levels(table, within=0.02):
    fine, coarse = (seconds(resolved(table | {"level": level})) for level in ("kernels", "coarse"))

    assert coarse == pytest.approx(fine, rel=within)


@law(15)
@given(table=PLANS)
def test_both_levels_take_as_long(table):
    check_levels(table)


@law(10)
@given(table=PLANS, share=SHARES)
def test_both_levels_take_as_long_with_activations_on_the_host(table, share):
    check_levels(table | {"offload": {"activations": share}}, within=0.03)


@pytest.mark.slow
@law(150)
@given(table=PLANS)
def test_both_levels_take_as_long_in_many_steps(table):
    check_levels(table)


@pytest.mark.slow
@law(100)
@given(table=PLANS, share=SHARES)
def test_both_levels_take_as_long_in_many_steps_with_activations_on_the_host(table, share):
    check_levels(table | {"offload": {"activations": share}}, within=0.03)
