import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases.attention import cases

from .families import CPU, GPU, check, each, measures_some, one, small


@each
def test_cases_are_sound(facts):
    check(cases, facts)


LLAMA = {"batch": 1, "heads": 32, "kv_heads": 8, "seq": 4096, "head_dim": 128, "causal": True, "backend": "flash"}


def test_forward_by_hand():
    case = one(cases, GPU, "forward", **LLAMA, kv_expanded=False)
    assert case.flop == 2 * 32 * 128 * 4096**2
    assert case.bytes == 2 * 4096 * 128 * (32 + 32 + 8 + 8)
    assert case.features["kv_heads"] == 8
    assert case.library == "torch flash"


def test_backward_multiplies_five_times_where_forward_does_twice():
    forward, backward = (one(cases, GPU, name, **LLAMA, kv_expanded=False) for name in ("forward", "backward"))
    assert backward.flop == 2.5 * forward.flop
    assert backward.bytes == 2 * forward.bytes


def test_expanded_keys_count_as_so_many_heads():
    case = one(cases, GPU, "forward", **LLAMA, kv_expanded=True)
    assert case.features["kv_heads"] == 32


def test_half_of_the_work_is_causal():
    full, causal = (one(cases, GPU, "forward", **LLAMA | {"causal": c}, kv_expanded=False) for c in (False, True))
    assert full.flop == 2 * causal.flop


def test_small_ones_measure():
    measures_some(cases(CPU), 3, seconds=0.03)


def test_enough_for_a_fit_on_a_cpu():
    found = [case for case in small(cases(CPU)) if case.name == "forward"]
    assert len(found) >= 12
    assert {case.params["head_dim"] for case in found} == {64, 128, 192}
    assert {case.params["causal"] for case in found} == {True, False}


def test_few_cases_of_cudnn_are_quick():
    quick = [case.params["backend"] for case in cases(GPU) if case.quick]
    assert 0 < quick.count("cudnn") <= 20 < quick.count("flash")
