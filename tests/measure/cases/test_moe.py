import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.cases import moe
from runcast.calibrate.measure.cases.moe import cases, shares
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.plan import call_s
from runcast.calibrate.measure.timing import Bench
from runcast.simulator.hardware import cluster, limits
from runcast.simulator.profile.forms import cost_class

from .families import CPU, GPU, check, each, measures_some, one, small


@each
def test_cases_are_sound(facts):
    check(cases, facts)


def feed_forwards(facts, by="grouped_mm"):
    return [case for case in cases(facts) if case.name == "feed_forward" and case.params["by"] == by]


def test_a_feed_forward_by_hand():
    case = one(cases, GPU, "feed_forward", tokens=4096, experts=8, hidden=4096, inter=14336, skew=0, by="grouped_mm")
    assert case.flop == 2 * 8192 * (4096 * 2 * 14336 + 14336 * 4096)
    # x, gate and up; the same again, their product; the product, y; and all weights
    assert case.bytes == 2 * (8192 * (4096 + 28672 + 28672 + 14336 + 14336 + 4096) + 8 * 3 * 4096 * 14336)
    assert case.params["largest"] == 1024
    expected = {"tokens": 4096, "topk": 2, "hidden": 4096, "inter": 14336, "experts": 8, "matrices": 3}
    assert case.features == expected | {"tp": 1, "ep": 1, "skew": 0}


def test_only_feed_forwards_are_samples_of_the_class_of_experts():
    assert {case.name for case in cases(GPU) if case.cost_class.startswith("grouped_gemm")} == {"feed_forward"}
    assert {case.cost_class for case in cases(GPU) if case.name in ("grouped_mm", "loop_of_mm")} == {""}


def test_the_class_counts_as_many_flop_as_the_case():
    known = cost_class("grouped_gemm.bf16")
    for case in feed_forwards(GPU):
        x = known.columns(case.features, limits(cluster("dgx-h100", 1)))
        assert known.axes["flop"](x)[0] == case.flop


@pytest.mark.parametrize("by", ["grouped_mm", "loop_of_mm"])
def test_a_feed_forward_computes_one(by):
    sizes = [16, 48, 16]
    torch.manual_seed(0)
    work = moe._feed_forward(Bench(CpuDevice(), 1e-3), sizes, 64, 32, moe._GROUPED_BY[by])
    torch.manual_seed(0)
    x, into, back = torch.randn(80, 64), torch.randn(3, 64, 64) / 8, torch.randn(3, 64, 32) / 32**0.5
    parts = []
    for rows, first, second in zip(x.split(sizes), into, back, strict=True):
        gate, up = (rows @ first.t()).chunk(2, dim=1)
        parts.append((torch.nn.functional.silu(gate) * up) @ second.t())
    assert torch.allclose(work.act().float(), torch.cat(parts), atol=0.05)
    assert work.wrong() == 0


def test_a_product_that_computes_nothing_is_wrong():
    nothing = lambda sizes, _device: lambda x, w: x.new_zeros(len(x), w.shape[2])  # noqa: E731
    assert moe._grouped_gemm(Bench(CpuDevice(), 1e-3), [16, 32], 64, 64, nothing).wrong() > 500


def test_tokens_are_moved_once_and_rows_once():
    case = one(cases, GPU, "permute", tokens=4096, hidden=7168, topk=8)
    assert case.bytes == 2 * 7168 * 4096 * (1 + 8) + 4 * 4096 * 8


@pytest.mark.parametrize("skew", [0, 1.2])
@pytest.mark.parametrize(("rows", "experts"), [(256, 4), (2048, 32), (16384, 64), (8192, 128), (1024, 64)])
def test_shares_are_all_rows_in_groups_of_16(rows, experts, skew):
    sizes = shares(rows, experts, skew)
    assert sum(sizes) == rows
    assert len(sizes) == experts
    assert min(sizes) >= 16
    assert not [size for size in sizes if size % 16]


def test_the_most_loaded_expert_has_twice_the_next():
    sizes = sorted(shares(16384, 8, 1))
    assert sizes[-1] == pytest.approx(2 * sizes[-2], rel=0.05)
    assert sizes[-1] == pytest.approx(8 * sizes[0], rel=0.1)


def test_small_ones_measure():
    measures_some(cases(CPU), 2, seconds=0.01)


def test_enough_for_a_fit_on_a_cpu():
    for name in ("permute", "unpermute"):
        assert len([case for case in small(cases(CPU)) if case.name == name]) >= 5
    quick = [case for case in feed_forwards(CPU) if case.quick and call_s(case, CPU) < 0.1]
    assert len(quick) >= 12
    assert len({case.together for case in quick}) >= 3
    assert {case.features["skew"] for case in quick} == {0.0, 1.2}
