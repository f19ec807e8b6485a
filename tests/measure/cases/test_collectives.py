import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.case import Facts, all_teams, doublings
from runcast.calibrate.measure.cases.collectives import COLLECTIVES, cases, zipf


def machine(nodes, ranks):
    return Facts("cpu", tuple(tuple(range(node * ranks, (node + 1) * ranks)) for node in range(nodes)))


def teams(nodes, ranks):
    return [(team.layout, team.ranks, team.nodes) for team in all_teams(machine(nodes, ranks))]


def test_one_rank_has_no_team():
    assert teams(1, 1) == []


def test_one_node():
    assert teams(1, 4) == [("node", (0, 1), 1), ("node", (0, 1, 2, 3), 1)]


def test_two_nodes():
    assert teams(2, 4) == [
        ("node", (0, 1), 1),
        ("node", (0, 1, 2, 3), 1),
        ("nodes", tuple(range(8)), 2),
        ("rails", (0, 4), 2),
    ]


def test_three_nodes():
    assert teams(3, 8) == [
        ("node", (0, 1), 1),
        ("node", (0, 1, 2, 3), 1),
        ("node", tuple(range(8)), 1),
        ("nodes", tuple(range(16)), 2),
        ("nodes", tuple(range(24)), 3),
        ("rails", (0, 8), 2),
        ("rails", (0, 8, 16), 3),
    ]


def test_nodes_of_one_rank_are_no_rails():
    assert teams(4, 1) == [("nodes", (0, 1), 2), ("nodes", (0, 1, 2, 3), 4)]


def test_doublings_end_with_all():
    assert [doublings(count) for count in (1, 2, 6, 8)] == [[], [2], [2, 4, 6], [2, 4, 8]]


def test_classes_over_nodes_and_none_for_rails_and_skew():
    classes = {(case.name, case.params["layout"]): case.cost_class for case in cases(machine(2, 2))}
    assert classes["all_gather", "node"] == "all_gather"
    assert classes["all_gather", "nodes"] == "all_gather.network"
    assert classes["all_gather", "rails"] == ""
    assert classes["all_to_all_skewed", "node"] == ""


def test_bytes_are_those_that_divide_by_the_ranks():
    three = machine(1, 3)
    sizes = {case.name: case.bytes for case in cases(three) if case.params["gpus"] == 3 and case.bytes <= 1024}
    assert sizes == {name: 1024 if name in ("all_reduce", "broadcast") else 1020 for name in COLLECTIVES}


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_splits_are_all_elements_most_for_the_first(ranks):
    splits = zipf(1000, ranks)
    assert sum(splits) == 1000
    assert splits == sorted(splits, reverse=True)
    assert splits[0] == pytest.approx(2 * splits[1], abs=ranks)
