"""Links against hand cases, and against a simulator that has no classes, no clocks and no events."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.run.links import Clock, HostLinks, SharedLink


def ends_s(flows, capacity, limit=inf, stopped=()):
    """When flows of (start, bytes) end on a SharedLink, and what is left of `stopped` ones: (time, flow)."""
    env, left = Clock(), []
    link, ends, transfers = SharedLink(env, capacity, limit), [inf] * len(flows), {}

    def send(number, start_s, size):
        yield env.timeout(start_s)
        transfers[number] = link.transfer(size)
        yield transfers[number]
        ends[number] = env.now

    def stop(at_s, number):
        yield env.timeout(at_s)
        left.append(link.stop(transfers[number]))

    for number, flow in enumerate(flows):
        env.process(send(number, *flow))
    for one in stopped:
        env.process(stop(*one))
    env.run()
    return ends, sum(left)


def fair_rates(limits, capacity):
    """Progressive filling, flow by flow: all rise together, each up to its limit, until the link is full."""
    rates, left = {}, dict(limits)
    while left:
        share = (capacity - sum(rates.values())) / len(left)
        limited = {flow: limit for flow, limit in left.items() if limit <= share}
        rates |= limited or dict.fromkeys(left, share)
        left = {flow: limit for flow, limit in left.items() if flow not in rates}
    return rates


def fluid(flows, capacity, until_s=inf):
    """When flows end, and the bytes that have moved until a time."""
    now_s, moved, ends = 0.0, 0.0, [inf] * len(flows)
    left = {number: size for number, (_, size, _) in enumerate(flows)}
    while left:
        active = {number: flows[number][2] for number in left if flows[number][0] <= now_s}
        rates = fair_rates(active, capacity)
        starts = [flows[number][0] - now_s for number in left if number not in active]
        seconds = min(starts + [left[number] / rate for number, rate in rates.items()])
        moved += sum(rates.values()) * max(min(seconds, until_s - now_s), 0.0)
        over = [number for number, rate in rates.items() if left[number] / rate <= seconds * (1 + 1e-12)]
        left = {number: size - rates.get(number, 0.0) * seconds for number, size in left.items()}
        now_s += seconds
        for number in over:
            ends[number] = now_s
            del left[number]
    return ends, moved


limits = st.sampled_from([1.0, 2.5, 7.0, inf]) | st.floats(0.1, 20)
flows = st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 100)), min_size=1, max_size=12)


def test_flows_share_a_link_and_give_way_to_one_that_comes_later():
    assert ends_s([(0, 100), (0, 100), (5, 25)], 10)[0] == pytest.approx([22.5, 22.5, 12.5])


@given(flows, st.floats(0.5, 30), limits)
def test_rates_are_max_min_fair(flows, capacity, limit):
    expected, _ = fluid([(*flow, limit) for flow in flows], capacity)

    assert ends_s(flows, capacity, limit)[0] == pytest.approx(expected, rel=1e-9)


@given(flows, st.floats(0.5, 30), limits, st.floats(0, 40))
def test_a_stopped_flow_says_what_is_left_of_it(flows, capacity, limit, until_s):
    env, transfers = Clock(), []
    link = SharedLink(env, capacity, limit)
    for start_s, size in flows:
        env.timeout(start_s).callbacks.append(lambda _, size=size: transfers.append((size, link.transfer(size))))
    env.run(env.timeout(until_s))
    moved = sum(size - link.stop(transfer) for size, transfer in transfers)

    assert moved == pytest.approx(fluid([(*flow, limit) for flow in flows], capacity, until_s)[1], abs=1e-9)


def test_equal_flows_end_at_once_and_in_the_order_in_which_they_began():
    env, order = Clock(), []
    link = SharedLink(env, 10, 3)
    for number in range(5):
        link.transfer(10).callbacks.append(lambda _, number=number: order.append((env.now, number)))
    env.run()

    assert order == [(env.now, number) for number in range(5)]


def test_a_stopped_flow_leaves_its_share_to_others():
    assert ends_s([(0, 100), (0, 100)], 10, stopped=[(4, 0)]) == ([inf, pytest.approx(12)], 80)


def test_stopping_what_has_ended_changes_nothing():
    assert ends_s([(0, 10), (0, 100)], 10, stopped=[(3, 0)]) == (pytest.approx([2, 11]), 0)


@given(flows, st.floats(0.5, 30), limits, st.floats(0, 50))
def test_a_stopped_flow_is_as_one_that_was_smaller(flows, capacity, limit, more_s):
    at_s = flows[0][0] + more_s
    ends, left = ends_s(flows, capacity, limit, [(at_s, 0)])
    start_s, size = flows[0]
    smaller = [(start_s, max(size - left, 1e-12)), *flows[1:]]

    assert ends[1:] == pytest.approx(ends_s(smaller, capacity, limit)[0][1:], rel=1e-6)


@given(st.floats(1e6, 1e9), st.lists(st.floats(1, 1e12), min_size=1, max_size=5), st.floats(1e9, 1e12))
def test_links_do_not_hang_late_in_a_long_run(late_s, sizes, capacity):
    late, _ = ends_s([(late_s, size) for size in sizes], capacity, capacity / 2)
    early, _ = fluid([(0.0, size, capacity / 2) for size in sizes], capacity)

    assert late == pytest.approx([late_s + end_s for end_s in early], rel=1e-12)


def host_ends_s(hosts, pushes, pulls, size=12.0):
    """When transfers end that begin at once."""
    env, ends = Clock(), []
    links = HostLinks(env, hosts, 1.0)
    for begin in [links.push] * pushes + [links.pull] * pulls:
        begin(size).callbacks.append(lambda _: ends.append(env.now))
    env.run()
    return ends


def shard_rates(links):
    """Max-min fair rates of flows that cross sets of links of rate 1 (Bertsekas and Gallager, section 6.5.2)."""
    rates, left = {}, dict(links)
    while left:
        room = {}
        for link in {link for crossed in left.values() for link in crossed}:
            used = sum(rates[flow] for flow in rates if link in links[flow])
            room[link] = (1 - used) / sum(link in crossed for crossed in left.values())
        narrow = min(room, key=room.get)
        rates |= {flow: room[narrow] for flow, crossed in left.items() if narrow in crossed}
        left = {flow: crossed for flow, crossed in left.items() if flow not in rates}
    return rates


@pytest.mark.parametrize("transfers", [{"pushes": 1, "pulls": 0}, {"pushes": 4, "pulls": 0}, {"pushes": 0, "pulls": 4}])
def test_hosts_send_all_but_their_own_shard(transfers):
    assert host_ends_s(4, **transfers) == [9.0] * sum(transfers.values())


@pytest.mark.parametrize(("pushes", "pulls"), [(1, 1), (1, 3), (3, 1), (2, 2), (2, 4), (4, 3)])
def test_transfers_between_hosts_end_with_their_slowest_shard(pushes, pulls):
    hosts = pushes + pulls
    shards = {("push", i, j): {("out", i), ("in", j)} for i in range(pushes) for j in range(hosts) if i != j}
    shards |= {("pull", j, i): {("out", i), ("in", j)} for j in range(pushes, hosts) for i in range(hosts) if i != j}
    first_s = 12 / hosts / min(shard_rates(shards).values())

    assert min(host_ends_s(hosts, pushes, pulls)) == pytest.approx(first_s)


def test_a_host_alone_sends_nothing():
    assert host_ends_s(1, 1, 1) == [0.0, 0.0]
