"""What ranks send and receive, message by message, over what nccl-tests counts for a port (doc/PERFORMANCE.md)."""

import numpy as np
import pytest
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.collectives.algorithms.messages import Group
from runcast.simulator.profile.forms import BUS_FACTOR

SHAPES = [(1, 8), (2, 4), (4, 4), (3, 4), (5, 1), (1, 6)]
SWITCHED = ("nvls", "sharp")
ALL = [(op, name) for op in OPS for name in algorithms(op)]

BY_RING = {"ring", "bidirectional_ring", "two_level", "direct", "pairwise", "recursive_halving"}
LEAST = [
    (op, name) for op, name in ALL
    if (name in BY_RING or (op, name) in {("all_gather", "bruck"), ("all_gather", "recursive_doubling")})
    and op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
]  # fmt: skip
"""Algorithms in which each rank sends and receives as much as each other one, and no more than it must."""


def volumes(op, name, group):
    """Bytes that each rank sends and receives of a collective of one byte."""
    chunks = algorithms(op)[name].chunks(group)
    sent, got = np.zeros((2, group.ranks + chunks.switches))
    for one in chunks.rounds():
        for k in range(one.times):
            size = chunks.message_bytes(one, k, 1.0)
            np.add.at(sent, one.pairs.src, size)
            np.add.at(got, one.pairs.dst, size)
    return sent[: group.ranks], got[: group.ranks]


def groups(op, name):
    """Shapes of islands that an algorithm knows; of equal loads."""
    for islands, near in SHAPES:
        ranks = islands * near
        group = Group(islands, near, pieces=4, loads=(1.0,) * ranks if op == "all_to_all_v" else ())
        if not algorithms(op)[name].refuses(group):
            yield group


def factor(op, ranks):
    return float(BUS_FACTOR[op](np.array([float(ranks)]))[0])


@pytest.mark.parametrize(("op", "name"), LEAST)
def test_each_rank_sends_and_receives_what_nccl_tests_counts(op, name):
    for group in groups(op, name):
        for volume in volumes(op, name, group):
            assert volume == pytest.approx(np.full(group.ranks, factor(op, group.ranks)))


@pytest.mark.parametrize("name", [name for name in algorithms("all_reduce") if name not in SWITCHED])
def test_no_all_reduce_of_ranks_alone_moves_less_in_all(name):
    """Trees and halving with a remainder move as much, by unequal parts; recursive doubling moves more."""
    for group in groups("all_reduce", name):
        sent, got = volumes("all_reduce", name, group)
        least = 2 * (group.ranks - 1)
        assert sent.sum() == pytest.approx(got.sum())
        assert sent.sum() >= least * (1 - 1e-12)
        assert (sent.sum() == pytest.approx(least)) == (name != "recursive_doubling" or group.ranks == 2)


@pytest.mark.parametrize(("op", "name"), [("broadcast", "chain"), ("broadcast", "binomial"),
                                          ("reduce", "chain"), ("reduce", "binomial")])  # fmt: skip
def test_each_rank_but_the_root_gets_or_gives_the_data_once(op, name):
    for group in groups(op, name):
        sent, got = volumes(op, name, group)
        once = got if op == "broadcast" else sent
        assert once[1:] == pytest.approx(np.ones(group.ranks - 1))


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, name in ALL if op in ("gather", "scatter")])
def test_a_root_moves_all_parts_but_its_own(op, name):
    for group in groups(op, name):
        sent, got = volumes(op, name, group)
        assert (got if op == "gather" else sent)[0] == pytest.approx((group.ranks - 1) / group.ranks)


@pytest.mark.parametrize("near", [2, 8])
def test_a_port_of_a_switch_that_adds_carries_what_its_page_says(near):
    """docs/collectives.md: S (N + 1) / N each way."""
    sent, got = volumes("all_reduce", "nvls", Group(1, near, pieces=4))
    assert sent == pytest.approx(np.full(near, (near + 1) / near))
    assert got == pytest.approx(sent)


@pytest.mark.parametrize("islands", [2, 4])
def test_what_goes_through_switches_between_islands_is_sent_once(islands):
    """Reduce and gather inside, (n - 1) / n each, and a share of 1 / n up and down."""
    near = 4
    sent, got = volumes("all_reduce", "sharp", Group(islands, near, pieces=4))
    assert sent == pytest.approx(np.full(islands * near, 2 * (near - 1) / near + 1 / near))
    assert got == pytest.approx(sent)


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, name in ALL if op.startswith("all_to_all")])
def test_all_to_alls_that_pass_blocks_on_move_more(op, name):
    for group in groups(op, name):
        sent, _ = volumes(op, name, group)
        own = factor("all_to_all", group.ranks) * group.ranks
        passed_on = (name == "bruck" and group.ranks > 3) or (
            name == "hierarchical" and min(group.islands, group.near) > 1
        )
        assert (sent.sum() > own * (1 + 1e-9)) == passed_on
