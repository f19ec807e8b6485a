"""Broadcasts of a Program as the messages of their trees, simulated: each rank goes on when its own part has ended."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.collectives import EXECUTED, STREAMS, relay
from runcast.simulator.collectives.trees import children, tree_broadcast
from runcast.simulator.costs import cost
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import PARAMETERS, Parameter, Profile
from runcast.simulator.program import ProgramBuilder, validate

RATE, SIZE = 12.5e6, 10**6
STAR = {"base": "cpu-host", "gpus_per_node": 1, "nic": "100 Mb/s", "fabric": "leaf", "leaf_radix": 64}
_ONES = ("link_fraction", "copy.hbm_fraction", "interference", "broadcast.tree")
IDEAL = Profile("ideal", {name: Parameter(float(name.startswith(_ONES)), 0.0, "exact", "-") for name in PARAMETERS})


def broadcasts(hosts, roots):
    """Broadcasts over all hosts, one after another on their lanes."""
    builder = ProgramBuilder()
    places = [builder.place(f"r{rank}", [rank]) for rank in range(hosts)]
    lanes = [builder.lane(place, "comm") for place in places]
    for root in roots:
        builder.op("broadcast", lanes, size_bytes=SIZE, root=root, group=tuple(range(hosts)))
    return builder.build()


def ends(program, machine):
    """When each message ends, in messages of a whole link."""
    found = relay(program)
    return found, simulate(found, cost(found, machine, IDEAL, STREAMS)).end_s * RATE / SIZE


@pytest.mark.parametrize("hosts", [2, 3, 4, 5, 7, 8, 11, 16])
def test_one_broadcast_takes_what_the_closed_form_says(hosts):
    machine = cluster(STAR, hosts)

    _, end = ends(broadcasts(hosts, [0]), machine)

    closed = tree_broadcast(machine, tuple(range(hosts)), 0, machine.capacity).s_per_byte
    assert end.max() == pytest.approx(closed * RATE, rel=1e-3)  # and the links' latencies


@pytest.mark.parametrize("doublings", [1, 2, 3, 4])
@pytest.mark.parametrize("many", [1, 2, 5])
def test_a_root_sends_again_while_others_pass_on(doublings, many):
    """It sends to k hosts each time, and after the last time the way to the last host takes k (k + 1) / 2."""
    hosts = 1 << doublings

    _, end = ends(broadcasts(hosts, [0] * many), cluster(STAR, hosts))

    assert end.max() == pytest.approx((many - 1) * doublings + doublings * (doublings + 1) / 2, rel=1e-3)


@given(hosts=st.integers(2, 12), roots=st.lists(st.integers(0, 11), min_size=1, max_size=5))
def test_messages_reach_every_rank_once_from_one_that_has_it(hosts, roots):
    roots = [root % hosts for root in roots]

    found = relay(broadcasts(hosts, roots))

    validate(found)
    for number, root in enumerate(roots):
        pairs = [found.groups[found.group[op]] for op in (found.tags[EXECUTED] == number).nonzero()[0]]
        have = [root]
        for sender, receiver in pairs:
            assert sender in have
            have.append(receiver)
        assert sorted(have) == list(range(hosts))


@given(hosts=st.integers(2, 9), roots=st.lists(st.integers(0, 8), min_size=2, max_size=4))
def test_a_rank_begins_nothing_before_its_part_of_the_broadcast_before_has_ended(hosts, roots):
    program = broadcasts(hosts, [root % hosts for root in roots])
    found = relay(program)
    timeline = simulate(found, cost(found, cluster(STAR, hosts), IDEAL, STREAMS))

    for rank in range(hosts):
        mine = [op for op in range(len(found)) if rank in found.groups[found.group[op]]]
        parts = [[op for op in mine if found.tags[EXECUTED][op] == number] for number in range(len(program))]
        for before, after in pairwise(parts):
            assert timeline.end_s[before].max() <= timeline.start_s[after].min() + 1e-9


def test_what_waits_for_a_broadcast_waits_for_its_own_ranks_part():
    builder = ProgramBuilder()
    lanes = [builder.lane(builder.place(f"r{rank}", [rank]), "comm") for rank in range(4)]
    cast = builder.op("broadcast", lanes, size_bytes=SIZE, root=0, group=(0, 1, 2, 3))
    work = [builder.op("sync", [builder.lane(rank, "ps")], [cast], name=f"work {rank}") for rank in range(4)]
    program = builder.build()

    found, end = ends(program, cluster(STAR, 4))

    works = [found.names.index(program.names[op]) for op in work]
    assert end[works] == pytest.approx([2, 3, 2, 3], rel=1e-3)  # 0 to 1 and 2 at once, then 1 to 3


def test_ranks_that_share_a_place_keep_their_broadcast():
    builder = ProgramBuilder()
    lanes = [builder.lane(builder.place(name, ranks), "comm") for name, ranks in (("r0", [0]), ("r1..r3", [1, 2, 3]))]
    builder.op("broadcast", lanes, size_bytes=SIZE, root=0, group=(0, 1, 2, 3))
    program = builder.build()

    assert replace(relay(program), tags={}) == program


def test_a_tree_has_every_rank_below_its_root():
    assert sorted(child for v in range(11) for child in children(v, 11)) == list(range(1, 11))
