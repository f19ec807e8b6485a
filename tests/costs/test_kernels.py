"""What one kernel of a training step takes: laws that hold for every shape, and closed forms."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import engine
from runcast.simulator.costs.kernels import Kernels
from runcast.simulator.profile import load_profile

from ..examples import examples
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
@examples(200)
def test_fewer_rows_of_experts_never_take_longer(rows, fewer, local, inter, kind, profile):
    less, more = (
        experts_s(size, local, 4096, inter, kind, profile=profile) for size in (int(rows * fewer), rows)
    )  # fmt: skip
    assert less <= more * (1 + 1e-9)


@pytest.mark.parametrize(("dtype", "peak_tflops"), [("tf32", 494.7), ("fp32", 66.9)])
def test_attention_in_32_bits_takes_as_much_longer_as_its_products(dtype, peak_tflops):
    shape = (1, 8192, 32, 8, 128, 128, 1, 0, 1)
    narrow, wide = (float(kernels().estimate("attention", shape, 0, of).seconds[0]) for of in ("bf16", dtype))

    assert wide / narrow == pytest.approx(989.4 / peak_tflops, rel=1e-3)


@pytest.mark.parametrize("measured", ["gemm.fp32", "attention.fp32.forward"])
def test_attention_in_32_bits_is_as_it_was_measured_whatever_products_were(measured):
    """Products in tf32 are measured on GPUs whose attention is measured in 16 bits alone."""
    own = PROFILES["h100-sxm"]
    models = own.models["gemm.bf16" if measured.startswith("gemm") else "attention.forward"]
    profile = replace(own, models={**own.models, measured: models})
    found = Kernels(profile, profile.limits).estimate("attention", (1, 8192, 32, 8, 128, 128, 1, 0, 1), 0, "fp32")

    sizes = {"batch": 1, "seq": 8192, "heads": 32, "kv_heads": 8, "head_dim": 128, "causal": 1}
    kind = measured if measured.startswith("attention") else "attention.forward"
    longer = 1 if measured.startswith("attention") else 989.4 / 66.9
    assert float(found.seconds[0] / profile.estimate(kind, sizes).seconds[0]) == pytest.approx(longer, rel=1e-3)


@pytest.mark.parametrize(("dtype", "each"), [("nf4", 2.5625), ("nf4-double", 2.515869140625)])
@pytest.mark.parametrize("kind", ["gemm", "dgrad"])
def test_a_packed_matrix_is_made_16_bits_before_each_product(kind, dtype, each):
    one, shape = kernels(), (4096, 8192, 1024)
    plain, packed = (float(one.estimate(kind, shape, 0, of).seconds[0]) for of in ("bf16", dtype))

    rate = one.limits.memory_bytes_per_s * one.profile.value("link_fraction.hbm")
    assert packed - plain == pytest.approx(each * 8192 * 1024 / rate)


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("kind", DIRECTIONS[:2])
def test_experts_with_a_row_each_read_all_their_weights(kind, dtype):
    """Published tables of grouped products: 2 to 16 rows each reach 0.75 to 0.9 of the memory bandwidth by weights."""
    local, hidden, inter = 64, 7168, 2048
    one = kernels()
    weights = 3 * local * hidden * inter * {"bf16": 2, "fp8": 1}[dtype]
    read_s = weights / (one.limits.memory_bytes_per_s * one.profile.value("link_fraction.hbm"))
    assert read_s <= experts_s(local, local, hidden, inter, kind, dtype) <= 2.5 * read_s


@pytest.mark.parametrize("kind", [*DIRECTIONS, "gemm", "dgrad", "wgrad"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_no_product_beats_its_device(kind, dtype):
    """Whatever a fit says of rates in training."""
    fast = dict.fromkeys(("gemm.training_rate", "gemm.training_rate.fp8", "grouped_gemm.training_rate"), 5.0)
    profile = PROFILES["h100-sxm"].set_values(fast, "a test")
    shape = (2**16, 4096, 16384, 8, 8, 1, 1, 3) if kind in DIRECTIONS else (2**14, 2**13, 3 * 2**15)
    found = Kernels(profile, profile.limits).estimate(kind, shape, 0, dtype)
    flop = 2 * 3 * 2**16 * 4096 * 16384
    assert found.seconds[0] >= flop / profile.limits.flop_per_s[dtype]


def test_experts_without_rows_are_not_read():
    """Of 64 experts eight have a row: they take as long as eight experts with a row each."""
    assert experts_s(8, local=64) == pytest.approx(experts_s(8, local=8))


@pytest.mark.parametrize(("tokens", "chosen"), [(1, 8), (16, 128 - 128 * (15 / 16) ** 16), (4096, 128)])
def test_served_tokens_choose_their_experts_by_chance(tokens, chosen):
    """Each of 128 is left out by a token with 15/16: of 16 tokens 46 have no row, and cost nothing."""
    profile = PROFILES["h100-sxm"]
    sizes = {"tokens": tokens, "hidden": 2048, "inter": 768, "topk": 8, "tp": 1, "ep": 1, "skew": 0, "matrices": 3}
    expected = profile.estimate("grouped_gemm.bf16", {**sizes, "experts": chosen}, limits=profile.limits)
    served = Kernels(profile, profile.limits, served=True)
    found = served.estimate("experts", (8 * tokens, 2048, 768, 8, 128, 1, 1, 3), 0, "bf16")
    assert found.seconds == pytest.approx(expected.seconds)


def test_a_token_takes_as_long_with_any_number_of_experts_beside_its_own():
    sizes = {"tokens": 1, "hidden": 2048, "inter": 768, "topk": 8, "tp": 1, "ep": 1, "skew": 0, "matrices": 3}
    found = {
        experts: float(PROFILES["h100-sxm"].estimate("grouped_gemm.bf16", {**sizes, "experts": experts}).seconds[0])
        for experts in (8, 64, 256)
    }
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("each", [512, 1024, 4096])
def test_well_filled_experts_lose_a_tile_each(profile, each):
    """With hundreds of rows each they take as long as one dense network over all rows, and 128 rows more per expert."""
    local, hidden, inter = 16, 4096, 1536
    fraction = PROFILES[profile].value_or("grouped_gemm.training_rate", 1.0)
    shapes = (each * local, 2 * inter, hidden), (each * local, hidden, inter)
    dense = sum(float(kernels(profile).estimate("gemm", shape, 0, "bf16").seconds[0]) for shape in shapes)
    swiglu = float(kernels(profile).estimate("swiglu", (inter,), 6 * each * local * inter, "bf16").seconds[0])
    assert experts_s(each * local, local, hidden, inter, profile=profile) == pytest.approx(
        dense / fraction * (each + 128) / each + swiglu, rel=0.06
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


PRODUCTS = ("gemm", "dgrad", "wgrad")
widths = st.integers(256, 20_000)


def product_s(m, n, k, kind="gemm", dtype="bf16", profile="h100-sxm"):
    """Seconds of one direction of a linear layer of `m` tokens, `n` outputs and `k` inputs."""
    shape = {"gemm": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[kind]
    return float(kernels(profile).estimate(kind, shape, 0, dtype).seconds[0])


@given(m=st.sampled_from([512, 4096, 8192]), n=widths, k=widths, kind=st.sampled_from(PRODUCTS))
@examples(200)
def test_an_awkward_product_takes_longer_than_one_cut_to_whole_rows_and_no_less_than_one_padded(m, n, k, kind):
    """Rows of whole 32 bytes are 16 elements of 16 bits."""
    awkward = product_s(m, n, k, kind)
    cut, padded = (product_s(m, *(round_to(size) for size in (n, k)), kind) for round_to in (lower, higher))
    assert cut <= awkward * (1 + 1e-9)
    assert padded <= awkward * (1 + 1e-9)


def lower(size):
    return size // 16 * 16


def higher(size):
    return -(-size // 16) * 16


@pytest.mark.parametrize("kind", PRODUCTS)
def test_products_with_aligned_rows_take_what_the_profile_says_for_any_number_of_tokens(kind):
    """The tables that profiles are fitted to have weights of whole 64 bytes, and odd numbers of tokens."""
    settled = PROFILES["h100-sxm"].value_or("gemm.training_rate", 1.0)
    shape = (4001, 4112, 2064) if kind != "wgrad" else (4112, 2064, 4001)
    suffix = {"gemm": "", "dgrad": ".dgrad", "wgrad": ".wgrad"}[kind]
    plain = PROFILES["h100-sxm"].estimate(f"gemm.bf16{suffix}", dict(zip("mnk", shape, strict=True)))
    found = kernels().estimate(kind, shape, 0, "bf16")
    summed = moved_s("fp32_accumulate", 6 * shape[0] * shape[1]) if kind == "wgrad" else 0.0  # into sums of 32 bits
    assert float(found.seconds[0]) == pytest.approx(float(plain.seconds[0]) / settled + summed)
    assert (found.spread, found.provenance) == (plain.spread, plain.provenance)


@pytest.mark.parametrize(("dtype", "width", "factor"), [
    ("bf16", 4080, 1.0), ("bf16", 4088, 1.05), ("bf16", 4092, 2.2), ("bf16", 4094, 2.2), ("bf16", 4095, 4.6),
    ("fp8", 4064, 1.0), ("fp8", 4080, 1.05), ("fp8", 4088, 2.2), ("fp8", 4090, 4.6),
    ("tf32", 4088, 1.0), ("tf32", 4092, 1.05), ("tf32", 4094, 2.2), ("tf32", 4095, 2.2),
])  # fmt: skip
@pytest.mark.parametrize("weight", ["outputs", "inputs"])
def test_products_pay_for_the_least_aligned_row(dtype, width, factor, weight):
    aligned = {"bf16": 16, "fp8": 32, "tf32": 8}[dtype]
    other = -(-width // aligned) * aligned  # of as many tiles
    shape, neat = ((4096, width, 4096), (4096, other, 4096)) if weight == "outputs" else (
        (4096, 4096, width), (4096, 4096, other))  # fmt: skip
    assert uncast_s(*shape, dtype) / uncast_s(*neat, dtype) == pytest.approx(factor, rel=0.02)


def uncast_s(m, n, k, dtype):
    """Without what it takes to cast what enters a product in 8 bits."""
    return product_s(m, n, k, dtype=dtype) - (moved_s("quantize_by", 4 * m * k) if dtype == "fp8" else 0.0)


def moved_s(kernel, size):
    """What a kernel of H100 that was measured takes for so many bytes."""
    return float(PROFILES["h100-sxm"].estimate(f"memory.{kernel}", {"bytes": size}).seconds[0])


def test_awkward_shapes_are_less_sure_and_say_that_they_are_extrapolated():
    neat, odd = (kernels().estimate("gemm", (4096, n, 4096), 0, "bf16") for n in (50304, 50257))
    assert odd.spread[0] > neat.spread[0] + 0.2
    assert [*neat.labels(), *odd.labels()] == ["fitted", "extrapolated"]


def test_a_product_with_a_vector_has_no_rows_to_misalign():
    """The gate of a shared expert: one column."""
    assert product_s(8192, 1, 2048) < 1.1 * product_s(8192, 16, 2048)


COOKBOOK = [  # heads' size, seconds of attention, of the network: sizing/results/transformer_data (see the profile)
    (64, 0.0388, 0.0367), (65, 0.0533, 0.0382), (68, 0.0570, 0.0418), (72, 0.0454, 0.0468), (73, 0.0607, 0.0479),
    (74, 0.0490, 0.0496), (78, 0.0518, 0.0540), (79, 0.0657, 0.0572), (80, 0.0512, 0.0570), (81, 0.0672, 0.0600),
    (82, 0.0551, 0.0616), (88, 0.0572, 0.0683), (89, 0.0734, 0.0702),
]  # fmt: skip


@pytest.mark.parametrize(("size", "attention_s", "network_s"), COOKBOOK)
def test_layers_with_awkward_heads_take_what_was_measured_on_a100(size, attention_s, network_s):
    """Forward, unfused, 4 x 2048 tokens, 128 heads (EleutherAI/cookbook 27dff48, tensor_parallel_h_sweep.out).

    The factors are of other products of that repository (logits). Beyond: 68 takes longer than all sizes near it.
    """
    one = Kernels(unfitted := load_profile("a100-sxm", fitted=False), unfitted.limits)
    hidden, tokens, rows = 128 * size, 4 * 2048, 4 * 2048 * 128
    products = [(tokens, 3 * hidden, hidden), (rows, 2048, size), (rows, size, 2048), (tokens, hidden, hidden)]
    network = [(tokens, 4 * hidden, hidden), (tokens, hidden, 4 * hidden)]
    sums = [
        sum(float(one.estimate("gemm", shape, 0, "fp16").seconds[0]) for shape in shapes)
        for shapes in (products, network)
    ]
    softmax = float(one.estimate("softmax", (2048,), 13 * rows * 2048, "fp16").seconds[0])
    assert sums[0] + softmax == pytest.approx(attention_s, rel=0.17 if size == 68 else 0.12)
    assert sums[1] == pytest.approx(network_s, rel=0.08)


def attention(qk_dim, v_dim=None, kind="attention", **profile):
    shape = (1, 8192, 32, 8, qk_dim, v_dim or qk_dim, 1, 0, 1)
    return kernels(**profile).estimate(kind, shape, 0, "bf16")


@pytest.mark.parametrize("kind", ["attention", "attention_backward"])
@pytest.mark.parametrize(("size", "padded"), [(72, 96), (80, 96), (104, 128), (112, 128), (184, 192), (208, 224)])
def test_fused_attention_takes_as_long_as_with_heads_of_the_next_size(size, padded, kind):
    found, whole = attention(size, kind=kind), attention(padded, kind=kind)
    assert float(found.seconds[0]) == float(whole.seconds[0])
    assert found.spread[0] > whole.spread[0]
    assert found.labels() == ["extrapolated"]


@pytest.mark.parametrize("dims", [(64, 64), (96, 96), (128, 128), (160, 160), (192, 128), (256, 256)])
def test_heads_that_kernels_are_made_for_are_as_sure_as_ever(dims):
    sizes = {"batch": 1, "seq": 8192, "heads": 32, "kv_heads": 8, "head_dim": sum(dims) / 2, "causal": 1}
    plain = PROFILES["h100-sxm"].estimate("attention.forward", sizes)
    found = attention(*dims)
    assert (found.seconds, found.spread, found.provenance) == (plain.seconds, plain.spread, plain.provenance)


def test_heads_that_are_no_multiple_of_8_are_copied_first():
    """Queries, keys, values and results, padded to 192: three passes of two bytes, at the rate of copies."""
    elements = 8192 * (2 * 32 + 2 * 8) * 192
    copied = PROFILES["h100-sxm"].estimate("memory.copy", {"bytes": 6 * elements, "width": 192}).seconds[0]
    assert attention(180).seconds[0] == pytest.approx(attention(192).seconds[0] + copied)


@pytest.mark.parametrize(("kind", "bytes_moved"), [("gemm", 4.0), ("dgrad", 4.0), ("wgrad", 0.0)])
def test_what_enters_a_product_in_8_bits_is_cast_along_rows_and_columns(kind, bytes_moved):
    """Read in 16 bits, written twice in 8; weight gradients find both there."""
    one, (m, n, k) = kernels(), (4096, 8192, 2048)
    plain = one._in_training(kind, (m, n, k), "fp8").seconds[0]
    if kind == "wgrad":
        plain = one._accumulated(one._in_training(kind, (m, n, k), "fp8"), m * n).seconds[0]

    cast_s = float(one.estimate(kind, (m, n, k), 0, "fp8").seconds[0] - plain)

    assert cast_s == pytest.approx(moved_s("quantize_by", bytes_moved * m * k) if bytes_moved else 0.0)


@pytest.mark.parametrize("kind", ["gemm", "experts"])
def test_8_bits_save_less_where_products_are_small(kind):
    """Casts grow with one side of a product, and its FLOP with all three."""

    def saved(width):
        if kind == "gemm":
            both = [kernels().estimate(kind, (8192, width, width), 0, dtype).seconds[0] for dtype in ("bf16", "fp8")]
        else:
            both = [experts_s(65536, 8, width, width, dtype=dtype) for dtype in ("bf16", "fp8")]
        return 1 - float(both[1] / both[0])

    assert saved(1024) < saved(4096) < saved(8192)


@pytest.mark.parametrize(("each", "lost"), [(128, 1 / 2), (384, 1 / 4)])
def test_experts_are_less_sure_by_the_share_of_rows_that_tiles_add(each, lost):
    one = kernels()
    tile = one.profile["grouped_gemm.tile_rows"]
    exact = {"grouped_gemm.tile_rows": replace(tile, spread=0.0)}
    certain = replace(one.profile, parameters={**one.profile.parameters, **exact})
    shape = (16 * each, 4096, 1536, 1, 16, 1, 1, 3)
    here, there = (float(of.estimate("experts", shape, 0, "bf16").spread[0])
                   for of in (one, replace(one, profile=certain)))  # fmt: skip
    assert here**2 - there**2 == pytest.approx((lost * tile.spread) ** 2)


@pytest.mark.parametrize(("state", "bound"), [(1, "memory"), (16, "exponentials"), (64, "exponentials")])
def test_a_selective_scan_is_bound_by_memory_or_by_its_exponentials(state, bound):
    """16 of a clock and SM (CUDA C++ programming guide), whatever the memory."""
    one, elements = kernels("b200-sxm"), 1 << 26
    found = one.estimate("selective_scan", (4096, elements * state), 4 * 2 * elements, "bf16")

    plain = one.estimate("scan", (4096,), 4 * 2 * elements, "bf16").seconds[0]
    exponentials = elements * state / (one.limits.sms * one.profile.value("scan.sm_exp_per_s"))
    assert float(found.seconds[0]) == pytest.approx({"memory": plain, "exponentials": exponentials}[bound])
