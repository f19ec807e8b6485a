"""Kernels: what holds of the formulas whatever their coefficients, within the bounds that a fit keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.hardware import Limits
from runcast.simulator.profile.forms import cost_class

from ..examples import examples

FLOP_PER_S, MEMORY = {"bf16": 1e15, "fp8": 2e15}, 3e12
H = Limits(FLOP_PER_S, MEMORY, 100, 50e6, 400e9, 60e9, 50e9, 8)

WIDE = {"gemm.bf16": 2, "gemm.fp8": 1}
"""Bytes of an element of A and B."""

DIMENSIONS = st.integers(1, 40_000)
PRODUCTS = st.sampled_from(sorted(WIDE))


def seconds(kind, coefficients, limits=H, **features):
    known = cost_class(kind)
    return known.form.seconds(known.columns(features, limits), limits, coefficients)


def started(kind):
    return {c.name: c.start for c in cost_class(kind).form.coefficients}


@st.composite
def allowed(draw, kind, most=np.inf):
    """Coefficients anywhere in their bounds; those of efficiencies at most `most`."""
    found = {}
    for c in cost_class(kind).form.coefficients:
        high = min(c.high, most) if c.name.startswith("e") else c.high
        found[c.name] = float(np.exp(np.log(c.low) + draw(st.floats(0, 1)) * np.log(high / c.low)))
    return found


@examples(60)
@given(st.data(), PRODUCTS, DIMENSIONS, DIMENSIONS, DIMENSIONS, st.sampled_from(["m", "n", "k"]))
def test_a_larger_product_never_takes_less_time(data, kind, m, n, k, grown):
    c, shape = data.draw(allowed(kind)), {"m": m, "n": n, "k": k}
    small, large = seconds(kind, c, **shape), seconds(kind, c, **shape | {grown: 2 * shape[grown]})
    assert small[0] <= large[0] * (1 + 1e-12)


@examples(60)
@given(st.data(), PRODUCTS, DIMENSIONS, DIMENSIONS, DIMENSIONS)
def test_twice_the_peak_or_the_bandwidth_never_slows_a_product(data, kind, m, n, k):
    c = data.draw(allowed(kind))
    twice = {dtype: 2 * rate for dtype, rate in FLOP_PER_S.items()}
    faster = [
        Limits(twice, MEMORY, 100, 50e6, 400e9, 60e9, 50e9, 8),
        Limits(FLOP_PER_S, 2 * MEMORY, 100, 50e6, 400e9, 60e9, 50e9, 8),
    ]
    here = seconds(kind, c, m=m, n=n, k=k)[0]
    assert max(seconds(kind, c, limits, m=m, n=n, k=k)[0] for limits in faster) <= here * (1 + 1e-12)


@examples(60)
@given(st.data(), PRODUCTS, DIMENSIONS, DIMENSIONS, DIMENSIONS)
def test_no_product_beats_the_data_sheet(data, kind, m, n, k):
    c = data.draw(allowed(kind, most=1.0))
    moved = WIDE[kind] * (m * k + n * k) + 2 * m * n
    least = max(2 * m * n * k / FLOP_PER_S[kind.partition(".")[2]], moved / MEMORY)
    assert seconds(kind, c, m=m, n=n, k=k)[0] >= least * (1 - 1e-12)


def test_a_tile_more_than_a_wave_costs_a_wave_more():
    whole = started("gemm.bf16") | {"s": 1.0, "q": 0.8, "p": 8.0, "sk": 10.0}
    full, more = seconds("gemm.bf16", whole, m=[256 * 10, 256 * 10 + 1], n=128 * 10, k=65536)
    assert more > 1.2 * full


def test_a_cast_to_eight_bits_reads_sixteen_and_writes_eight():
    cast, endless = started("gemm.fp8"), started("gemm.fp8") | {"e_q": 1e9}
    shape = {"m": 4096, "n": 4096, "k": 8192}
    reading = seconds("gemm.fp8", cast, **shape) - seconds("gemm.fp8", endless, **shape)
    assert reading == pytest.approx(3 * 4096 * 8192 / (MEMORY * cast["e_q"]), rel=1e-6)


def test_a_product_in_eight_bits_is_written_in_sixteen():
    c = started("gemm.fp8") | {"t0_s": 0.0, "e_q": 1e9, "p": 1e3, "e_m": 1.0}
    read, written = 40_000 + 20_000, 2 * 40_000 * 20_000
    assert seconds("gemm.fp8", c, m=40_000, n=20_000, k=1) == pytest.approx((read + written) / MEMORY)


@pytest.mark.parametrize(("have", "asked"), [("bf16", "fp16"), ("fp16", "bf16")])
def test_one_16_bit_type_stands_for_the_other(have, asked):
    one = Limits({have: 1e15}, MEMORY, 100, 50e6, 400e9, 60e9, 50e9, 8)
    c, shape = started("gemm.bf16"), {"m": 4096, "n": 4096, "k": 4096}
    assert seconds(f"gemm.{asked}", c, one, **shape) == seconds("gemm.bf16", c, H, **shape)


def test_a_type_that_the_device_lacks_is_the_users_mistake():
    with pytest.raises(UserError) as caught:
        seconds("gemm.fp4", started("gemm.fp4"), m=1, n=1, k=1)
    assert caught.value.faults == ("dtype = 'fp4': the device has no fast path for it; it has bf16, fp8",)


# ---- attention and memory-bound kernels: what any sane formula keeps

HEADS = {"heads": 32, "kv_heads": 8, "head_dim": 128}


@pytest.mark.parametrize("kind", ["attention.forward", "attention.backward"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("grown", ["seq", "batch", "heads"])
def test_more_attention_takes_longer(kind, causal, grown):
    shape = HEADS | {"batch": 2, "seq": 2048, "causal": causal, grown: [2**i for i in range(6, 15)]}
    times = seconds(kind, started(kind), **shape)
    assert 0 < 4 * times[0] < times[-1] < np.inf
    assert (np.diff(times) >= 0).all()


def test_causal_attention_has_half_the_work_of_full():
    known = cost_class("attention.forward")
    causal, full = known.axes["flop"](known.columns(HEADS | {"batch": 2, "seq": 4096, "causal": [1, 0]}, H))
    assert (causal, full) == (2 * 2 * 32 * 128 * 4096**2, 2 * causal)


def test_long_causal_attention_takes_about_half_as_long_as_full():
    shape = HEADS | {"batch": 1, "seq": 65536, "causal": [1, 0]}
    causal, full = seconds("attention.forward", started("attention.forward"), **shape)
    assert 0.4 < causal / full < 0.65


@given(st.floats(1, 1e12))
def test_a_memory_bound_kernel_takes_positive_time_that_rises(size):
    times = seconds("memory.add", started("memory.add"), bytes=[size, 2 * size])
    assert 0 < times[0] <= times[1] < np.inf


def test_endless_memory_bound_kernels_reach_their_share_of_the_bandwidth():
    c = started("memory.add")
    assert 1e15 / seconds("memory.add", c, bytes=1e15)[0] == pytest.approx(MEMORY * c["e"], rel=0.01)


def test_a_memory_bound_kernel_is_linear_beyond_the_cache():
    times = seconds("memory.add", started("memory.add"), bytes=[1e13, 2e13, 4e13])
    assert times / times[0] == pytest.approx([1, 2, 4], rel=0.01)


# ---- experts

SHAPE = {"tokens": 8192, "hidden": 4096, "inter": 1536, "topk": 8, "experts": 128, "tp": 1, "ep": 8, "matrices": 3}


def test_balanced_experts_do_not_depend_on_what_skew_costs():
    even, skewed = started("grouped_gemm.bf16"), started("grouped_gemm.bf16") | {"q": 1.0, "s": 3.0}
    assert seconds("grouped_gemm.bf16", even, **SHAPE, skew=0) == seconds("grouped_gemm.bf16", skewed, **SHAPE, skew=0)


@examples(40)
@given(st.data(), st.floats(0.01, 2), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_skewed_experts_are_never_faster_than_balanced_ones(data, skew, ep):
    c = data.draw(allowed("grouped_gemm.bf16"))
    balanced, skewed = seconds("grouped_gemm.bf16", c, **SHAPE | {"ep": ep}, skew=[0, skew])
    assert skewed >= balanced


def test_experts_by_hand():
    c = {"t0_s": 1e-5, "e": 0.5, "r0": 64.0, "e_a": 0.5, "e_w": 1.0, "q": 0.5, "s": 1.0}
    rows, weights = 8192, 3 * 4096 * 1536  # 8,192 tokens x 8 experts of each over 8 ranks; one expert
    computed = 2 * rows * weights / (1e15 * 0.5 * 512 / (512 + 64))
    activations = 2 * rows * (2 * 4096 + 3 * 1536) / (MEMORY * 0.5)
    crowded = 8**0.5 * (1 + 1.0 * 1.2)
    by_hand = 1e-5 + (computed + activations) * crowded + 2 * 16 * weights / MEMORY
    assert seconds("grouped_gemm.bf16", c, **SHAPE, skew=1.2) == pytest.approx(by_hand)


def test_a_call_costs_its_items():
    assert list(seconds("host.launch", {"item_s": 2e-6}, count=[1, 1000])) == pytest.approx([2e-6, 2e-3])
