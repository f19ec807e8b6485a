"""What one kernel of a training step takes: laws that hold for every shape, and closed forms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runcast.simulator import engine
from runcast.simulator.costs.kernels import Kernels
from runcast.simulator.profile import load_profile

from ..lowering.steps import MOE, resolved

PROFILES = {name: load_profile(name) for name in ("a100-sxm", "h100-sxm", "b200-sxm")}
DIRECTIONS = ("experts", "experts_dgrad", "experts_wgrad")


def kernels(name="h100-sxm"):
    profile = PROFILES[name]
    return Kernels(profile, profile.limits)


def experts_s(rows, local=16, hidden=2048, inter=768, kind="experts", dtype="bf16", profile="h100-sxm"):
    """Seconds of `local` experts of one rank, which have so many rows together."""
    shape = (rows, hidden, inter, 8, local, 1, 1, 3)
    return float(kernels(profile).estimate(kind, shape, 0, dtype).seconds[0])


@given(
    rows=st.integers(0, 100_000), fewer=st.floats(0, 1), local=st.sampled_from([1, 2, 8, 16, 64, 256]),
    inter=st.sampled_from([512, 768, 1536, 2048, 14336]), kind=st.sampled_from(DIRECTIONS),
    profile=st.sampled_from(list(PROFILES)),
)  # fmt: skip
@settings(deadline=None, max_examples=200)
def test_fewer_rows_of_experts_never_take_longer(rows, fewer, local, inter, kind, profile):
    less, more = (
        experts_s(size, local, 4096, inter, kind, profile=profile) for size in (int(rows * fewer), rows)
    )  # fmt: skip
    assert less <= more * (1 + 1e-9)


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("kind", DIRECTIONS[:2])
def test_experts_with_a_row_each_read_all_their_weights(kind, dtype):
    """Published tables of grouped products: 2 to 16 rows each reach 0.75 to 0.9 of the memory bandwidth by weights."""
    local, hidden, inter = 64, 7168, 2048
    one = kernels()
    weights = 3 * local * hidden * inter * {"bf16": 2, "fp8": 1}[dtype]
    read_s = weights / (one.limits.memory_bytes_per_s * one.profile.value("link_fraction.hbm"))
    assert read_s <= experts_s(local, local, hidden, inter, kind, dtype) <= 2.5 * read_s


def test_experts_without_rows_are_not_read():
    """Of 64 experts eight have a row: they take as long as eight experts with a row each."""
    assert experts_s(8, local=64) == pytest.approx(experts_s(8, local=8))


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("each", [512, 1024, 4096])
def test_well_filled_experts_lose_a_tile_each(profile, each):
    """With hundreds of rows each they take as long as one dense product over all rows, and 128 rows more per expert."""
    local, hidden, inter = 16, 4096, 1536
    fraction = PROFILES[profile].given("grouped_gemm.sustained_fraction", 1.0)
    dense = sum(
        float(kernels(profile).estimate("gemm", shape, 0, "bf16").seconds[0])
        for shape in ((each * local, 2 * inter, hidden), (each * local, hidden, inter))
    )
    assert experts_s(each * local, local, hidden, inter, profile=profile) == pytest.approx(
        dense / fraction * (each + 128) / each, rel=0.06
    )


def test_longer_sequences_of_a_sparse_model_never_shorten_a_step():
    seconds = [coarse_step_s(seq_len) for seq_len in (8, 16, 32, 64, 128, 256, 512, 1024)]
    assert seconds == sorted(seconds)


def coarse_step_s(seq_len):
    """Of a sparse model whose experts have one row for each token of a sequence of 16."""
    wide = {"num_experts": 64, "num_experts_per_tok": 4, "hidden_size": 2048, "moe_intermediate_size": 768}
    step = resolved(
        8, 2, MOE, overrides=wide, parallel={"ep": 8}, batch={"seq_len": seq_len}, level="coarse"
    )  # fmt: skip
    return engine.simulate(step.program, step.costs).makespan_s
