"""Numbers that only a measured profile has: ops take them where they are known, and what they took before elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
from runcast.simulator.base.op_kinds import op_kind
from runcast.simulator.collectives import STREAMS
from runcast.simulator.costs import Kernels, cost
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_numbers
from runcast.simulator.program import ProgramBuilder

CASTS_AND_SUMS = ("memory.quantize_by", "memory.cast_fp8", "memory.quantize_tiles", "memory.fp32_accumulate")
SHIPPED = load_numbers({"H100 SXM": "h100-sxm"}, "", "", "generic", "")
NUMBERS = replace(SHIPPED, models={kind: of for kind, of in SHIPPED.models.items() if kind not in CASTS_AND_SUMS})
NODE = cluster("dgx-h100", 1)
SIZE = 10**9


def measured(kernel, slower, like="memory.residual_add"):
    """The profile with a model of a kernel that takes so many times what another one does."""
    model = NUMBERS.model(like).convert(kernel)
    seconds = {"e": model.coefficients["e"] / slower, "a_s": model.coefficients["a_s"] * slower}
    return replace(
        NUMBERS, models={**NUMBERS.models, kernel: {"made": replace(model, coefficients=model.coefficients | seconds)}}
    )


def seconds(profile, kind, ranks=(0, 1), shape=(1,), machine=NODE):
    """What an op of 1 GB takes alone."""
    builder = ProgramBuilder()
    lanes = [builder.lane(builder.place(f"rank {rank}", [rank]), "lane") for rank in ranks]
    group = {"group": ranks} if len(ranks) > 1 else {}
    builder.op(kind, lanes, name=kind, size_bytes=SIZE, root=0, shape=shape, **group)
    return float(cost(builder.build(), machine, profile, STREAMS).uncontended_s[0])


def test_copies_to_the_host_have_a_rate_of_their_own():
    half = NUMBERS.set_values({"copy.d2h_fraction": 0.5, "h2d.latency_s": 0.0}, "a test")
    usual = NUMBERS.set_values({"h2d.latency_s": 0.0}, "a test")
    times = [seconds(profile, kind, (0,), ()) for kind in ("h2d", "d2h") for profile in (half, usual)]
    assert times == pytest.approx([times[1], times[1], 2 * times[3], times[3]])


def test_a_forward_over_nvlink_goes_at_the_rate_of_a_copy_to_another_gpu():
    peer = NUMBERS.set_values({"copy.p2p_fraction": 0.5, "rdma.latency_s": 0.0}, "a test")
    assert seconds(peer, "forward") == pytest.approx(SIZE / (0.5 * 450e9))


def test_the_bytes_of_a_reload_go_at_the_rate_of_its_copies():
    ends = {"reload.s": 0.0, "reload.tensor_s": 0.0, "reload.hbm_fraction": 0.25}
    found = seconds(NUMBERS.set_values(ends, "a test"), "reload", (0,), (1, SIZE))
    assert found == pytest.approx(2 * SIZE / (0.25 * 3.35e12), rel=1e-3)


def test_a_ring_without_nvlink_goes_at_its_measured_rate():
    none = dict.fromkeys(("broadcast.latency_s", "broadcast.message_s", "broadcast.hop_s"), 0.0)
    host = cluster({"base": "cpu-host", "gpus_per_node": 2}, 1)
    ring = NUMBERS.set_values({**none, "broadcast.link_fraction": 0.2, "link_fraction.c2c": 1.0}, "a test")
    assert seconds(ring, "broadcast", machine=host) == pytest.approx(SIZE / (0.2 * 20e9))


def test_a_pass_takes_what_its_kernel_takes():
    none = NUMBERS.set_values({"elementwise.tensor_s": 0.0}, "a test")
    mine = replace(none, models=measured("memory.quantize_tiles", 3.0).models)
    kernel = mine.estimate("memory.quantize_tiles", {"bytes": 1.5 * SIZE}, limits=NUMBERS.limits).seconds[0]
    assert seconds(mine, "quantize", (0,)) == pytest.approx(kernel)


@pytest.mark.parametrize("kind", ["grad_norm", "combine", "cross_entropy_backward"])
def test_a_kernel_borrows_a_model_only_until_it_is_measured(kind):
    own = f"memory.{op_kind(kind).own or kind}"
    mine = measured(own, 2.0)
    found = Kernels(mine, NUMBERS.limits).estimate(kind, (8192,), SIZE, "bf16")
    assert found.seconds == mine.estimate(own, {"bytes": SIZE, "width": 8192}, limits=NUMBERS.limits).seconds


@pytest.mark.parametrize(
    ("dtype", "kernel", "kind"),
    [
        ("fp8", "memory.quantize_by", "gemm"),
        ("fp8", "memory.cast_fp8", "gemm"),
        ("fp8-block", "memory.quantize_tiles", "gemm"),
        ("mxfp8", "memory.quantize_tiles", "dgrad"),
        ("bf16", "memory.fp32_accumulate", "wgrad"),
    ],
)
def test_casts_and_sums_take_what_their_kernels_take(dtype, kernel, kind):
    """Four bytes of each element of the input that is cast, six of each weight beside its gradient."""
    shape = (8192, 4096, 2048)
    size = 6.0 * 8192 * 4096 if kind == "wgrad" else 4.0 * 8192 * 2048
    products = [
        Kernels(one, NUMBERS.limits).estimate(kind, shape, 0, dtype).seconds[0]
        for one in (NUMBERS, measured(kernel, 9.0))
    ]
    before = size / Kernels(NUMBERS, NUMBERS.limits)._memory_rate
    after = measured(kernel, 9.0).estimate(kernel, {"bytes": size}, limits=NUMBERS.limits).seconds[0]
    assert np.diff(products) == pytest.approx(after - before)


@pytest.mark.parametrize(
    ("kind", "kernel", "moved"),
    [("experts", "swiglu", 6), ("experts_dgrad", "swiglu_backward", 10), ("experts_wgrad", "swiglu", 0)],
)
def test_experts_activate_between_their_products(kind, kernel, moved):
    """Gate and up are read and their product written; the backward reads three and writes the gradients of two."""
    rows, hidden, inter = 2**16, 4096, 1536
    slow = measured(f"memory.{kernel}", 9.0)
    experts = [
        Kernels(one, NUMBERS.limits).estimate(kind, (rows, hidden, inter, 8, 8, 1, 1, 3), 0, "bf16").seconds[0]
        for one in (NUMBERS, slow)
    ]
    alone = [
        Kernels(one, NUMBERS.limits).estimate(kernel, (inter,), moved * rows * inter, "bf16").seconds[0]
        for one in (NUMBERS, slow)
    ]
    assert np.diff(experts) == pytest.approx(np.diff(alone) if moved else 0.0)
