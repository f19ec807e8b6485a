"""The rule by which flows share links, on cases that can be done by hand and by its own definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.engine import fair_speeds

from ..examples import examples

Case = tuple[list[dict[int, float]], list[float], list[float]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to 12 flows over up to 6 links; amounts repeat often, so that there are ties, or ratios are almost equal."""
    capacity = draw(st.lists(st.integers(2, 40).map(float), min_size=1, max_size=6))
    if draw(st.booleans()):
        rates = st.one_of(st.sampled_from([1.0, 2.0, 10.0]), st.floats(0.1, 20.0))
        demand = st.dictionaries(st.integers(0, len(capacity) - 1), rates, max_size=len(capacity))
    else:
        part = st.sampled_from([1.0, 0.999, 0.5])
        parts = st.dictionaries(st.integers(0, len(capacity) - 1), part, max_size=len(capacity))
        demand = parts.map(lambda found: {link: capacity[link] * of for link, of in found.items()})
    demands = draw(st.lists(demand, min_size=1, max_size=12))
    caps = draw(st.lists(st.sampled_from([1.0, 0.5, 0.1]), min_size=len(demands), max_size=len(demands)))
    return demands, capacity, caps


@examples(400)
@given(cases())
def test_every_flow_is_at_its_cap_or_has_the_most_on_a_full_link(case):
    demands, capacity, caps = case
    speeds = fair_speeds(*case)
    on_link = np.zeros((len(capacity), len(demands)))
    for f, demand in enumerate(demands):
        on_link[list(demand), f] = [speeds[f] * rate for rate in demand.values()]
    load, most = on_link.sum(axis=1), on_link.max(axis=1)
    bottlenecks = (load >= np.array(capacity) * (1 - 1e-6))[:, None] & (on_link >= most[:, None] * (1 - 1e-6))
    crossed = on_link > 0
    limited = (np.array(speeds) >= np.array(caps) * (1 - 1e-9)) | (bottlenecks & crossed).any(axis=0)
    assert limited.all()
    assert (load <= np.array(capacity) * (1 + 1e-6)).all()


def test_a_collective_and_a_copy_get_the_same_on_the_lane_that_both_fill():
    """An all-to-all of 160 on NVLink and 34.84 on a PCIe lane of 55.2, beside a copy that asks 55.17 of the lane."""
    speeds = fair_speeds([{0: 160.0, 1: 34.84}, {1: 55.17}], [160.0, 55.2])
    assert [34.84 * speeds[0], 55.17 * speeds[1]] == pytest.approx([27.6, 27.6])


def test_two_collectives_that_each_bound_the_other():
    """x + y / 2 = 1 on one link and x / 2 + y = 1 on the other, each flow with the most on its own: 2/3 both."""
    assert fair_speeds([{0: 1.0, 1: 0.5}, {0: 0.5, 1: 1.0}], [1.0, 1.0]) == pytest.approx([2 / 3, 2 / 3], rel=1e-12)


def test_flows_that_crowd_each_other_in_almost_equal_ratios_settle():
    """Of three on a ring of links: x + 0.999 x = 1."""
    ring = [{i: 1.0, (i + 1) % 3: 0.999} for i in range(3)]
    assert fair_speeds(ring, [1.0, 1.0, 1.0]) == pytest.approx([1 / 1.999] * 3, rel=1e-12)


def test_three_links_that_fill_together_settle():
    """On each x + 0.999 x = 1, or 0.999 x + x / 2 + x / 2 = 1; turns alone end with one filled to 110 %."""
    demands = [{0: 0.999, 2: 0.999}, {0: 1.0, 1: 0.999, 2: 0.5}, {1: 1.0, 2: 0.5}]
    assert fair_speeds(demands, [1.0, 1.0, 1.0]) == pytest.approx([1 / 1.999] * 3, rel=1e-12)


def test_a_capped_flow_leaves_its_share_to_the_others():
    assert fair_speeds([{0: 10.0}, {0: 10.0}, {0: 10.0}], [12.0], [0.2, 1.0, 1.0]) == [0.2, 0.5, 0.5]


def test_a_flow_without_links_runs_at_its_cap():
    assert fair_speeds([{}, {0: 4.0}], [2.0], [0.75, 1.0]) == [0.75, 0.5]


def test_a_stalled_flow_asks_nothing():
    assert fair_speeds([{0: 10.0}, {0: 10.0}], [10.0], [0.0, 1.0]) == [0.0, 1.0]
