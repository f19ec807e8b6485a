"""What holds for every way to price exchanges: fitted curves, and each algorithm by name."""

from dataclasses import replace
from functools import cache

import pytest
from runcast.simulator import UserError
from runcast.simulator.collectives import Collective, Layout, Machines, pricer
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import Parameter, load_network, load_profile, load_stack

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv")
SIZES = (0.0, 1e3, 1e6, 1e9)

NAMED = [(op, name) for op in OPS for name in algorithms(op) if op not in ("gather", "scatter", "all_to_all_v")]
pytestmark = pytest.mark.parametrize(
    "choice", [(), *((one,) for one in NAMED)], ids=lambda one: "-".join(*one) if one else "measured"
)


@cache
def machines() -> Machines:
    profile = load_profile("h100-sxm").join(load_network("infiniband")).join(load_stack("generic"))
    return Machines(cluster("dgx-h100", 2), profile)


def layout() -> Layout:
    return Layout(machines().cluster, {})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [(0, 1), (0, 8), tuple(range(8)), tuple(range(16))], ids=len)
def test_more_bytes_take_longer_and_no_link_carries_more_than_it_can(choice, kind, group):
    algorithm = pricer(choice, machines(), layout())
    ends = (group[0], group[-1]) if kind == "send_recv" else group
    beyond = len({rank // 8 for rank in group}) > 1
    if (choice == (("all_reduce", "nvls"),) and beyond) or (choice == (("all_reduce", "sharp"),) and not beyond):
        return  # it is refused: see test_chunks

    prices = [algorithm.price(Collective(kind, ends, size), group[0]) for size in SIZES]

    seconds = [price.seconds for price in prices]
    assert (seconds[0], seconds) == (0, sorted(seconds))
    assert all(price.seconds >= price.least_s > 0 for price in prices[1:])
    assert [(link, rate) for price in prices for link, rate in price.demand.items()
            if rate > machines().capacity[link] * (1 + 1e-12)] == []  # fmt: skip


@pytest.mark.parametrize(("size", "beyond"), [(1e9, 1e8), (1e8, 5e8)])
def test_of_an_all_to_all_that_is_forwarded_the_longer_part_sets_the_time(choice, size, beyond):
    """Two nodes: 8 messages of a rank to the other node carry `beyond`, and 7 inside its own 7/8 of `size`."""
    if choice != (("all_to_all", "direct"),):
        return
    whole, node = (ClusterNet(machines(), range(ranks), "all_to_all") for ranks in (16, 8))
    rail, inside = whole.kinds["rail"], node.kinds["inside"]

    found = pricer(choice, machines(), layout()).price(Collective("all_to_all", tuple(range(16)), size, beyond), 0)

    once_s = whole.launch_s + 8 * rail.latency_s + beyond / rail.bytes_per_s
    forward_s = node.launch_s + 7 * inside.latency_s + 7 / 8 * size / inside.bytes_per_s
    assert found.seconds == pytest.approx(max(once_s, forward_s))


def test_a_rank_alone_exchanges_nothing(choice):
    assert pricer(choice, machines(), layout()).price(Collective("all_reduce", (3,), 1e9), 3).seconds == 0


def test_nvls_stays_inside_an_nvswitch_domain(choice):
    if choice != (("all_reduce", "nvls"),):
        return
    with pytest.raises(UserError, match="all_reduce = 'nvls': NVLS adds inside one NVSwitch domain"):
        pricer(choice, machines(), layout()).price(Collective("all_reduce", (0, 8), 1e6), 0)


def test_a_library_may_reduce_all_in_place_of_a_scatter(choice):
    if choice:
        return
    reduces = {"reduce_scatter.all_reduce": Parameter(1.0, 0.0, "exact", "-")}
    profile = replace(machines().profile, parameters={**machines().profile.parameters, **reduces})
    found = pricer(choice, Machines(cluster("dgx-h100", 2), profile), layout())
    scattered, reduced = (
        found.price(Collective(op, tuple(range(16)), 1e9), 0) for op in ("reduce_scatter", "all_reduce")
    )

    assert scattered == reduced
