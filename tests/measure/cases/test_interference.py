import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases.interference import cases

from .families import CPU, CPUS, GPU, NODE, check, each, measures, one, small, spread


@each
def test_cases_are_sound(facts):
    check(cases, facts)


def test_no_case_is_a_sample_of_a_class():
    assert not [case for case in cases(NODE) if case.cost_class]


def test_every_victim_is_alone_and_beside_everything():
    noises = {case.params["beside"] for case in cases(GPU) if case.params["victim"] == "attention"}
    assert noises == {"none", "h2d", "d2h", "d2d", "occupy"}
    programs = {case.params["programs"] for case in cases(GPU) if case.params["beside"] == "occupy"}
    assert programs == {4, 8, 16, 20, 24, 32}


def test_ops_of_a_weight_update_are_beside_each_other_and_beside_broadcasts():
    of_update = [case for case in cases(NODE) if case.name in ("h2d", "copy")]
    pairs = {(case.name, case.params["beside"]) for case in of_update if case.params["beside"] != "occupy"}
    everything = {"none", "d2h", "all_reduce", "broadcast"}
    assert pairs == {("h2d", noise) for noise in everything | {"d2d"}} | {
        ("copy", noise) for noise in everything | {"h2d"}
    }
    assert {(case.name, case.bytes, case.over) for case in of_update} == {
        ("h2d", 1 << 26, "host"),
        ("copy", 1 << 27, "memory"),
    }
    assert "broadcast" not in {case.params["beside"] for case in cases(NODE) if case.name == "gemm"}


def test_real_collectives_among_the_ranks_of_the_first_node():
    (case, *_) = [case for case in cases(NODE) if case.params["beside"] == "all_reduce"]
    assert case.team == (0, 1, 2, 3)
    assert next(case.team for case in cases(CPUS) if case.params["beside"] == "all_reduce") == (0, 1)


def test_counts_are_of_the_victim():
    case = one(cases, GPU, "gemm", m=8192, beside="d2d")
    assert case.flop == 2 * 8192**3
    assert case.bytes == 6 * 8192**2


@pytest.mark.parametrize(("victim", "noise"), [("h2d", "d2d"), pytest.param("copy", "h2d", marks=pytest.mark.slow)])
def test_ops_of_a_weight_update_measure(victim, noise):
    assert measures(one(cases, CPU, victim, beside=noise), fewest=1).more["alone_s"] > 0


@pytest.mark.slow
def test_small_ones_measure():
    for beside in ("none", "h2d", "d2h", "d2d"):
        found = small([case for case in cases(CPU) if case.params["beside"] == beside], seconds=0.02)
        for case in spread(found, 1):
            assert measures(case, fewest=1).more["alone_s"] > 0  # on a busy machine few steps lie beside
