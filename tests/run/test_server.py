"""Parameter servers against closed forms, and what holds for any of them."""

from collections import defaultdict
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from runcast.simulator.systems.run.history import CAUSES
from runcast.simulator.systems.run.outages import Outage
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.run.sync.server import run_servers
from runcast.simulator.systems.run.sync.server_plan import Server, ServerPlan
from runcast.simulator.systems.run.team import Team

from ..examples import examples

SIZE = 100.0  # bytes of gradients and of parameters
LINK = 10.0  # bytes/s of a worker


def plan(**changes: Any) -> ServerPlan:
    """Four workers with steps of 1 s, whose transfers take no time unless `size` is given: then 10 s alone."""
    size = changes.pop("size", 0.0)
    team = {"workers": 4, "step_s": 1.0, "samples": 2.0, "gradient_bytes": size, "parameter_bytes": size}
    team |= {"link_bytes_per_s": LINK}
    whole = {"steps": 12, "server_bytes_per_s": 1e9}
    server = {key: changes.pop(key) for key in list(changes) if key in Server.model_fields}
    team |= {key: changes.pop(key) for key in list(changes) if key in Team.__dataclass_fields__}
    return ServerPlan(Team(**team), server=Server(**server), **whole | changes)


def run(**changes: Any):
    return run_servers(plan(**changes))


def computed(history, kind="compute"):
    """The spans of each worker's steps, in order."""
    lanes = defaultdict(list)
    for span in history.spans:
        if span.kind == kind:
            lanes[span.lane].append((span.start_s, span.end_s))
    return list(lanes.values())


# Closed forms


