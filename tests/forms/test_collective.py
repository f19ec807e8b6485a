"""Collectives and transfers: closed forms worked out by hand, on links of round numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.hardware import Limits
from runcast.simulator.profile.forms import BUS_FACTOR, cost_class
from runcast.simulator.profile.forms.form import p_norm

H = Limits({"bf16": 1e15}, 3e12, 100, 50e6, 400e9, 60e9, 50e9, 8)
"""Links of 400 GB/s, eight NICs of 50 GB/s."""

RINGS = ["all_gather", "reduce_scatter", "broadcast"]


def seconds(kind, coefficients, **features):
    known = cost_class(kind)
    (found,) = known.form.seconds(known.columns(features, H), H, coefficients)
    return found


def bound(kind, name):
    return next(c.high for c in cost_class(kind).form.coefficients if c.name == name)


@pytest.mark.parametrize(
    ("op", "of_two", "of_eight", "of_sixteen"),
    [
        ("all_reduce", 1, 14 / 8, 30 / 16),
        ("all_gather", 1 / 2, 7 / 8, 15 / 16),
        ("reduce_scatter", 1 / 2, 7 / 8, 15 / 16),
        ("all_to_all", 1 / 2, 7 / 8, 15 / 16),
        ("broadcast", 1, 1, 1),
        ("reduce", 1, 1, 1),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(op, of_two, of_eight, of_sixteen):
    assert list(BUS_FACTOR[op](np.array([2.0, 8, 16]))) == [of_two, of_eight, of_sixteen]


@pytest.mark.parametrize(("op", "steps", "through"), [("all_reduce", 6, 1.5), ("all_gather", 3, 0.75)])
def test_a_collective_in_a_node_by_hand(op, steps, through):
    c = {"a_s": 10e-6, "h_s": 2e-6, "c_s": 3e-6, "g": 0.5, "e": 0.5}
    by_hand = 10e-6 + 2e-6 * steps + 3e-6 * (4 * through) ** 0.5 + 4e6 * through / 200e9
    assert seconds(op, c, bytes=4e6, gpus=4) == pytest.approx(by_hand)


@pytest.mark.parametrize(("kind", "rate"), [("send_recv", 400e9), ("send_recv.network", 50e9), ("copy.h2d", 60e9)])
def test_a_transfer_is_its_start_and_its_bytes(kind, rate):
    assert seconds(kind, {"a_s": 5e-6, "e": 0.8}, bytes=1e9) == pytest.approx(5e-6 + 1e9 / (0.8 * rate))


def test_a_copy_on_the_device_reads_and_writes():
    assert seconds("copy.d2d", {"a_s": 0.0, "e": 1.0}, bytes=3e9) == pytest.approx(2e-3)


def test_a_line_rate_that_is_given_wins():
    assert seconds("send_recv", {"a_s": 0.0, "e": 1.0}, bytes=1e9, link_bytes_per_s=1e9) == pytest.approx(1.0)


@pytest.mark.parametrize(("gpus", "nodes", "leaving"), [(16, 2, 8 / 16), (32, 4, 24 / 32), (8, 8, 7 / 8)])
def test_an_all_to_all_sends_over_the_network_what_is_for_other_nodes(gpus, nodes, leaving):
    share_of_nics = 400e9 * nodes / gpus
    by_hand = 20e-6 + 1e9 * leaving / (0.9 * share_of_nics)
    found = seconds("all_to_all.network", {"a_s": 20e-6, "e": 0.9}, bytes=1e9, gpus=gpus, nodes=nodes)
    assert found == pytest.approx(by_hand)


@pytest.mark.parametrize(("nodes", "efficiency"), [(2, 1.2), (3, 0.8), (4, 0.8), (64, 0.8)])
def test_an_all_reduce_has_a_bandwidth_of_its_own_at_two_nodes(nodes, efficiency):
    c = {"a_s": 10e-6, "h_s": 5e-6, "c": 0.1, "g": 0.5, "e": 0.8, "e2": 1.2}
    through = 4e6 * 2 * (8 * nodes - 1) / (8 * nodes)
    by_hand = (10e-6 + 10e-6 * np.log2(nodes)) * (1 + 0.1 * (through / 1e6) ** 0.5) + through / (efficiency * 400e9)
    assert seconds("all_reduce.network", c, bytes=4e6, gpus=8 * nodes, nodes=nodes) == pytest.approx(by_hand)


@pytest.mark.parametrize("op", RINGS)
def test_a_short_ring_adds_latency_to_bandwidth(op):
    moving = 1e8 * BUS_FACTOR[op](np.array([8.0]))[0] / 400e9
    found = seconds(f"{op}.network", {"a_s": 0.0, "h_s": moving / 7, "e": 1.0}, bytes=1e8, gpus=8, nodes=2)
    assert found == pytest.approx(2 * moving)


@pytest.mark.parametrize("op", RINGS)
def test_a_long_ring_overlaps_latency_and_bandwidth(op):
    moving = 1e9 * BUS_FACTOR[op](np.array([1024.0]))[0] / 400e9
    c = {"a_s": 0.0, "h_s": moving / 1008, "e": 1.0}
    found = seconds(f"{op}.network", c, bytes=1e9, gpus=1024, nodes=128)
    assert found == pytest.approx((15 / 1008 + 2 ** (1 / 4)) * moving)


@pytest.mark.parametrize("op", RINGS)
@given(st.floats(1e3, 1e10), st.floats(1e-8, 1e-4), st.integers(2, 512))
def test_more_ranks_never_make_a_ring_faster(op, size, hop, gpus):
    c = {"a_s": 1e-5, "h_s": hop, "e": 0.9}
    few, more = (seconds(f"{op}.network", c, bytes=size, gpus=n, nodes=2) for n in (gpus, gpus + 1))
    assert more >= few


def test_the_sum_overstates_a_long_ring_by_two_thirds():
    moving = 1e9 * 1023 / 1024 / 400e9
    ring = seconds("all_gather.network", {"a_s": 0.0, "h_s": moving / 1023, "e": 1.0}, bytes=1e9, gpus=1024, nodes=128)
    assert (moving + moving) / ring == pytest.approx(1.67, abs=0.01)


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_limits_of_the_p_norm(a, b):
    one, large = (p_norm(np.array([a]), np.array([b]), p)[0] for p in (1.0, 1e6))
    assert (one, large) == (pytest.approx(a + b), pytest.approx(max(a, b), rel=1e-5))


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 8))
def test_a_p_norm_lies_between_the_larger_one_and_the_sum(a, b, p):
    norm = p_norm(np.array([a]), np.array([b]), p)[0]
    assert max(a, b) <= norm <= (a + b) * (1 + 1e-12)


@pytest.mark.parametrize("op", BUS_FACTOR)
def test_bus_bandwidth_may_exceed_the_link_by_a_quarter_only_where_switches_reduce(op):
    assert bound(op, "e") == (1.25 if op == "all_reduce" else 1.1)


def test_powers_of_the_size_are_bounded():
    found = {c.name: (c.low, c.high) for c in cost_class("all_gather").form.coefficients}
    assert found["g"] == (0.2, 0.75)


@given(st.sampled_from(list(BUS_FACTOR)), st.floats(1, 1e10), st.integers(2, 72))
def test_a_collective_in_a_node_rises_with_its_size(op, size, gpus):
    c = {known.name: known.start for known in cost_class(op).form.coefficients}
    assert 0 < seconds(op, c, bytes=size, gpus=gpus) < seconds(op, c, bytes=2 * size, gpus=gpus)
