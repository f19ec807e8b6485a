import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import simulate
from runcast.simulator.base.errors import UserError
from runcast.simulator.systems.run.target import (
    Batch,
    BatchSteps,
    Target,
    batch_schedule,
    steps_factor,
)

from ..examples import examples

S_MIN, NOISE = 1000, 500
TARGET = Target(steps_min=S_MIN, noise_scale=NOISE)
BATCHES = st.floats(1, 1e7)


def target(*schedule, **others):
    return Target(steps_min=S_MIN, noise_scale=NOISE, batch=tuple(Batch(**one) for one in schedule), **others)


def all_steps(keys, batch):
    return sum(one.steps for one in batch_schedule(keys, batch))


@examples(50)
@given(BATCHES)
def test_steps_and_samples_lie_on_the_hyperbola_of_the_paper(batch):
    steps = all_steps(TARGET, batch)
    assert (steps / S_MIN - 1) * (steps * batch / (S_MIN * NOISE) - 1) == pytest.approx(1, rel=1e-6)


def test_a_very_large_batch_needs_the_fewest_steps():
    assert all_steps(TARGET, 1e15) == pytest.approx(S_MIN)


def test_a_very_small_batch_needs_the_fewest_samples():
    assert all_steps(TARGET, 1e-9) * 1e-9 == pytest.approx(S_MIN * NOISE)


def test_a_batch_of_the_noise_scale_needs_twice_the_fewest_steps_and_twice_the_fewest_samples():
    assert batch_schedule(TARGET, NOISE) == (BatchSteps(NOISE, 2 * S_MIN),)
    assert batch_schedule(TARGET, NOISE)[0].samples == 2 * S_MIN * NOISE


@examples(50)
@given(BATCHES, st.floats(1, 10))
def test_a_larger_batch_never_needs_more_steps_or_fewer_samples(batch, times):
    small, large = (batch_schedule(TARGET, b)[0] for b in (batch, batch * times))
    assert large.steps <= small.steps
    assert large.samples >= small.samples * (1 - 1e-12)


@pytest.mark.parametrize("start", [{}, {"from_samples": 0}, {"from_share": 0}])
def test_a_schedule_of_one_entry_is_a_constant_batch(start):
    assert batch_schedule(target({"batch": 64} | start), batch=1) == batch_schedule(TARGET, 64)


def test_a_schedule_by_samples_takes_these_samples_and_then_what_is_left():
    first, second = batch_schedule(target({"batch": 100}, {"batch": 500, "from_samples": 60_000}), 1)
    alone = S_MIN * (1 + NOISE / 100)  # 6000 steps, so that 600 of them are a tenth of the way
    assert (first.steps, second.steps) == pytest.approx((600, (1 - 600 / alone) * 2 * S_MIN))


def test_a_schedule_by_shares_splits_the_steps():
    first, second = batch_schedule(target({"batch": 100}, {"batch": 500, "from_share": 0.25}), 1)
    assert first.steps / (first.steps + second.steps) == pytest.approx(0.25)


def test_batch_sizes_after_the_target_are_not_used():
    assert batch_schedule(target({"batch": 100}, {"batch": 500, "from_samples": 1e9}), 1) == batch_schedule(TARGET, 100)


SCHEDULES = st.lists(st.tuples(BATCHES, st.floats(0.01, 0.99)), min_size=1, max_size=5, unique_by=lambda pair: pair[1])


@examples(100)
@given(SCHEDULES, st.sampled_from(["from_share", "from_samples"]), st.floats(1, 5))
def test_every_schedule_makes_all_of_the_progress_and_no_more(schedule, key, factor):
    scale = S_MIN * NOISE if key == "from_samples" else 1
    starts = [0, *sorted(share * scale for _, share in schedule[1:])]
    many = target(*({"batch": batch, key: start} for (batch, _), start in zip(schedule, starts, strict=True)))
    progress = sum(one.steps / many.steps_at(one.batch) for one in batch_schedule(many, 1, factor))
    assert progress == pytest.approx(factor)


