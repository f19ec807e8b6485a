import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases.moe import cases, shares

from .families import CPU, GPU, check, each, measures_some, one, small


@each
def test_cases_are_sound(facts):
    check(cases, facts)


def test_a_product_by_hand():
    case = one(cases, GPU, "grouped_mm", experts=32, n=4096, k=7168, rows=16384, skew=0)
    assert case.flop == 2 * 16384 * 4096 * 7168
    assert case.bytes == 2 * (16384 * 7168 + 32 * 4096 * 7168 + 16384 * 4096)
    assert case.params["largest"] == 512
    expected = {"tokens": 16384, "hidden": 7168, "inter": 4096, "experts": 32}
    assert case.features == expected | {"topk": 1, "tp": 1, "ep": 1, "matrices": 1, "skew": 0}


def test_tokens_are_moved_once_and_rows_once():
    case = one(cases, GPU, "permute", tokens=4096, hidden=7168, topk=8)
    assert case.bytes == 2 * 7168 * 4096 * (1 + 8) + 4 * 4096 * 8


@pytest.mark.parametrize("skew", [0, 1])
@pytest.mark.parametrize(("rows", "experts"), [(256, 4), (256, 32), (16384, 64)])
def test_shares_are_all_rows_in_groups_of_16(rows, experts, skew):
    sizes = shares(rows, experts, skew)
    assert sum(sizes) == rows
    assert len(sizes) == experts
    assert not [size for size in sizes if size % 16]


def test_the_most_loaded_expert_has_twice_the_next():
    sizes = sorted(shares(16384, 8, 1))
    assert sizes[-1] == pytest.approx(2 * sizes[-2], rel=0.05)
    assert sizes[-1] == pytest.approx(8 * sizes[0], rel=0.1)


def test_small_ones_measure():
    measures_some(cases(CPU), 2, seconds=0.01)


def test_enough_for_a_fit_on_a_cpu():
    for name in ("grouped_mm", "permute", "unpermute"):
        assert len([case for case in small(cases(CPU)) if case.name == name]) >= 5
