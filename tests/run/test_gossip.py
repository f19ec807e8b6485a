import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from runcast.simulator.systems.run.history import Recorder
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.run.sync.compression import Message
from runcast.simulator.systems.run.sync.gossip import Gossip, Moments, advance, neighbours, run_gossip
from runcast.simulator.systems.run.team import Team

from ..examples import examples

RING, TORUS, RANDOM = Gossip(), Gossip(topology="torus"), Gossip(topology="random", degree=4)
TOPOLOGIES = pytest.mark.parametrize("keys", [RING, TORUS, RANDOM])


def graph(keys, workers, seed=0):
    return neighbours(keys, workers, np.random.default_rng(seed))


def hops(near, start):
    """Steps from a worker to each other worker."""
    found, edge = {start: 0}, [start]
    while edge:
        edge = [j for i in edge for j in near[i].tolist() if j not in found and not found.update({j: found[i] + 1})]
    return np.array([found[i] for i in range(len(near))])


def slow_worker(workers, **others):
    return Team(workers, step_s=1.0, samples=8, parameter_bytes=1e9, link_bytes_per_s=1e10, **others)


def test_a_ring_has_two_neighbours():
    assert [sorted(row) for row in graph(RING, 5).near.tolist()] == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]


def test_two_workers_are_one_pair():
    assert graph(RING, 2).near.tolist() == [[1], [0]]


def test_a_torus_is_as_square_as_it_can_be():
    """Twelve workers are 3 rows of 4."""
    assert sorted(graph(TORUS, 12).near[0].tolist()) == [1, 3, 4, 8]


@TOPOLOGIES
@pytest.mark.parametrize("workers", [6, 16, 30])
def test_who_is_a_neighbour_has_one(keys, workers):
    near = graph(keys, workers).near
    linked = np.zeros((workers, workers), int)
    np.add.at(linked, (np.arange(workers)[:, None], near), 1)
    assert (linked == linked.T).all()
    assert linked.max() == 1
    assert not linked.diagonal().any()


@examples(100)
@given(st.integers(4, 40), st.integers(3, 9), st.integers(0, 2**32))
def test_random_graphs_are_regular_and_connected(workers, degree, seed):
    if degree >= workers or workers * degree % 2:
        return
    near = graph(Gossip(topology="random", degree=degree), workers, seed).near
    assert near.shape == (workers, degree)
    assert all(len({*row}) == degree and i not in row for i, row in enumerate(near.tolist()))
    assert len(hops(near, 0)) == workers


@pytest.mark.slow
def test_all_pairs_are_equally_likely_in_random_graphs():
    """Of 10 workers with 4 neighbours, each of the 9 others is one with 4/9; 5 standard deviations of 2,000 graphs."""
    seen = np.zeros(10)
    for seed in range(2000):
        seen[graph(RANDOM, 10, seed).near[0]] += 1
    share, deviation = 4 / 9, (4 / 9 * 5 / 9 / 2000) ** 0.5
    assert np.abs(seen[1:] / 2000 - share).max() < 5 * deviation


@pytest.mark.parametrize(
    ("keys", "workers", "says"),
    [
        (TORUS, 7, "a torus needs a product of two numbers above 1 as workers .given: 7."),
        (RING, 1, "gossip needs at least 2 workers .given: 1."),
        (RANDOM, 4, "degree below the number of workers.*given: degree 4, 4 workers"),
        (Gossip(topology="random", degree=3), 7, "one of the two even .given: degree 3, 7 workers"),
    ],
)
def test_workers_without_such_a_graph(keys, workers, says):
    with pytest.raises(ValueError, match=says):
        graph(keys, workers)


@pytest.mark.parametrize("keys", [{"topology": "random"}, {"topology": "ring", "degree": 4}])
def test_degree_is_for_random_graphs(keys):
    with pytest.raises(ValidationError, match="degree goes with topology = 'random'"):
        Gossip(**keys)


@pytest.mark.parametrize(("keys", "degree"), [(RING, 2), (TORUS, 4), (RANDOM, 4)])
@pytest.mark.parametrize("workers", [16, 64, 256])
def test_equal_workers_take_compute_and_degree_times_size_over_bandwidth(keys, degree, workers):
    """No term grows with the number of workers: arXiv 1705.09056."""
    history = run_gossip(slow_worker(workers, latency_s=0.01), keys, steps=10)
    assert history.wall_s == pytest.approx(10 * (1.0 + degree * 1e9 / 1e10 + 0.01))
    assert history.breakdown_s == pytest.approx({"compute": 10.0, "exchange": 10 * (degree * 0.1 + 0.01)})


@pytest.mark.parametrize(("step_s", "period_s"), [(1.0, 1.0), (0.05, 0.2)])
def test_beside_compute_a_step_takes_the_longer_of_the_two(step_s, period_s):
    team = Team(8, step_s, 1, parameter_bytes=1e9, link_bytes_per_s=1e10)
    walls = [run_gossip(team, Gossip(overlap=True), steps).wall_s for steps in (100, 200)]
    assert walls[1] - walls[0] == pytest.approx(100 * period_s)


def test_staleness_is_one_step_where_messages_travel_beside_compute():
    assert [run_gossip(slow_worker(4), Gossip(overlap=on), 7).staleness for on in (False, True)] == [{0: 7}, {1: 7}]


