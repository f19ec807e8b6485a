import heapq
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from runcast.simulator.systems.run.sync.overlap import GradientOverlap, exposed_s

SECONDS = st.floats(0.001, 1000)
LAYERS = st.integers(1, 40)


def exposed(order, step_s, exchange_s, layers, slices=1, latency_s=0.0, backward=2 / 3):
    """As `exposed_s`, with so many slices per layer: a layer's gradient has `slices` KiB."""
    size = 1024 if order == "priority" else None
    keys = GradientOverlap(order=order, slice=size, backward=backward)
    return exposed_s(keys, step_s, lambda n: exchange_s / n + latency_s, 1024 * slices * layers, layers)


def test_without_overlap_the_whole_exchange_is_exposed():
    assert exposed("none", step_s=3.0, exchange_s=2.0, layers=8, latency_s=0.25) == 2.25


def test_fifo_exposes_the_last_bucket_where_the_link_keeps_up():
    assert exposed("fifo", step_s=3.0, exchange_s=1.0, layers=4) == 0.25  # backward takes 2 s


def test_fifo_exposes_what_the_backward_pass_leaves_where_the_link_is_slower():
    """Backward emits at 0.5, 1, 1.5 and 2 s; the link is busy from 0.5 s to 4.5 s."""
    assert exposed("fifo", step_s=3.0, exchange_s=4.0, layers=4) == 2.5


@given(SECONDS, SECONDS, LAYERS)
def test_fifo_ends_with_its_last_bucket(step_s, exchange_s, layers):
    """Exposed = max(0, last bucket end - backward end), arXiv 2006.15704: one bucket after the other."""
    backward_s, end_s = step_s * 2 / 3, 0.0
    for bucket in range(1, layers + 1):
        end_s = max(end_s, bucket * backward_s / layers) + exchange_s / layers
    assert exposed("fifo", step_s, exchange_s, layers) == pytest.approx(max(0.0, end_s - backward_s))


def test_priority_sends_the_first_layer_first():
    """Two layers, backward 2 s, forward 1 s, 2 s of exchange each in slices of 1 s.

    Layer 1 is ready at 1 s and sends a slice; layer 0 is ready at 2 s, sends until 4 s, and its forward pass ends at
    4.5 s; layer 1 sends its other slice until 5 s, and its forward pass ends at 5.5 s instead of 3 s.
    """
    assert exposed("priority", step_s=3.0, exchange_s=4.0, layers=2, slices=2) == 2.5


def test_a_slice_that_has_begun_is_finished():
    """As above in one slice: layer 1 sends until 3 s, layer 0 until 5 s, and both forward passes end at 6 s."""
    assert exposed("priority", step_s=3.0, exchange_s=4.0, layers=2, slices=1) == 3.0


@given(SECONDS, SECONDS, LAYERS, st.integers(1, 50), st.floats(0.05, 0.95))
def test_priority_is_never_worse_than_fifo(step_s, exchange_s, layers, slices, backward):
    one = exposed("priority", step_s, exchange_s, layers, slices, backward=backward)
    assert one <= exposed("fifo", step_s, exchange_s, layers, backward=backward) + 1e-9 * (step_s + exchange_s)


@given(SECONDS, SECONDS, LAYERS, st.floats(0.05, 0.95))
def test_small_slices_expose_the_first_layer_and_what_no_step_can_hide(step_s, exchange_s, layers, backward):
    first_s = exchange_s / layers
    limit_s = first_s + (layers - 1) * max(0.0, first_s - step_s / layers)
    found_s = exposed("priority", step_s, exchange_s, layers, slices=100_000, backward=backward)
    assert found_s == pytest.approx(limit_s, rel=1e-3, abs=2e-5 * layers * first_s)


@given(st.sampled_from(["none", "fifo", "priority"]), SECONDS, SECONDS, LAYERS, st.integers(1, 9), st.floats(0, 0.01))
def test_a_step_takes_no_less_than_compute_or_exchange(order, step_s, exchange_s, layers, slices, latency_s):
    period_s = step_s + exposed(order, step_s, exchange_s, layers, slices, latency_s)
    assert period_s >= max(step_s, exchange_s) * (1 - 1e-9)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 8), st.integers(1, 5), st.floats(0, 0.1))
def test_one_step_says_what_all_others_take(step_s, exchange_s, layers, slices, latency_s):
    backward_s, forward_s = 2 * step_s / 3 / layers, step_s / 3 / layers
    ends = repeat(4, layers, backward_s, forward_s, slices, exchange_s / layers / slices + latency_s)
    period_s = step_s + exposed("priority", step_s, exchange_s, layers, slices, latency_s)
    assert [b - a for a, b in zip([0.0, *ends], ends, strict=False)] == pytest.approx([period_s] * 4)


def repeat(steps, layers, backward_s, forward_s, slices, slice_s):
    """Ends of steps, slice by slice: the lane takes the lowest layer that is ready, and never knows what a step is."""
    start_s, lane_s, ends = 0.0, 0.0, []
    for _ in range(steps):
        emitted = [(start_s + (layers - layer) * backward_s, layer) for layer in reversed(range(layers))]
        ready, left, done = [], [slices] * layers, [0.0] * layers
        while emitted or ready:
            if not ready:
                lane_s = max(lane_s, emitted[0][0])
            while emitted and emitted[0][0] <= lane_s * (1 + 1e-9):
                heapq.heappush(ready, emitted.pop(0)[1])
            lane_s += slice_s
            left[ready[0]] -= 1
            done[ready[0]] = lane_s
            if not left[ready[0]]:
                heapq.heappop(ready)
        start_s += layers * backward_s
        for end_s in done:
            start_s = max(start_s, end_s) + forward_s
        ends.append(start_s)
    return ends


def test_nothing_to_send_exposes_nothing():
    assert [exposed(order, 3.0, 0.0, 8) for order in ("none", "fifo", "priority")] == [0, 0, 0]


def test_latency_is_paid_per_slice():
    """One layer, all of it after the backward pass, in 4 slices."""
    assert exposed("priority", step_s=3.0, exchange_s=1.0, layers=1, slices=4, latency_s=0.5) == 3.0


def test_slices_are_counted_from_bytes():
    keys = GradientOverlap(order="priority", slice="4 MB", layers=10)
    found_s = exposed_s(keys, 1.0, lambda _: 0.01, gradient_bytes=90e6, layers=99)
    assert found_s == pytest.approx(ceil(9 / 4) * 0.01)


def test_a_scenario_may_say_how_many_layers():
    assert exposed_s(GradientOverlap(layers=4), 3.0, lambda n: 1.0 / n, 1e9, layers=1) == 0.25


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"order": "fifo", "slice": "4 MiB"}, "slice is for order = 'priority': order = 'fifo' sends whole layers"),
        ({"order": "best"}, "'none', 'fifo' or 'priority'"),
        ({"layers": 0}, "greater than 0"),
        ({"backward": 1.0}, "less than 1"),
    ],
)
def test_keys_that_do_not_go_together(keys, says):
    with pytest.raises(ValidationError, match=says):
        GradientOverlap(**keys)
