"""What holds for every algorithm of ALGORITHMS, whatever it does."""

from functools import cache

import pytest
from runcast.simulator.collectives import ALGORITHMS, Collective, Machines
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_network, load_profile, load_stack

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv")
SIZES = (0.0, 1e3, 1e6, 1e9)

pytestmark = pytest.mark.parametrize("name", ALGORITHMS)


@cache
def machines() -> Machines:
    profile = load_profile("h100-sxm").join(load_network("infiniband")).join(load_stack("generic"))
    return Machines(cluster("dgx-h100", 2), profile)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [(0, 1), (0, 8), tuple(range(8)), tuple(range(16))], ids=len)
def test_more_bytes_take_longer_and_no_link_carries_more_than_it_can(name, kind, group):
    algorithm = ALGORITHMS[name](machines(), {})
    ends = (group[0], group[-1]) if kind == "send_recv" else group

    prices = [algorithm.price(Collective(kind, ends, size), group[0]) for size in SIZES]

    seconds = [price.seconds for price in prices]
    assert (seconds[0], seconds) == (0, sorted(seconds))
    assert all(price.seconds >= price.least_s > 0 for price in prices[1:])
    assert [(link, rate) for price in prices for link, rate in price.demand.items()
            if rate > machines().capacity[link] * (1 + 1e-12)] == []  # fmt: skip


def test_a_rank_alone_exchanges_nothing(name):
    assert ALGORITHMS[name](machines(), {}).price(Collective("all_reduce", (3,), 1e9), 3).seconds == 0
