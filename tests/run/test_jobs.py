"""A pool of GPUs with a queue: queueing theory, scheduling bounds, properties of every policy, and examples."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from math import ceil, factorial, inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.systems.run.jobs.placement import Nodes
from runcast.simulator.systems.run.jobs.pool import JobRecord, PoolPlan, run_pool
from runcast.simulator.systems.run.jobs.scheduler import Job
from runcast.simulator.systems.run.jobs.tables import Arrivals
from runcast.simulator.systems.run.links import fair_share
from runcast.simulator.systems.run.outages import Outage
from scipy.stats import t as student

POLICIES = ("fifo", "backfill", "priority", "fair")
HOUR_S = 3600.0


def poisson(load: float, count: int, seed: int, servers: int = 1, **keys: object) -> tuple[Job, ...]:
    """Jobs of one GPU and a second on average, that give `servers` GPUs this load."""
    arrivals = Arrivals(rate=load * servers * HOUR_S, count=count, time=1.0, **keys)  # type: ignore[arg-type]
    return tuple(arrivals.jobs(seed))


def assert_mean(values: list[float], expected: float, width: float = 0.3, batches: int = 25) -> None:
    """The mean of correlated values is within its 99 % confidence interval (batch means), which is narrow enough."""
    means = [float(np.mean(batch)) for batch in np.array_split(values, batches)]
    half = student.ppf(0.995, batches - 1) * np.std(means, ddof=1) / sqrt(batches)

    assert abs(float(np.mean(values)) - expected) < half < width * expected


def starts(jobs: list[Job], gpus: tuple[int, ...] = (4,), **keys: object) -> dict[str, float]:
    """When each job starts."""
    _, records = run_pool(PoolPlan(gpus, tuple(jobs), **keys))  # type: ignore[arg-type]
    return {record.name: record.start_s for record in records}


# --- Queueing theory


@pytest.mark.parametrize(
    ("keys", "variation"),
    [({}, 1.0), ({"distribution": "fixed"}, 0.0), ({"distribution": "lognormal", "spread": 0.7}, 0.7)],
)
@pytest.mark.slow
def test_one_gpu_waits_as_pollaczek_and_khinchine_say(keys, variation):
    load = 0.5
    _, records = run_pool(PoolPlan((1,), poisson(load, 8_000, seed=5, **keys)))

    assert_mean([record.waited_s for record in records], load * (1 + variation**2) / (2 * (1 - load)))


@pytest.mark.slow
def test_gpus_with_one_queue_wait_as_erlang_says():
    servers, load = 3, 0.6
    busy = servers * load
    tail = busy**servers / factorial(servers) / (1 - load)
    waits = tail / (sum(busy**k / factorial(k) for k in range(servers)) + tail)  # Erlang's C
    _, records = run_pool(PoolPlan((servers,), poisson(load, 12_000, seed=7, servers=servers)))

    assert_mean([record.waited_s for record in records], waits / (servers * (1 - load)))


@pytest.mark.slow
def test_priorities_wait_as_cobham_says():
    # Cobham, Operations Research 2 (1954): W0 / ((1 - load above) (1 - load above and of the class)).
    load, drawn = 0.5, np.random.default_rng(1).integers(0, 2, 10_000).tolist()
    jobs = [replace(job, priority=p) for job, p in zip(poisson(load, 10_000, seed=11), drawn, strict=True)]
    _, records = run_pool(PoolPlan((1,), tuple(jobs), policy="priority"))

    assert_mean([r.waited_s for r, p in zip(records, drawn, strict=True) if p], load / (1 - load / 2))
    assert_mean([r.waited_s for r, p in zip(records, drawn, strict=True) if not p], load / (1 - load / 2) / (1 - load))


@pytest.mark.slow
def test_a_job_that_preempts_does_not_see_lower_ones():
    load, drawn = 0.7, np.random.default_rng(2).integers(0, 2, 8_000).tolist()
    jobs = [
        replace(job, priority=p, checkpoint_s=1e-9) for job, p in zip(poisson(load, 8_000, seed=3), drawn, strict=True)
    ]
    _, records = run_pool(PoolPlan((1,), tuple(jobs), policy="priority", preempt=True))

    high = load / 2  # M/M/1 with the load of the high ones alone
    assert_mean([r.waited_s for r, p in zip(records, drawn, strict=True) if p], high / (1 - high))


@pytest.mark.parametrize("keys", [{}, {"distribution": "fixed"}])
@pytest.mark.slow
def test_jobs_that_each_could_fill_the_fabric_are_a_queue_with_processor_sharing(keys):
    # Kleinrock, Queueing Systems 2 (1976), section 4.4: the mean is that of M/M/1, whatever the distribution.
    load = 0.5
    jobs = tuple(replace(job, network_bytes_per_s=8.0) for job in poisson(load, 5_000, seed=13, **keys))
    history, records = run_pool(PoolPlan((1000,), jobs, pack="any", fabric_bytes_per_s=8.0))

    assert_mean([record.ran_s for record in records], 1 / (1 - load))
    assert history.counts["queue_mean_s"] == 0


# --- Bounds of scheduling


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 100))
@settings(max_examples=30, deadline=None)
def test_equal_jobs_go_in_waves(jobs, gpus, seconds):
    history, _ = run_pool(PoolPlan((gpus,), tuple(Job(f"{n}", 1, float(seconds)) for n in range(jobs))))

    assert history.wall_s == ceil(jobs / gpus) * seconds


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_a_queue_is_never_worse_than_graham_says(times, gpus):
    # Graham, SIAM Journal on Applied Mathematics 17 (1969): list scheduling takes at most 2 - 1/m times the optimum.
    history, _ = run_pool(PoolPlan((gpus,), tuple(Job(f"{n}", 1, float(s)) for n, s in enumerate(times))))

    assert history.wall_s <= (2 - 1 / gpus) * max(max(times), sum(times) / gpus) + 1e-9


# --- Properties of every policy

JOB = st.builds(
    Job,
    name=st.just("job"),
    gpus=st.integers(1, 12),
    time_s=st.integers(1, 40).map(float),
    at_s=st.integers(0, 60).map(float),
    estimate_s=st.none() | st.integers(1, 80).map(float),
    user=st.sampled_from("abc"),
    priority=st.integers(0, 3),
    restart_s=st.integers(0, 4).map(float),
    checkpoint_s=st.sampled_from([inf, 1.0, 7.0]),
    network_bytes_per_s=st.sampled_from([0.0, 1.0, 3.0]),
    storage_bytes_per_s=st.sampled_from([0.0, 2.0]),
)
JOBS = st.lists(JOB, min_size=1, max_size=25).map(
    lambda jobs: tuple(replace(job, name=f"job {number}") for number, job in enumerate(jobs))
)


def whole_seconds(most):
    return st.integers(0, most).map(float)


PLANS = st.builds(
    PoolPlan,
    gpus_per_node=st.sampled_from([(12,), (4, 4, 4), (8, 2, 2), (4, 8, 4)]),
    jobs=JOBS,
    policy=st.sampled_from(POLICIES),
    pack=st.sampled_from(["nodes", "any"]),
    preempt=st.booleans(),
    fabric_bytes_per_s=st.sampled_from([inf, 4.0]),
    store_bytes_per_s=st.sampled_from([inf, 3.0]),
    failures=st.lists(
        st.builds(Outage, whole_seconds(90), st.just(0), whole_seconds(30), whole_seconds(9), st.just(0.0)), max_size=4
    ).map(lambda listed: tuple(sorted(listed))),
)


@given(PLANS)
@settings(max_examples=100, deadline=None)
def test_all_work_is_done_once_and_every_gpu_second_has_a_cause(plan):
    history, records = run_pool(plan)
    gpus, compute_s = sum(plan.gpus_per_node), sum(job.gpus * job.time_s for job in plan.jobs)
    held_s = sum(record.gpus * record.ran_s for record in records)
    parts = history.breakdown_s

    assert sum(parts.values()) == pytest.approx(history.wall_s, rel=1e-9)
    assert history.samples == pytest.approx(compute_s)
    assert parts["compute"] * gpus == pytest.approx(compute_s)
    assert parts.get("lost", 0.0) * gpus == pytest.approx(sum(record.gpus * record.lost_s for record in records))
    not_held_s = sum(parts.get(cause, 0.0) for cause in ("idle", "detect", "repair"))
    assert history.wall_s - not_held_s == pytest.approx(held_s / gpus)
    assert history.steps == len(plan.jobs)


@given(PLANS)
@settings(max_examples=100, deadline=None)
def test_jobs_never_have_more_gpus_than_there_are(plan):
    history, records = run_pool(plan)
    gpus = {record.name: record.gpus for record in records}
    ran = [span for span in history.spans if span.kind != "idle"]
    changes = sorted(
        change for span in ran for change in ((span.start_s, gpus[span.lane]), (span.end_s, -gpus[span.lane]))
    )
    in_use = defaultdict[float, int](int)
    for at_s, by in changes:
        in_use[at_s] += by

    assert max(np.cumsum(list(in_use.values()))) <= sum(plan.gpus_per_node)
    for record in records:
        mine = [span for span in ran if span.lane == record.name]
        assert sum(span.end_s - span.start_s for span in mine) == pytest.approx(record.ran_s)
        began_s = min(span.start_s for span in mine)
        assert record.submit_s <= record.start_s <= began_s
        assert record.start_s == began_s or record.failed  # a node that fails as a job starts leaves no span
        assert record.end_s - record.submit_s == pytest.approx(record.waited_s + record.ran_s)


@given(PLANS)
@settings(max_examples=20, deadline=None)
def test_equal_plans_give_equal_bytes(plan):
    assert repr(run_pool(plan)) == repr(run_pool(plan))


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.lists(st.integers(1, 16), max_size=12),
    st.sampled_from(["nodes", "any"]),
)
def test_a_job_gets_all_its_gpus_at_once(sizes, jobs, pack):
    nodes, taken = Nodes(sizes, pack), []
    for gpus in jobs:
        if nodes.fits(gpus):
            taken.append(nodes.choose(gpus))
            nodes.take(taken[-1])
            alone = pack == "nodes" and gpus <= max(sizes)
            assert sum(count for _, count in taken[-1]) >= gpus
            assert len(taken[-1]) == 1 or not alone
            assert sum(count for _, count in taken[-1]) == gpus or (pack == "nodes" and not alone)
    assert nodes.total == sum(nodes.free) == sum(sizes) - sum(count for places in taken for _, count in places)
    for places in taken:
        nodes.release(places)

    assert nodes.free == sizes


def test_a_chart_of_many_jobs_has_a_lane_per_gpu_and_one_job_on_it_at_a_time():
    jobs = tuple(Job(f"{n}", 1 + n % 3, 1.0 + n % 7) for n in range(300))
    history, _ = run_pool(PoolPlan((4,) * 60, jobs))
    lanes, of_job = defaultdict(list), defaultdict(set)
    for span in history.spans:
        lanes[span.lane].append((span.start_s, span.end_s))
        of_job[span.name].add(span.lane)

    assert len(lanes) == 200
    assert history.notes == ("charts, traces and CSV show the first 200 of 240 GPUs; numbers count all",)
    assert all(end <= start for spans in lanes.values() for (_, end), (start, _) in pairwise(sorted(spans)))
    assert all(len(of_job[job.name]) in (0, job.gpus) for job in jobs[:100])  # those that start first


# --- Backfill


def reservation(records: tuple[JobRecord, ...], number: int, gpus: int) -> float:
    """When a job of the queue could start, seen from when it became the first: running jobs end, no other starts."""
    head_s = max([records[number].submit_s, *(record.start_s for record in records[:number])])
    running = [
        (record.end_s, record.gpus)
        for place, record in enumerate(records)
        if record.end_s > head_s and (record.start_s < head_s or (place < number and record.start_s == head_s))
    ]
    free, at_s = gpus - sum(count for _, count in running), head_s
    for end_s, count in sorted(running):
        if free >= records[number].gpus:
            break
        free, at_s = free + count, end_s
    return at_s


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=25))
@settings(max_examples=100, deadline=None)
def test_backfill_keeps_the_reservation_of_the_first_job(drawn):
    jobs = [Job(f"{n}", gpus, float(s), float(at)) for n, (gpus, s, at) in enumerate(sorted(drawn, key=lambda d: d[2]))]
    _, records = run_pool(PoolPlan((8,), tuple(jobs), policy="backfill", pack="any"))

    assert all(record.start_s <= reservation(records, n, 8) for n, record in enumerate(records))


@given(
    st.lists(st.tuples(st.integers(1, 16), st.integers(1, 30)), min_size=1, max_size=20),
    st.sampled_from([(8, 8), (16, 4, 4)]),
)
@settings(max_examples=100, deadline=None)
def test_backfill_keeps_nodes_for_the_first_job_that_waits(drawn, nodes):
    jobs = [Job(f"{number}", gpus, float(seconds)) for number, (gpus, seconds) in enumerate(drawn)]
    strict, filled = starts(jobs, nodes), starts(jobs, nodes, policy="backfill")
    waits = next((job.name for job in jobs if strict[job.name]), "0")

    assert filled[waits] <= strict[waits]


def test_backfill_fills_holes_in_front_of_a_large_job():
    jobs = [Job("half", 3, 10.0), Job("whole", 4, 10.0), Job("short", 1, 10.0), Job("long", 1, 11.0)]

    assert starts(jobs) == {"half": 0, "whole": 10, "short": 20, "long": 20}
    assert starts(jobs, policy="backfill") == {"half": 0, "whole": 10, "short": 0, "long": 20}


def test_backfill_starts_a_long_job_on_gpus_that_the_first_one_does_not_need():
    jobs = [Job("half", 2, 10.0), Job("wide", 3, 10.0), Job("long", 1, 99.0)]

    assert starts(jobs, policy="backfill") == {"half": 0, "wide": 10, "long": 0}


def test_backfill_believes_what_users_ask_for():
    jobs = [Job("half", 3, 10.0), Job("whole", 4, 10.0), Job("short", 1, 5.0, estimate_s=60.0)]

    assert starts(jobs, policy="backfill") == {"half": 0, "whole": 10, "short": 20}


def test_backfill_finishes_a_crowd_sooner_than_a_strict_queue():
    keys = {"gpus": (1, 2, 4, 8), "time": 600.0, "rate": 200.0, "count": 400}
    jobs = tuple(Arrivals(**keys).jobs(seed=1))  # type: ignore[arg-type]
    strict, filled = (run_pool(PoolPlan((8,) * 4, jobs, policy=policy))[0] for policy in ("fifo", "backfill"))

    assert filled.wall_s < strict.wall_s
    assert filled.counts["queue_mean_s"] < strict.counts["queue_mean_s"]


# --- Priorities, preemption, failures


def test_the_highest_priority_goes_first_then_the_earliest():
    jobs = [Job("runs", 4, 10.0), Job("low", 4, 10.0, 1.0), Job("high", 4, 10.0, 2.0, priority=5)]
    jobs.append(Job("also high", 4, 10.0, 3.0, priority=5))

    assert starts(jobs, policy="priority") == {"runs": 0, "high": 10, "also high": 20, "low": 30}


def test_preemption_loses_the_work_since_the_last_checkpoint():
    low = Job("low", 1, 100.0, checkpoint_s=30.0, restart_s=5.0)
    high = Job("high", 1, 10.0, at_s=50.0, priority=1)
    history, (record, _) = run_pool(PoolPlan((1,), (low, high), policy="priority", preempt=True))

    assert record == JobRecord(
        "low", "", 1, 0.0, 0.0, 135.0, waited_s=10.0, ran_s=125.0, lost_s=20.0, preempted=1, failed=0
    )
    assert history.breakdown_s == {"compute": 110.0, "lost": 20.0, "restart": 5.0}
    assert [(event.at_s, event.what, event.detail) for event in history.events] == [
        (50.0, "preemption", "low for high")
    ]


def test_a_job_without_checkpoints_begins_again():
    jobs = (Job("low", 1, 100.0), Job("high", 1, 10.0, at_s=50.0, priority=1))
    _, (record, _) = run_pool(PoolPlan((1,), jobs, policy="priority", preempt=True))

    assert (record.lost_s, record.end_s) == (50.0, 160.0)


def test_only_as_many_jobs_are_preempted_as_needed_the_lowest_and_latest_first():
    jobs = [
        Job("old", 1, 100.0),
        Job("middle", 1, 100.0, priority=1),
        Job("young", 2, 100.0, at_s=5.0),
        Job("high", 2, 10.0, at_s=10.0, priority=2),
    ]
    _, records = run_pool(PoolPlan((4,), tuple(jobs), policy="priority", preempt=True))

    assert [record.preempted for record in records] == [0, 0, 1, 0]


def test_no_job_is_preempted_for_one_that_could_not_start_even_so():
    jobs = [Job("low", 2, 50.0), Job("equal", 2, 50.0, priority=1), Job("wide", 4, 10.0, at_s=10.0, priority=1)]
    history, _ = run_pool(PoolPlan((4,), tuple(jobs), policy="priority", preempt=True))

    assert history.counts["preemptions"] == 0


def test_a_failure_kills_the_jobs_of_its_node_which_start_again_elsewhere():
    jobs = (Job("hit", 2, 100.0, checkpoint_s=30.0, restart_s=5.0), Job("spared", 2, 100.0))
    plan = PoolPlan((2, 2, 2), jobs, failures=(Outage(50.0, 0, 25.0),))
    history, (hit, spared) = run_pool(plan)

    assert (hit.end_s, hit.lost_s, hit.failed, spared.end_s) == (125.0, 20.0, 1, 100.0)
    assert history.breakdown_s["repair"] == pytest.approx(25.0 / 3)
    assert [(event.at_s, event.detail) for event in history.events] == [(50.0, "node 0: hit")]


def test_a_job_waits_for_the_repair_of_the_only_node_that_can_hold_it():
    failures = Outage(50.0, 0, 25.0), Outage(60.0, 0, 30.0)  # the second prolongs the first
    history, (record,) = run_pool(PoolPlan((2, 1), (Job("job", 2, 100.0),), failures=failures))

    assert (record.start_s, record.end_s, record.waited_s) == (0.0, 190.0, 40.0)
    assert history.breakdown_s == {"compute": 100 * 2 / 3, "lost": 50 * 2 / 3, "idle": 190 / 3, "repair": 40 * 2 / 3}


def test_a_node_is_away_before_it_is_noticed_and_while_it_is_repaired():
    history, _ = run_pool(PoolPlan((1,), (Job("job", 1, 10.0),), failures=(Outage(5.0, 0, 20.0, detect_s=3.0),)))

    assert history.breakdown_s == {"compute": 10, "lost": 5, "detect": 3, "repair": 20}


def test_backfill_reckons_with_a_repair():
    jobs = [Job("whole", 4, 10.0, at_s=1.0), Job("short", 2, 20.0, at_s=1.0), Job("long", 2, 40.0, at_s=1.0)]

    assert starts(jobs, (2, 2), policy="backfill", pack="any", failures=(Outage(0.0, 0, 30.0),)) == {
        "short": 1.0,
        "whole": 30.0,
        "long": 40.0,
    }


# --- Fair share


def test_fair_share_converges_to_the_weights():
    jobs = tuple(Job(f"{user}{n}", 1, 10.0, user=user) for user in "ab" for n in range(600))
    _, records = run_pool(PoolPlan((6,), jobs, policy="fair", weights={"a": 2.0}))
    used_s = {user: sum(r.ran_s for r in records if r.user == user and r.end_s <= 1000) for user in "ab"}

    assert used_s["a"] / used_s["b"] == pytest.approx(2.0, rel=0.02)


def test_a_user_who_has_used_little_goes_before_one_who_came_first():
    jobs = [Job(f"many {n}", 4, 10.0, user="many") for n in range(3)] + [Job("few", 4, 10.0, at_s=5.0, user="few")]

    assert starts(jobs, policy="fair") == {"many 0": 0, "few": 10, "many 1": 20, "many 2": 30}


# --- Shared links


def test_two_jobs_that_ask_for_twice_the_fabric_take_twice_as_long():
    jobs = tuple(Job(name, 1, 10.0, network_bytes_per_s=8e9) for name in "ab")
    history, records = run_pool(PoolPlan((2,), jobs, fabric_bytes_per_s=8e9))

    assert [record.end_s for record in records] == [20.0, 20.0]
    assert history.breakdown_s == {"compute": 10.0, "wait": 10.0}


def test_a_job_that_asks_for_little_is_not_slowed_by_one_that_asks_for_much():
    jobs = (Job("little", 1, 9.0, network_bytes_per_s=10.0), Job("much", 1, 9.0, network_bytes_per_s=30.0))
    _, records = run_pool(PoolPlan((2,), jobs, fabric_bytes_per_s=20.0))

    # It gets 10 of the 30 until 9 s, then 20: a third of the pace, then two thirds.
    assert [record.end_s for record in records] == pytest.approx([9.0, 9.0 + (9.0 - 3.0) * 1.5])


def test_the_slower_of_fabric_and_store_sets_the_pace():
    jobs = tuple(Job(name, 1, 10.0, network_bytes_per_s=2.0, storage_bytes_per_s=3.0) for name in "ab")
    _, records = run_pool(PoolPlan((2,), jobs, fabric_bytes_per_s=3.0, store_bytes_per_s=2.0))

    assert [record.end_s for record in records] == pytest.approx([30.0, 30.0])


def test_late_in_a_run_work_ends_although_time_is_coarse():
    jobs = tuple(Job(f"{n}", 1, 1 / (3 + n), at_s=1e8 + n / 7, network_bytes_per_s=3.0 + n % 2) for n in range(40))
    _, records = run_pool(PoolPlan((40,), jobs, fabric_bytes_per_s=4.0))

    assert max(record.end_s for record in records) < 1e8 + 10


@given(st.floats(0.1, 100), st.lists(st.tuples(st.floats(0.1, 50), st.integers(1, 5)), min_size=1, max_size=6))
def test_shares_are_max_min_fair(capacity, demands):
    share = fair_share(capacity, demands)
    moved = sum(min(demand, share) * count for demand, count in demands)

    assert moved == pytest.approx(min(capacity, sum(demand * count for demand, count in demands)))


# --- Packing


def test_a_job_waits_for_a_node_although_enough_gpus_are_free_in_pieces():
    jobs = [Job("five", 5, 10.0), Job("also five", 5, 20.0), Job("six", 6, 10.0)]

    assert starts(jobs, (8, 8), pack="nodes")["six"] == 10.0
    assert starts(jobs, (8, 8), pack="any")["six"] == 0.0


def test_a_small_job_fills_the_fullest_node_so_that_others_stay_whole():
    jobs = [Job("five", 5, 10.0), Job("three", 3, 10.0), Job("node", 8, 10.0)]

    assert starts(jobs, (8, 8)) == {"five": 0, "three": 0, "node": 0}


def test_a_large_job_takes_whole_nodes():
    jobs = [Job("twelve", 12, 10.0), Job("three", 3, 10.0)]

    assert starts(jobs, (8, 8))["three"] == 10.0
    assert starts(jobs, (8, 8), pack="any")["three"] == 0.0


def test_a_job_that_can_never_start_is_refused():
    with pytest.raises(UserError, match=r"^jobs: big: gpus = 17: the pool has 16 GPUs, so this job can never start$"):
        PoolPlan((8, 8), (Job("big", 17, 1.0),))
