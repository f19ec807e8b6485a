"""Makespan, bubble and memory of each schedule against the formulas of its paper."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.schedules import build, dry_run, peaks

UNITS = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
TILTED = {"F": 1.0, "I": 1.2, "W": 0.9}
FROM_3_TO_16 = [3, 4, 5, 6, 7, 8, 9, 10, 12, 16]

ranks, batches, times = st.integers(1, 7), st.integers(1, 20), st.integers(1, 30)


@given(st.sampled_from(["gpipe", "1f1b"]), ranks, batches, times, times)
def test_gpipe_and_1f1b_makespan(name, p, m, f, b):
    dry = dry_run(build(name, p, m), {"F": f, "B": b})

    assert (dry.makespan, dry.bubble) == ((m + p - 1) * (f + b), (p - 1) * (f + b))


@given(ranks, batches, st.integers(1, 4))
def test_a_pipeline_of_several_passes_is_filled_and_emptied_in_each(p, m, passes):
    """A rank begins its next pass when it has ended its own, so that the last forward waits for its turn alone."""
    dry = dry_run(build("1f1b", p, m).repeat(passes), {"F": 1, "B": 2})

    assert dry.makespan == passes * 3 * (m + p - 1)


@given(ranks, batches)
def test_gpipe_and_1f1b_peaks(p, m):
    held = (peaks(build("gpipe", p, m)), peaks(build("1f1b", p, m)))

    assert held == ((m,) * p, tuple(min(m, p - r) for r in range(p)))


@pytest.mark.parametrize(("name", "held"), [("gpipe", (8, 8, 8, 8)), ("1f1b", (4, 3, 2, 1))])
def test_gpipe_and_1f1b_of_4_ranks_and_8_microbatches(name, held):
    dry = dry_run(build(name, 4, 8), UNITS)

    assert (dry.makespan, dry.peaks) == (33, held)


@pytest.mark.parametrize(
    ("name", "idle", "held"), [("zb-h1", (3, 2, 1, 0), (4, 4, 4, 4)), ("zb-h2", (0, 0, 0, 0), (7, 7, 7, 7))]
)
def test_zero_bubble_of_4_ranks_and_8_microbatches(name, idle, held):
    dry = dry_run(build(name, 4, 8), UNITS)

    assert (dry.makespan, dry.work, dry.idle, dry.peaks) == (27, (24,) * 4, idle, held)


def test_zero_bubble_with_unequal_times():
    h1, h2 = (dry_run(build(name, 4, 16), TILTED) for name in ("zb-h1", "zb-h2"))

    assert [h1.bubble, h1.idle[0], h2.idle[0]] == pytest.approx([3.9, 3.9, 1.2])


@given(ranks, st.integers(1, 3), times, times, st.data())
def test_zb_h1_bubble(p, more, f, i, data):
    """`(p-1)(F+I-W)`, as long as W is no longer than what it fills."""
    w = data.draw(st.integers(0, min(f, i)))

    dry = dry_run(build("zb-h1", p, p * more + p), {"F": f, "I": i, "W": w})

    assert dry.bubbles == ((p - 1) * (f + i - w),) * p


@given(ranks, st.integers(1, 3), times, times, st.data())
def test_zb_h2_idle_of_the_first_rank(p, more, f, i, data):
    """`(p-1)(F+I-2W)` where W fits into half of F+I, and the stagger of the starts besides."""
    w = data.draw(st.integers(0, min(f, i)))

    dry = dry_run(build("zb-h2", p, 2 * p + more), {"F": f, "I": i, "W": w})

    assert (dry.idle[0], dry.makespan >= dry.work[0] + (p - 1) * f) == ((p - 1) * (f + i - 2 * w), True)


@given(ranks, st.integers(0, 6))
def test_zero_bubble_peaks(p, more):
    held = (peaks(build("zb-h1", p, p + more)), peaks(build("zb-h2", p, 2 * p - 1 + more)))

    assert held == ((p,) * p, (2 * p - 1,) * p)


@given(ranks, st.integers(0, 12))
def test_zb_v_has_no_idle_rank_and_the_memory_of_1f1b(p, more):
    dry = dry_run(build("zb-v", p, 2 * p + more), UNITS)

    assert (dry.idle, dry.bubble, max(dry.peaks)) == ((0,) * p, p - 1, 2 * p)


@pytest.mark.parametrize("p", FROM_3_TO_16)
def test_v_half(p):
    dry = dry_run(build("v-half", p, 3 * p), UNITS)

    assert (dry.bubble, max(dry.peaks)) == ((3 * p - 4, p + 1) if p % 2 else (3 * p - 7, p + 2))


@pytest.mark.parametrize("p", FROM_3_TO_16)
def test_v_min(p):
    dry = dry_run(build("v-min", p, 3 * p), UNITS)

    assert (dry.bubble, max(dry.peaks)) == (4 * p - 5 if p % 3 else 4 * p - 7, 2 * ((p + 1) // 3 + 1))


def dual(name: str, stages: int, microbatches: int, seconds: dict[str, float], pair: float):
    """Of the same number of stages: DualPipe on as many ranks, DualPipeV on half, with half the micro-batches."""
    half = 2 if name == "dualpipe-v" else 1
    return dry_run(build(name, stages // half, microbatches // half), seconds, lambda *_: pair)


@pytest.mark.parametrize("name", ["dualpipe", "dualpipe-v"])
@pytest.mark.parametrize(
    ("stages", "microbatches", "seconds", "pair", "makespan", "most_idle"),
    [
        (8, 20, UNITS, 3.0, 66.0, 6.0),
        (8, 20, UNITS, 2.4, 57.6, 4.2),
        (4, 8, UNITS, 3.0, 26.0, 2.0),
        (8, 20, {"F": 1.0, "W": 0.8, "I": 1.2, "B": 2.0}, 2.5, 60.2, 5.7),  # the formula says 6.3: B - W is not F
    ],
)
def test_dualpipe_makespan(name, stages, microbatches, seconds, pair, makespan, most_idle):
    dry = dual(name, stages, microbatches, seconds, pair)

    assert (dry.makespan, dry.bubble) == pytest.approx((makespan, most_idle))


@pytest.mark.parametrize("name", ["dualpipe", "dualpipe-v"])
@given(st.integers(1, 5), st.integers(0, 5), times, st.data())
def test_dualpipe_bubble_where_the_input_gradient_takes_as_long_as_the_forward(name, h, more, f, data):
    """And W no longer than F: a longer one would fill more than the formula lets it."""
    w = data.draw(st.integers(0, f))
    pair = data.draw(st.integers(f + w, 2 * f + w))

    dry = dual(name, 2 * h, 2 * (2 * h + more), {"F": f, "B": f + w, "I": f, "W": w}, pair)

    assert dry.bubble == (h - 1) * (pair + (f + w) - 3 * w)


@given(st.integers(1, 5), st.integers(0, 5))
def test_dualpipe_peaks(h, more):
    two, one = build("dualpipe", 2 * h, 2 * (2 * h + more)), build("dualpipe-v", h, 2 * h + more)

    assert (peaks(two), peaks(one)) == ((2 * h + 1,) * 2 * h, (2 * h + 1,) * h)


@given(st.integers(1, 4), st.integers(0, 4))
def test_dualpipe_v_is_the_lower_half_of_dualpipe(h, more):
    n = 2 * h + more
    two, one = build("dualpipe", 2 * h, 2 * n), build("dualpipe-v", h, n)

    other_way = [
        tuple(tuple(a._replace(stage=2 * h - 1 - rank, microbatch=a.microbatch - n) if a.microbatch >= n else a
                    for a in cell) for cell in two.rows[rank])
        for rank in range(h)
    ]  # fmt: skip

    assert tuple(other_way) == one.rows
