"""How many copies of a token travel, against every choice of experts that it can make."""

from itertools import combinations

import pytest
from runcast.simulator.models import Moe
from runcast.simulator.systems.train_step.routing import load_of, rank_share, remote_share
from runcast.simulator.systems.train_step.scenario import Experts


def by_choice(experts, chosen, of_place):
    """On how many places the chosen experts lie, as the mean of all choices."""
    choices = list(combinations(range(experts), chosen))
    return sum(len({of_place(expert) for expert in choice}) for choice in choices) / len(choices)


def moe(experts, chosen):
    return Moe(experts, chosen, 64, (0,))


@pytest.mark.parametrize(("experts", "chosen", "ranks"), [(8, 2, 4), (12, 4, 4), (8, 8, 2), (16, 3, 16), (8, 1, 2)])
def test_a_rank_is_sent_one_copy(experts, chosen, ranks):
    found = rank_share(Experts(dispatcher="deepep"), moe(experts, chosen), ranks, 1) * chosen
    assert found == pytest.approx(by_choice(experts, chosen, lambda expert: expert // (experts // ranks)))


def test_a_limit_leaves_a_token_the_ranks_of_so_many_nodes():
    """Of 4 nodes with 2 ranks it goes to 2: 8 of 16 experts, on 4 ranks."""
    found = rank_share(Experts(dispatcher="deepep", nodes_per_token=2), moe(16, 3), 8, 4) * 3
    assert found == pytest.approx(by_choice(8, 3, lambda expert: expert // 2))


@pytest.mark.parametrize(("limit", "nodes"), [(None, 4), (2, 4), (3, 2)])
def test_another_node_is_sent_one_copy(limit, nodes):
    found = remote_share(Experts(dispatcher="deepep", nodes_per_token=limit), moe(16, 3), 8, nodes)
    reached = by_choice(16, 3, lambda expert: expert // (16 // nodes))
    assert found == pytest.approx(min(reached, limit or nodes) * (nodes - 1) / nodes / 3)


def test_the_fullest_rank_is_sent_no_more_than_each_token_once():
    """All tokens choose the first three experts, which are on two ranks of one node: a copy to each, with its load."""
    given = Experts(dispatcher="deepep", routing="histogram", histogram=(1.0,) * 3 + (0.0,) * 13)
    load = load_of(given, moe(16, 3), 8)
    rank, remote = (
        share * 3 * load for share in (rank_share(given, moe(16, 3), 8, 4), remote_share(given, moe(16, 3), 8, 4))
    )

    assert (rank, remote) == (pytest.approx(8), pytest.approx(4 * 3 / 4))  # over an even share of tokens


def test_an_all_to_all_sends_a_copy_to_every_expert():
    assert (rank_share(Experts(), moe(16, 3), 8, 4), remote_share(Experts(), moe(16, 3), 8, 4)) == (1.0, None)