@pytest.mark.parametrize("servers", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rate", [1.0, 5.0, 10.0, 40.0])
def test_a_synchronous_round_is_two_transfers_on_the_narrower_link(servers, rate):
    """Li et al., OSDI 2014: 2 max(S / B_w, W S / (P B_s))."""
    history = run(update="synchronous", step_s=0.0, size=SIZE, servers=servers, server_bytes_per_s=rate)

    assert history.wall_s == pytest.approx(12 * 2 * max(SIZE / LINK, 4 * SIZE / (servers * rate)), rel=1e-12)


def test_as_many_servers_as_carry_what_workers_carry_suffice():
    """Jiang et al. (BytePS), OSDI 2020: P = W B_w / B_s."""
    walls = [run(update="synchronous", size=SIZE, servers=p, server_bytes_per_s=4.0).wall_s for p in (5, 10, 20)]

    assert walls == pytest.approx([12 * (1 + 2 * 20), 12 * (1 + 2 * 10), 12 * (1 + 2 * 10)])


@pytest.mark.parametrize("workers", [1, 2, 4, 10])
def test_shards_on_workers_take_as_long_as_a_ring_all_reduce(workers):
    history = run(update="synchronous", on="workers", size=SIZE, workers=workers)

    assert history.wall_s == pytest.approx(12 * (1 + 2 * SIZE * (workers - 1) / workers / LINK))


def test_links_of_asynchronous_workers_carry_what_others_read_as_well():
    """Worker 1 pushes from 27 s. Until 43 s it shares its link with what worker 0 pulls from 25 s on."""
    assert run(on="workers", workers=2, size=2 * SIZE, step_s=5.0, speeds=(1, 3.4), steps=2).wall_s == 45


def test_links_of_asynchronous_workers_are_at_most_twice_as_slow_for_their_shards():
    shared, apart = (run(on=on, size=SIZE, steps=400, jitter=Spread(spread=0.3)) for on in ("workers", "servers"))
    travels = 3 / 4

    assert travels * apart.breakdown_s["exchange"] < shared.breakdown_s["exchange"]
    assert shared.breakdown_s["exchange"] < 2 * travels * apart.breakdown_s["exchange"]


def test_asynchronous_workers_do_a_push_per_step_time_each():
    """Dean et al., NIPS 2012: W / t pushes per second."""
    assert run(steps=400, size=SIZE).wall_s == pytest.approx(400 / 4 * (1 + 2 * 10))


def test_asynchronous_workers_push_as_much_as_servers_take():
    """P B_s / S pushes per second, once the links are full."""
    links = {"size": SIZE, "pull_bytes": 1.0, "servers": 2, "server_bytes_per_s": 50.0}
    history = run(workers=50, steps=5000, jitter=Spread(spread=0.2), **links)

    assert history.wall_s == pytest.approx(5000 * SIZE / (2 * 50.0), rel=0.03)


def test_equal_workers_stay_in_step_and_leave_links_idle_half_of_the_time():
    history = run(workers=50, steps=500, size=SIZE, step_s=0.0, servers=2, server_bytes_per_s=50.0)

    assert history.wall_s == pytest.approx(2 * 500 * SIZE / (2 * 50.0))


def test_gradients_of_equal_asynchronous_workers_are_as_stale_as_there_are_others():
    assert run(steps=100).staleness == {0: 1, 1: 1, 2: 1, 3: 97}


@given(st.integers(2, 30), st.floats(0.01, 0.3), st.integers(0, 1000))
@examples(20)
def test_staleness_is_that_of_the_others_on_average_whatever_the_jitter(workers, spread, seed):
    history = run(workers=workers, steps=100 * workers, jitter=Spread(spread=spread), seed=seed)
    before_others = (workers - 1) / 2 / 100  # the first push of each worker

    assert history.staleness_mean == pytest.approx(workers - 1 - before_others, rel=0.03)


def test_slow_servers_apply_one_push_after_the_other():
    history = run(workers=20, steps=500, rpc=0.1, apply=0.3, decode_s=0.2)

    assert history.wall_s == pytest.approx(500 * (0.1 + 0.3 + 0.2 + 0.1), rel=0.03)


def test_a_synchronous_round_has_all_requests_of_its_workers():
    history = run(update="synchronous", rpc=0.1, apply=0.3, decode_s=0.2)

    assert history.wall_s == pytest.approx(12 * (0.1 + 1 + 4 * (0.1 + 0.3 + 0.2)))  # the first pull, and all pushes


def test_a_slow_worker_slows_all_synchronous_ones_down():
    assert run(update="synchronous", speeds=(3, 1, 1, 1)).wall_s == pytest.approx(12 * 3)


def test_a_slow_worker_takes_its_share_only_from_asynchronous_ones():
    assert run(speeds=(3, 1, 1, 1), steps=1000).wall_s == pytest.approx(1000 / (3 + 1 / 3), rel=0.01)


def test_stale_workers_end_at_the_speed_of_the_slowest():
    history = run(speeds=(3, 1, 1, 1), update="stale", bound=2, steps=400)

    assert history.wall_s == pytest.approx(400 / 4 * 3, rel=0.03)


def test_latency_is_paid_per_transfer():
    assert run(update="synchronous", latency_s=0.25).wall_s == pytest.approx(12 * 1.5)


def test_compressed_gradients_are_small_and_take_time_at_both_ends():
    history = run(update="synchronous", workers=1, size=SIZE, push_bytes=10.0, encode_s=0.5, decode_s=0.25)

    assert history.wall_s == pytest.approx(12 * (10 + 1 + 0.5 + 1 + 0.25))
    assert history.breakdown_s == pytest.approx({"compute": 12, "encode": 6, "exchange": 12 * 11.25})


@given(st.floats(0, 1), st.floats(0, 30))
def test_overlap_hides_a_push_beneath_the_end_of_a_step(overlap, push_s):
    """It starts (1 - overlap) of the step into it, and ends no sooner than the step."""
    history = run(workers=1, step_s=10.0, overlap=overlap, size=SIZE, push_bytes=push_s * LINK)

    assert history.wall_s == pytest.approx(12 * (10 + 10 + max(push_s - overlap * 10, 0)))


def test_prefetched_parameters_come_during_a_step_and_are_a_step_older():
    eager, lazy = (run(step_s=15.0, size=SIZE, steps=400, prefetch=prefetch) for prefetch in (True, False))

    assert (eager.wall_s, lazy.wall_s) == pytest.approx((10 + 100 * (15 + 10), 100 * (10 + 15 + 10)))
    assert (eager.staleness_mean, lazy.staleness_mean) == pytest.approx((6, 3), rel=0.02)


# What holds for any plan

jitters = st.builds(Spread, spread=st.floats(0.0, 0.4))
speeds = st.lists(st.floats(0.3, 3), min_size=1, max_size=6).map(tuple)
modes = st.one_of(
    st.just({"update": "synchronous"}),
    st.fixed_dictionaries({"update": st.just("stale"), "bound": st.integers(0, 4)}),
    st.fixed_dictionaries({"update": st.just("asynchronous"), "prefetch": st.booleans()}),
)
places = st.one_of(
    st.just({"on": "workers"}),
    st.fixed_dictionaries({"servers": st.integers(1, 4), "server_bytes_per_s": st.sampled_from([3.0, 20.0, 1e9])}),
)


@st.composite
def plans(draw: Any) -> dict[str, Any]:
    """Any plan, with failures."""
    each = draw(speeds)
    keys = {"workers": len(each), "speeds": each, "jitter": draw(jitters), "seed": draw(st.integers(0, 99))}
    keys |= draw(modes) | draw(places) | {"overlap": draw(st.sampled_from([0.0, 0.4, 1.0]))}
    keys |= {name: draw(st.sampled_from([0.0, 0.1, 0.7])) for name in ("rpc", "apply", "encode_s", "latency_s")}
    keys |= {"size": draw(st.sampled_from([0.0, 10.0])), "steps": draw(st.integers(1, 25))}
    outage = st.tuples(
        st.floats(0, 40), st.integers(0, len(each) - 1), st.floats(0, 9), st.floats(0, 3), st.floats(0, 3)
    )
    keys["failures"] = sorted(Outage(*one) for one in draw(st.lists(outage, max_size=5)))
    return keys


@given(plans())
def test_the_seconds_of_all_causes_add_up(keys):
    history = run(**keys)

    assert sum(history.breakdown_s.values()) == pytest.approx(history.wall_s, rel=1e-9)
    assert min(history.breakdown_s.values()) > 0


@given(plans())
def test_equal_seeds_give_equal_histories(keys):
    assert run(**keys) == run(**keys)


@given(plans())
def test_every_gradient_has_an_age(keys):
    history = run(**keys)

    assert sum(history.staleness.values()) == history.steps == keys["steps"]


@given(plans())
def test_spans_say_what_the_breakdown_says(keys):
    history = run(**keys)
    by_cause = dict.fromkeys(CAUSES, 0.0)
    for span in history.spans:
        by_cause[span.kind] += (span.end_s - span.start_s) / keys["workers"]

    assert by_cause == pytest.approx(dict.fromkeys(CAUSES, 0.0) | dict(history.breakdown_s), abs=1e-9)


ROUNDED = {"workers": 1, "speeds": (3.0,), "latency_s": 0.7, "steps": 1, "update": "synchronous"}
"""With the failure below, 0.7 s and what is lost add up to more than the second of the failure."""


@given(plans())
@example(ROUNDED | {"failures": [Outage(3.5077974467432953, 0, 1.0)]})
def test_a_worker_does_one_thing_at_a_time(keys):
    history, lanes = run(**keys), defaultdict(list)
    for span in history.spans:
        lanes[span.lane].append(span)

    assert all(a.end_s <= b.start_s for spans in lanes.values() for a, b in pairwise(spans))
    assert max(spans[-1].end_s for spans in lanes.values()) <= history.wall_s * (1 + 1e-9)


@given(speeds, jitters, st.integers(0, 5), st.integers(0, 99))
def test_no_worker_begins_a_step_too_far_ahead(speeds, jitter, bound, seed):
    """Ho et al., NIPS 2013, section 3: read off the clocks of all workers whenever one begins."""
    mode = {"update": "stale", "bound": bound}
    history = run(workers=len(speeds), speeds=speeds, jitter=jitter, seed=seed, steps=20 * len(speeds), **mode)
    lanes = computed(history)
    ahead = [
        step - sum(end_s <= start_s for _, end_s in other)
        for lane in lanes
        for step, (start_s, _) in enumerate(lane)
        for other in lanes
    ]

    assert max(ahead) <= history.counts["most_ahead"] <= bound  # equal workers end at one instant, one after the other


@given(speeds, jitters, st.integers(0, 99), st.sampled_from([0.0, 10.0]))
def test_a_bound_of_none_is_synchronous(speeds, jitter, seed, size):
    same = {"workers": len(speeds), "speeds": speeds, "jitter": jitter, "seed": seed, "size": size}
    rounds = run(update="synchronous", steps=5, **same)
    pushes = run(update="stale", bound=0, steps=5 * len(speeds), **same)
    parts = ("wall_s", "samples", "breakdown_s", "spans", "counts")

    assert [getattr(pushes, part) for part in parts] == [getattr(rounds, part) for part in parts]


@given(speeds, jitters, st.integers(0, 99), st.sampled_from([0.0, 10.0]))
def test_a_bound_that_nobody_reaches_is_asynchronous(speeds, jitter, seed, size):
    same = {"workers": len(speeds), "speeds": speeds, "jitter": jitter, "seed": seed, "size": size, "steps": 30}

    assert run(update="stale", bound=1000, **same) == run(**same)


@given(st.floats(0.01, 1), st.floats(0.5, 20), jitters)
def test_overlap_hides_no_more_than_its_share(overlap, size, jitter):
    plain, hidden = (run(overlap=share, size=size, jitter=jitter, update="synchronous") for share in (0.0, overlap))
    longest_s = plain.wall_s - plain.breakdown_s["exchange"]  # steps, and the waiting for the slowest of them

    assert plain.wall_s - overlap * longest_s <= hidden.wall_s * (1 + 1e-9) <= plain.wall_s * (1 + 2e-9)


@given(st.floats(1, 50), st.floats(1, 50))
def test_faster_servers_never_slow_a_synchronous_run_down(one, other):
    slow, fast = (run(update="synchronous", size=10.0, server_bytes_per_s=b).wall_s for b in sorted((one, other)))

    assert fast <= slow * (1 + 1e-9)


def test_other_seeds_give_other_histories():
    assert run(jitter=Spread(spread=0.1), seed=1) != run(jitter=Spread(spread=0.1), seed=2)


# Failures


def test_all_synchronous_workers_wait_for_one_that_failed():
    history = run(update="synchronous", failures=[Outage(2.25, 0, 5.0)])

    assert history.wall_s == 12 + 0.25 + 5
    # The others wait from 3 s on: until 7.25 s for the repair, then for the step that it makes again.
    assert history.breakdown_s == {"compute": 12, "wait": 3 / 4, "lost": 0.25 / 4, "repair": (5 + 4.25 * 3) / 4}
    assert [(event.at_s, event.what, event.detail) for event in history.events] == [(2.25, "failures", "worker 0")]


def test_nobody_waits_for_a_repair_of_a_worker_that_has_done_its_step():
    """Worker 0 is the slowest; worker 1 waits for it, fails, and is back in time."""
    quick = run(update="synchronous", speeds=(3.0, 1.0, 1.0, 1.0), failures=[Outage(1.5, 1, 1.0)])
    calm = run(update="synchronous", speeds=(3.0, 1.0, 1.0, 1.0))

    assert quick.wall_s == calm.wall_s
    assert quick.breakdown_s["repair"] == 1 / 4
    assert quick.breakdown_s["wait"] == calm.breakdown_s["wait"] - 1 / 4


def test_asynchronous_workers_go_on_without_one_that_failed():
    history = run(steps=39, failures=[Outage(2.5, 0, 4.5)])

    assert history.wall_s == 11  # 3 workers for 5 s, 4 for the rest
    assert history.breakdown_s == {"compute": 11 - 5 / 4, "lost": 0.5 / 4, "repair": 4.5 / 4}


def test_stale_workers_go_on_up_to_their_bound():
    history = run(update="stale", bound=2, steps=40, failures=[Outage(2.5, 0, 100.0)])

    assert computed(history)[1][4] == (4, 5)  # steps 2, 3 and 4 without the one that has done two
    assert computed(history)[1][5][0] == 2.5 + 100 + 1


def test_a_failure_during_a_push_loses_the_step_and_frees_the_link():
    history = run(workers=2, size=SIZE, steps=3, server_bytes_per_s=10.0, failures=[Outage(25.0, 0, 1000.0)])
    pull_s, alone_s = 2 * 10, 10

    # pushes share the link from 21 s to 25 s, then worker 1 has it alone
    first_s = pull_s + 1 + 4 + (SIZE - 4 * 5) / LINK
    assert history.wall_s == pytest.approx(first_s + 2 * (alone_s + 1 + alone_s))
    assert history.breakdown_s["lost"] == 0.5


def test_a_failure_during_a_pull_loses_nothing():
    history = run(workers=1, size=SIZE, steps=2, failures=[Outage(21.0 + 4, 0, 100.0)])

    assert history.breakdown_s == pytest.approx({"compute": 2, "exchange": 20 + 4 + 20, "repair": 100})


def test_failures_while_a_worker_is_away_keep_it_away():
    history = run(workers=1, steps=2, failures=[Outage(0.5, 0, 10.0), Outage(3.0, 0, 2.0), Outage(4.0, 0, 20.0)])

    assert history.breakdown_s == {"compute": 2, "lost": 0.5, "repair": 23.5}


def test_a_step_that_the_end_cuts_off_is_unfinished():
    history = run(workers=2, speeds=(1.0, 2.5), steps=2)  # both steps of the fast worker; the slow one is in its first

    assert history.breakdown_s == {"compute": 2.0 / 2, "unfinished": 2.0 / 2}


def test_an_outage_has_parts():
    history = run(workers=1, steps=2, failures=[Outage(1.5, 0, repair_s=10.0, detect_s=3.0, restart_s=2.0)])

    assert history.breakdown_s == {"compute": 2, "lost": 0.5, "detect": 3, "repair": 10, "restart": 2}


def test_a_failure_during_a_restart_is_to_be_noticed_too():
    outages = [Outage(0.0, 0, 10.0, 3.0, 2.0), Outage(14.0, 0, 10.0, 3.0, 2.0)]  # the first restarts from 13 to 15
    history = run(workers=1, steps=2, failures=outages)

    assert history.breakdown_s == {"compute": 2, "detect": 3 + 3, "repair": 10 + 10, "restart": 1 + 2}


def test_a_worker_with_prefetched_parameters_reads_them_again_after_a_failure():
    history = run(workers=1, size=SIZE, steps=2, prefetch=True, failures=[Outage(15.0, 0, 100.0)])

    assert history.wall_s == 15 + 100 + 10 + 1 + 10 + 1 + 10


def test_failures_may_be_endless():
    history = run(steps=1000, failures=(Outage(10.0 * n + 0.5, n % 4, 2.0) for n in count()))

    assert history.counts["failures"] == len(history.events) == pytest.approx(history.wall_s / 10, abs=1)


# What users write


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"update": "stale"}, "must be given together"),
        ({"bound": 3}, "must be given together"),
        ({"update": "stale", "bound": -1}, "greater than or equal to 0"),
        ({"update": "synchronous", "prefetch": True}, "prefetch goes with update = 'asynchronous'"),
        ({"on": "workers", "servers": 2}, "leave out servers, bandwidth"),
        ({"on": "workers", "bandwidth": "10 GB/s"}, "leave out servers, bandwidth"),
        ({"servers": 0}, "greater than 0"),
        ({"overlap": 1.5}, "less than or equal to 1"),
        ({"update": "sometimes"}, "'asynchronous', 'stale' or 'synchronous'"),
    ],
)
def test_what_cannot_be_is_refused(keys, says):
    with pytest.raises(ValidationError, match=says):
        Server(**keys)


def test_times_and_rates_have_units():
    server = Server(rpc="20 us", apply="1 ms", bandwidth="100 Gb/s")

    assert (server.rpc, server.apply, server.bandwidth) == pytest.approx((2e-5, 1e-3, 12.5e9))