@TOPOLOGIES
@pytest.mark.parametrize("overlap", [False, True])
def test_a_delay_travels_one_hop_per_step(keys, overlap):
    """Worker 5 stands for 100 s in its first step; who is h hops away ends step k on time if k is at most h."""
    near, steps = graph(keys, 36), 12
    compute_s = np.ones((steps, 36))
    compute_s[0, 5] += 100
    ends = advance(near, Moments.start(36), compute_s, 0.25, overlap).arrive[2:]
    on_time = advance(near, Moments.start(36), np.ones((steps, 36)), 0.25, overlap).arrive[2:]
    reached = np.arange(steps)[:, None] >= hops(near.near, 5) * (2 if overlap else 1)
    own = hops(near.near, 5) == 0
    assert ((ends > on_time) == reached | own).all()


@TOPOLOGIES
@pytest.mark.parametrize("overlap", [False, True])
@examples(60)
@given(seed=st.integers(0, 2**32), spread=st.floats(0.0, 2.0), exchange_s=st.floats(0, 3))
def test_between_each_alone_and_a_barrier_for_all(keys, overlap, seed, spread, exchange_s):
    rng = np.random.default_rng(seed)
    compute_s = Spread(kind="lognormal", spread=spread).draw(rng, (20, 16))
    wall_s = advance(graph(keys, 16), Moments.start(16), compute_s, exchange_s, overlap).arrive[-1].max()
    alone_s = (compute_s.sum(axis=0) + (exchange_s if overlap else 20 * exchange_s)).max()
    barrier_s = (compute_s.max(axis=1) + exchange_s).sum()
    assert alone_s * (1 - 1e-12) <= wall_s <= barrier_s * (1 + 1e-12)


@examples(100)
@given(
    st.sampled_from([RING, TORUS, RANDOM, Gossip(overlap=True), Gossip(topology="torus", overlap=True)]),
    st.integers(0, 6000),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_seconds_by_cause_add_up(keys, steps, spread, seed):
    speeds = tuple(1 + 0.1 * (i % 3) for i in range(12))
    team = slow_worker(12, speeds=speeds, jitter=Spread(kind="lognormal", spread=spread), seed=seed)
    history = run_gossip(team, keys, steps)
    assert sum(history.breakdown_s.values()) == pytest.approx(history.wall_s, rel=1e-9)


def test_a_slower_worker_slows_all_down_in_the_end():
    """A ring of 8 follows its slowest, which nobody overtakes by more than its distance."""
    history = run_gossip(slow_worker(8, speeds=(2.0, *[1.0] * 7)), RING, steps=1000)
    assert history.wall_s == pytest.approx(1000 * 2.2)
    assert history.breakdown_s["compute"] == pytest.approx(1000 * 9 / 8)


def test_fewer_neighbours_wait_less():
    """With jitter, waiting grows with whom one waits for: 2, 4, then all others."""
    jitter = Spread(kind="lognormal", spread=0.3)
    complete = Gossip(topology="random", degree=15)
    waits = [
        run_gossip(slow_worker(16, jitter=jitter), keys, 2000).breakdown_s["wait"] for keys in (RING, TORUS, complete)
    ]
    assert waits == sorted(waits)


def test_everyone_s_neighbour_is_a_barrier():
    """A complete graph takes the sum of the slowest: 16 workers' mean maximum of uniform factors from 0 to 2."""
    trace = Spread(kind="trace", values=tuple(np.linspace(0.001, 2, 2000)))
    history = run_gossip(Team(16, 1.0, 1, jitter=trace), Gossip(topology="random", degree=15), steps=4000)
    mean, deviation = 2 * 16 / 17, 2 * (16 / 17**2 / 18) ** 0.5
    assert history.wall_s / 4000 == pytest.approx(mean, abs=5 * deviation / 4000**0.5 + 0.001)


def test_compressed_messages_travel_faster():
    message = Message(1e8, "all_reduce", encode_s=0.1, decode_one_s=0.05)
    history = run_gossip(slow_worker(4), RING, 10, message)

    assert history.wall_s == pytest.approx(10 * (1.02 + 0.1 + 2 * 0.05))
    assert history.breakdown_s["encode"] == pytest.approx(10 * 0.2)


def test_no_cause_is_ever_given_seconds_back(monkeypatch):
    spent = []
    monkeypatch.setattr(Recorder, "spend", lambda _self, cause, seconds: spent.append((cause, seconds)))
    run_gossip(slow_worker(4), RING, 10, Message(1e8, "all_reduce", encode_s=0.1, decode_one_s=0.05))

    assert [cause for cause, seconds in spent if seconds < 0] == []


def test_samples_and_steps_are_counted():
    history = run_gossip(slow_worker(4), RING, 10)
    assert (history.steps, history.samples) == (10, 10 * 4 * 8)


def test_spans_say_what_the_first_steps_did():
    """Worker 0 takes twice as long; its neighbours wait for it from step 2 on."""
    spans = run_gossip(slow_worker(3, speeds=(2.0, 1.0, 1.0)), RING, 2).spans
    assert [(s.kind, s.start_s, s.end_s) for s in spans if s.lane == "worker 1"] == [
        ("compute", 0.0, 1.0),
        ("wait", 1.2, 2.2),
        ("compute", 2.2, 3.2),
    ]


def test_equal_seeds_give_equal_runs():
    def run(seed):
        return run_gossip(slow_worker(16, jitter=Spread(spread=0.1), seed=seed), RANDOM, 500)

    assert run(3) == run(3)
    assert run(3).wall_s != run(4).wall_s