@examples(50)
@given(SCHEDULES)
def test_a_schedule_lies_between_its_batch_sizes(schedule):
    starts = [0, *sorted(share for _, share in schedule[1:])]
    many = target(*({"batch": b, "from_share": start} for (b, _), start in zip(schedule, starts, strict=True)))
    alone = [TARGET.steps_at(batch) for batch, _ in schedule]
    assert min(alone) * (1 - 1e-9) <= all_steps(many, 1) <= max(alone) * (1 + 1e-9)


def test_llama_3_ramps_up_its_batch_at_the_tokens_of_its_report():
    """Batches of 4M, 8M and 16M tokens from 0, 252M and 2.87T tokens on (arXiv 2407.21783, section 3.4.1)."""
    ramp = ({"batch": 4e6}, {"batch": 8e6, "from_samples": 252e6}, {"batch": 16e6, "from_samples": 2.87e12})
    llama = Target(steps_min=5e5, noise_scale=1e7, batch=tuple(Batch(**one) for one in ramp))
    assert [one.samples for one in batch_schedule(llama, 1)[:2]] == pytest.approx([252e6, 2.87e12 - 252e6])


CURVES = {
    "stale_curve": ((4, 1.2), (8, 2)),
    "compression_curve": ((101, 1.5),),
    "local_curve": ((11, 1.1), (21, 1.5)),
}


@pytest.mark.parametrize(
    ("run", "factor"),
    [
        ({}, 1),
        ({"staleness": 2}, 1.1),
        ({"staleness": 4}, 1.2),
        ({"staleness": 6}, 1.6),
        ({"compression": 51}, 1.25),
        ({"local_steps": 16}, 1.3),
        ({"staleness": 8, "compression": 101, "local_steps": 21}, 2 * 1.5 * 1.5),
    ],
)
def test_between_points_a_curve_is_a_line_and_curves_multiply(run, factor):
    assert steps_factor(target(**CURVES), **run) == pytest.approx(factor)


def test_a_target_without_curves_knows_no_effect():
    assert steps_factor(TARGET, staleness=99, compression=1000, local_steps=500) == 1.0


def test_a_factor_of_compression_multiplies_the_steps():
    assert steps_factor(target(compression_factor=1.5)) == 1.5


def test_nothing_is_said_beyond_the_last_point_of_a_curve():
    with pytest.raises(UserError, match=r"stale_curve = 8.0: is its last point, but the run has 9: add a point there"):
        steps_factor(target(**CURVES), staleness=9)


WARM_UP = """
kind = "run"
cluster = "dgx-h100"
nodes = 1
level = "coarse"
model.preset = "llama3-8b"
batch = { global = 16, seq_len = 4096 }
parallel.tp = 4
recompute.mode = "full"
run.repeats = 1

[target]
steps_min = 10000
noise_scale = 65536
batch = [{ batch = 8192 }, { batch = 65536, from_share = 0.5 }]
"""
"""Half of all steps have two sequences, the others sixteen, on two replicas."""


@pytest.fixture
def warm_up(tmp_path):
    path = tmp_path / "warm-up.toml"
    path.write_text(WARM_UP)
    return path


def test_a_step_of_a_warm_up_takes_what_is_predicted_of_its_batch(warm_up):
    found = simulate(warm_up)
    steps = [one.steps for one in found.resolved.batch_schedule]
    alone_s = [simulate(warm_up, [f"batch.global={size}", "target.batch=[]"]).report.step_s for size in (2, 16)]

    assert found.report.wall_s == pytest.approx(np.dot(steps, alone_s), rel=1e-4)


def test_a_batch_that_does_not_divide_is_refused_with_those_that_do(warm_up):
    allowed = r"must be a multiple of 8,192 \(micro x dp = 1 x 2\), such as 8,192 or 16,384"

    with pytest.raises(UserError, match=rf"target\.batch\.0\.batch = 9000: {allowed}"):
        simulate(warm_up, ["target.batch.0.batch=9000"])
