"""What the engine promises, one small Program per promise and one equality per test."""

import numpy as np
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import Engine, simulate
from runcast.simulator.program import ProgramBuilder


def ends(b: ProgramBuilder, *processes, **costs) -> dict[str, float]:
    """The end of each op by name."""
    program = b.build()
    timeline = simulate(program, kind_costs(program, **costs), processes)
    return dict(zip(program.names, timeline.end_s.tolist(), strict=True))


def starts(b: ProgramBuilder, *processes, **costs) -> dict[str, float]:
    """The start of each op by name."""
    program = b.build()
    timeline = simulate(program, kind_costs(program, **costs), processes)
    return dict(zip(program.names, timeline.start_s.tolist(), strict=True))


def lanes_of(b: ProgramBuilder, *names: str, rank: int = 0) -> list[int]:
    """Lanes of these names on a new place."""
    place = b.place(f"r{rank}", [rank])
    return [b.lane(place, name) for name in names]


# -- Lanes, gangs, latency --------------------------------------------------------------------------------------------


def test_a_lane_runs_its_ops_in_order_even_if_a_later_one_is_ready():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    slow = b.op("slow", [y], name="slow")
    b.op("a", [x], [slow], name="first")
    b.op("a", [x], name="second")
    assert ends(b, work_s={"slow": 5, "a": 1}) == {"slow": 5, "first": 6, "second": 7}


def test_an_op_waits_for_all_its_dependencies():
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    one, two = b.op("one", [x]), b.op("two", [y])
    b.op("after", [z], [one, two], name="after")
    assert starts(b, work_s={"one": 1, "two": 2})["after"] == 2


def test_an_op_of_several_lanes_starts_when_it_is_at_the_head_of_all_of_them():
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    b.op("one", [x], name="one")
    b.op("three", [y], name="three")
    b.op("gang", [x, y, z], name="gang")
    b.op("one", [z], name="behind")
    work = {"one": 1, "three": 3, "gang": 2}
    assert ends(b, work_s=work) == {"one": 1, "three": 3, "gang": 5, "behind": 6}


def test_cause_is_the_op_whose_end_let_it_start():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    one, two = b.op("one", [x]), b.op("two", [y])
    b.op("one", [x], [two])
    program = b.build()
    assert simulate(program, kind_costs(program, {"one": 1, "two": 2})).cause.tolist() == [-1, -1, two]
    assert one == 0


def test_ready_is_the_end_of_the_last_dependency_and_the_rest_is_queueing():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    one = b.op("one", [x])
    b.op("five", [y])
    b.op("one", [y], [one])
    program = b.build()
    timeline = simulate(program, kind_costs(program, {"one": 1, "five": 5}))
    assert (timeline.ready_s[2], timeline.start_s[2]) == (1, 5)


def test_latency_is_never_shared():
    """Two flows with 3 s of latency and 10 s of work on one link: 3 + 20, not 26."""
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    flows = [b.op("f", [lane], name=f"f{lane}") for lane in (x, y)]
    demand = {f: {0: 1.0} for f in flows}
    assert ends(b, work_s={"f": 10}, latency_s={"f": 3}, demand=demand, capacity_bytes_per_s=(1.0,)) == {
        "f0": 23,
        "f1": 23,
    }


def test_an_op_in_its_latency_does_not_slow_others():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    a, c = b.op("a", [x], name="a"), b.op("c", [y], name="c")
    costs = {"work_s": {"a": 4, "c": 4}, "latency_s": {"c": 2}}
    demand = {a: {0: 1.0}, c: {0: 1.0}}
    assert ends(b, **costs, demand=demand, capacity_bytes_per_s=(1.0,)) == {"a": 6, "c": 8}


def test_an_empty_program_takes_no_time():
    program = ProgramBuilder().build()
    assert simulate(program, kind_costs(program, {})).makespan_s == 0


# -- Sharing ----------------------------------------------------------------------------------------------------------


def test_fair_share_hand_case():
    """Bandwidth 10: flows of 100 and 100 at 0 and one of 25 at 5 end at 22.5, 22.5 and 12.5."""
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    b.op("wait", [z], name="wait")
    a, c = b.op("long", [x], name="a"), b.op("long", [y], name="c")
    d = b.op("short", [z], name="d")
    demand = {op: {0: 10.0} for op in (a, c, d)}
    work = {"wait": 5, "long": 10, "short": 2.5}
    assert ends(b, work_s=work, demand=demand, capacity_bytes_per_s=(10.0,)) == {
        "wait": 5,
        "a": 22.5,
        "c": 22.5,
        "d": 12.5,
    }


def test_a_calibrated_uncontended_time_is_reproduced_exactly():
    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    op = b.op("f", [x], name="f")
    latency, work = 1.1e-5, 0.1234567890123
    costs = {"work_s": {"f": work}, "latency_s": {"f": latency}, "demand": {op: {0: 3.3e9}}}
    assert ends(b, **costs, capacity_bytes_per_s=(3.3e9,)) == {"f": latency + work}


def test_flows_that_fit_together_do_not_slow_each_other():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    a, c = b.op("f", [x], name="a"), b.op("f", [y], name="c")
    demand = {a: {0: 4.0}, c: {0: 6.0}}
    assert ends(b, work_s={"f": 0.3}, demand=demand, capacity_bytes_per_s=(10.0,)) == {"a": 0.3, "c": 0.3}


def test_a_collective_runs_at_the_speed_of_its_fullest_link():
    """The copy on link 1 halves the collective, and leaves link 0 half empty."""
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    collective, copy, other = (b.op(kind, [lane], name=kind) for kind, lane in (("all", x), ("copy", y), ("own", z)))
    demand = {collective: {0: 1.0, 1: 1.0}, copy: {1: 1.0}, other: {0: 0.5}}
    work = {"all": 2, "copy": 2, "own": 4}
    assert ends(b, work_s=work, demand=demand, capacity_bytes_per_s=(1.0, 1.0)) == {"all": 4, "copy": 4, "own": 4}


def test_fill_compiled_gives_the_bits_of_fill_interpreted():
    pytest.importorskip("numba")
    from runcast.simulator.engine.sharing import fill, numba_fill

    rng = np.random.default_rng(7)
    compiled = numba_fill()
    assert compiled is not fill
    for _ in range(100):
        n, n_links = rng.integers(1, 40), rng.integers(1, 30)
        rows = [rng.permutation(n_links)[: rng.integers(0, n_links + 1)] for _ in range(n)]
        start = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
        links = np.concatenate(rows).astype(np.int64)
        rates = rng.uniform(0.1, 10, len(links))
        given = (np.arange(n), start, links, rates, rng.uniform(0, 1, n), rng.uniform(1, 20, n_links))
        scratch = np.zeros(n_links)
        by_python, by_numba = np.zeros(n), np.zeros(n)
        fill(*(a.tolist() for a in given), scratch.tolist(), by_python)
        compiled(*given, scratch, by_numba)
        assert by_python.tobytes() == by_numba.tobytes()


def test_many_flows_take_the_compiled_path_to_the_same_times():
    """Twelve equal flows at a time on one link, often enough for compiling: each round of work 1 takes 12."""
    b = ProgramBuilder()
    lanes = lanes_of(b, *(f"x{i}" for i in range(12)))
    ops = [b.op("f", [lane]) for _ in range(250) for lane in lanes]
    program = b.build()
    costs = kind_costs(program, {"f": 1}, demand={op: {0: 1.0} for op in ops}, capacity_bytes_per_s=(1.0,))
    assert simulate(program, costs).end_s.tolist() == pytest.approx([12 * (1 + op // 12) for op in ops], rel=1e-9)


# -- Interference -----------------------------------------------------------------------------------------------------


def test_a_pair_slows_for_exactly_as_long_as_it_overlaps():
    """Half speed beside the aggressor, which works from 2 to 5: 2 + 1.5 done by 5, the rest of 10 at full speed."""
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    b.op("victim", [x], name="victim")
    b.op("wait", [y], name="wait")
    b.op("aggressor", [y], name="aggressor")
    work = {"victim": 10, "wait": 2, "aggressor": 3}
    factors = {("victim", "aggressor"): 0.5}
    assert ends(b, work_s=work, interference=factors) == {"victim": 11.5, "wait": 2, "aggressor": 5}


def test_each_direction_of_a_pair_has_its_own_factor():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    b.op("gemm", [x], name="gemm")
    b.op("comm", [y], name="comm")
    factors = {("gemm", "comm"): 0.5, ("comm", "gemm"): 0.25}
    assert ends(b, work_s={"gemm": 1, "comm": 1}, interference=factors) == {"gemm": 2, "comm": 2.5}


def test_the_factors_of_several_aggressors_multiply():
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    b.op("victim", [x], name="victim")
    b.op("one", [y], name="one")
    b.op("two", [z], name="two")
    factors = {("victim", "one"): 0.5, ("victim", "two"): 0.25}
    assert ends(b, work_s={"victim": 1, "one": 100, "two": 100}, interference=factors)["victim"] == 8


def test_two_aggressors_of_one_class_count_twice():
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    b.op("victim", [x], name="victim")
    b.op("one", [y])
    b.op("one", [z])
    assert ends(b, work_s={"victim": 1, "one": 100}, interference={("victim", "one"): 0.5})["victim"] == 4


def test_an_op_does_not_disturb_itself_but_its_own_class_may():
    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    b.op("k", [x], name="beside")
    b.op("k", [x], name="alone")
    b.op("k", [y], name="other")
    assert ends(b, work_s={"k": 1}, interference={("k", "k"): 0.5}) == {"beside": 2, "alone": 3, "other": 2}


def test_ops_of_other_ranks_do_not_disturb():
    b = ProgramBuilder()
    (x,), (y,) = lanes_of(b, "x", rank=0), lanes_of(b, "x", rank=1)
    b.op("victim", [x], name="victim")
    b.op("one", [y], name="one")
    assert ends(b, work_s={"victim": 1, "one": 3}, interference={("victim", "one"): 0.5}) == {"victim": 1, "one": 3}


def test_a_collective_takes_its_slowest_member():
    b = ProgramBuilder()
    (c0, g0), (c1, g1), (c2,) = (
        lanes_of(b, *names, rank=r) for r, names in enumerate((("c", "g"), ("c", "g"), ("c",)))
    )
    b.op("collective", [c0, c1, c2], name="collective")
    b.op("light", [g0])
    b.op("heavy", [g1])
    factors = {("collective", "light"): 0.5, ("collective", "heavy"): 0.25}
    assert ends(b, work_s={"collective": 1, "light": 9, "heavy": 9}, interference=factors)["collective"] == 4


def test_a_capped_op_leaves_its_share_of_a_link():
    """The cap 0.25 holds before sharing, so that the other flow of the link gets 0.75 of it."""
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    victim, other = b.op("victim", [x], name="victim"), b.op("other", [y], name="other")
    b.op("aggressor", [z])
    demand = {victim: {0: 1.0}, other: {0: 1.0}}
    costs = {"work_s": {"victim": 1, "other": 3, "aggressor": 9}, "interference": {("victim", "aggressor"): 0.25}}
    assert ends(b, **costs, demand=demand, capacity_bytes_per_s=(1.0,)) | {"aggressor 2": 9} == {
        "victim": 4,
        "other": 4,
        "aggressor 2": 9,
    }


# -- The host, as ops and pools ---------------------------------------------------------------------------------------


def issue(b: ProgramBuilder, kernels: int, *, queue: int) -> list[int]:
    """A host that launches kernels of 10 s, 1 s each, through a queue of so many slots; the launch ops."""
    host, compute = lanes_of(b, "host", "compute")
    slots = b.pool("launch queue", 0, queue)
    launches = []
    for i in range(kernels):
        launches.append(b.op("launch", [host], name=f"launch {i}", acquires=[slots]))
        b.op("kernel", [compute], [launches[-1]], name=f"kernel {i}", releases=[slots])
    return launches


def test_a_kernel_waits_for_its_launch():
    b = ProgramBuilder()
    issue(b, 3, queue=9)
    found = starts(b, work_s={"launch": 5, "kernel": 1})
    assert [found[f"kernel {i}"] for i in range(3)] == [5, 10, 15]


def test_a_full_launch_queue_blocks_the_host():
    b = ProgramBuilder()
    issue(b, 5, queue=2)
    found = starts(b, work_s={"launch": 1, "kernel": 10})
    assert [found[f"launch {i}"] for i in range(5)] == [0, 1, 11, 21, 31]


def test_a_device_synchronisation_is_explicit():
    b = ProgramBuilder()
    issue(b, 2, queue=9)
    host = 0
    kernel = 3
    b.op("sync", [host], [kernel], name="sync")
    b.op("launch", [host], name="after")
    assert starts(b, work_s={"launch": 1, "kernel": 10})["after"] == 21


# -- Pools ------------------------------------------------------------------------------------------------------------


def test_a_pool_serves_first_come_first_served():
    """The first needs both slots and came before the second, which needs one that is free."""
    b = ProgramBuilder()
    x, y, z = lanes_of(b, "x", "y", "z")
    pool = b.pool("slots", 0, 2)
    b.op("four", [x], name="holder", acquires=[pool], releases=[pool])
    b.op("one", [y], name="late")
    b.op("one", [y], name="both", acquires=[pool, pool], releases=[pool, pool])
    b.op("two", [z])
    b.op("one", [z], name="single", acquires=[pool], releases=[pool])
    found = starts(b, work_s={"four": 4, "one": 1, "two": 2})
    assert (found["both"], found["single"]) == (4, 5)


def test_a_pool_bounds_how_many_hold_it():
    b = ProgramBuilder()
    pool = b.pool("slots", b.place("r0", [0]), 2)
    for i in range(5):
        b.op("k", [b.lane(0, f"x{i}")], name=f"k{i}", acquires=[pool], releases=[pool])
    assert ends(b, work_s={"k": 1}) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 3}


def test_slots_of_several_pools_are_taken_all_or_none():
    """`both` waits for p1 without holding p0, but is first in p0's queue."""
    b = ProgramBuilder()
    p0, p1 = b.pool("p0", b.place("r0", [0]), 1), b.pool("p1", 0, 1)
    b.op("three", [b.lane(0, "x")], name="holds p1", acquires=[p1], releases=[p1])
    b.op("one", [b.lane(0, "y")], name="both", acquires=[p0, p1], releases=[p0, p1])
    b.op("one", [b.lane(0, "z")], name="only p0", acquires=[p0], releases=[p0])
    found = starts(b, work_s={"three": 3, "one": 1})
    assert (found["both"], found["only p0"]) == (3, 4)


def test_who_leaves_a_queue_makes_way_for_the_next_in_it():
    """`single` stood behind `both` for p1, of which a slot was free all the time: they start together."""
    b = ProgramBuilder()
    p0, p1 = b.pool("p0", b.place("r0", [0]), 1), b.pool("p1", 0, 2)
    b.op("three", [b.lane(0, "x")], name="holds p0", acquires=[p0], releases=[p0])
    b.op("one", [b.lane(0, "y")], name="both", acquires=[p0, p1], releases=[p0, p1])
    b.op("one", [b.lane(0, "z")], name="single", acquires=[p1], releases=[p1])
    found = starts(b, work_s={"three": 3, "one": 1})
    assert (found["both"], found["single"]) == (3, 3)


def test_a_slot_may_be_given_back_by_another_op():
    b = ProgramBuilder()
    fill, drain = lanes_of(b, "fill", "drain")
    pool = b.pool("slots", 0, 1)
    for i in range(3):
        filled = b.op("fill", [fill], name=f"fill {i}", acquires=[pool])
        b.op("drain", [drain], [filled], name=f"drain {i}", releases=[pool])
    assert ends(b, work_s={"fill": 2, "drain": 1})["drain 2"] == 9


# -- Processes --------------------------------------------------------------------------------------------------------


def test_a_rank_that_slows_in_the_middle_of_an_op():
    def straggle(engine: Engine):
        yield engine.env.timeout(4)
        engine.set_rank_speed(0, 0.5)
        yield engine.env.timeout(4)
        engine.set_rank_speed(0, 1.0)

    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    b.op("a", [x], name="a")
    assert ends(b, straggle, work_s={"a": 10}) == {"a": 12}


def test_a_stalled_rank_goes_on_where_it_stopped():
    def stall(engine: Engine):
        yield engine.env.timeout(1)
        engine.set_rank_speed(1, 0.0)
        yield engine.env.timeout(7)
        engine.set_rank_speed(1, 1.0)

    b = ProgramBuilder()
    (x,), (y,) = lanes_of(b, "x", rank=0), lanes_of(b, "x", rank=1)
    b.op("all", [x, y], name="collective")
    b.op("own", [x], name="own")
    assert ends(b, stall, work_s={"all": 3, "own": 3}) == {"collective": 10, "own": 13}


def test_a_slow_rank_leaves_the_others_alone():
    def straggle(engine: Engine):
        engine.set_rank_speed(1, 0.5)
        yield engine.env.timeout(0)

    b = ProgramBuilder()
    for rank in (0, 1):
        b.op("a", lanes_of(b, "x", rank=rank), name=f"a{rank}")
    assert ends(b, straggle, work_s={"a": 1}) == {"a0": 1, "a1": 2}


@pytest.mark.parametrize("latency", [0, 8])
def test_a_running_op_that_is_cancelled_ends_now(latency):
    def fail(engine: Engine):
        yield engine.env.timeout(3)
        engine.cancel(0)

    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    b.op("a", [x], name="a")
    b.op("b", [x], name="next")
    program = b.build()
    timeline = simulate(program, kind_costs(program, {"a": 10, "b": 1}, latency_s={"a": latency}), [fail])
    assert (timeline.end_s.tolist(), timeline.cancelled.tolist()) == ([3, 4], [True, False])


def test_a_cancelled_flow_leaves_its_share():
    def fail(engine: Engine):
        yield engine.env.timeout(4)
        engine.cancel(0)

    b = ProgramBuilder()
    x, y = lanes_of(b, "x", "y")
    demand = {b.op("f", [lane], name=f"f{lane}"): {0: 1.0} for lane in (x, y)}
    assert ends(b, fail, work_s={"f": 4}, demand=demand, capacity_bytes_per_s=(1.0,)) == {"f0": 4, "f1": 6}


def test_a_pending_op_that_is_cancelled_takes_no_time_when_its_turn_comes():
    def cancel(engine: Engine):
        engine.cancel(1)
        yield engine.env.timeout(0)

    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    for name in ("a", "b", "c"):
        b.op("k", [x], name=name)
    assert ends(b, cancel, work_s={"k": 5}) == {"a": 5, "b": 5, "c": 10}


def test_cancelling_an_ended_op_changes_nothing():
    def cancel(engine: Engine):
        yield engine.env.timeout(3)
        engine.cancel(0)

    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    b.op("k", [x])
    b.op("k", [x])
    program = b.build()
    timeline = simulate(program, kind_costs(program, {"k": 2}), [cancel])
    assert (timeline.end_s.tolist(), timeline.cancelled.any()) == ([2, 4], False)


def test_a_cancelled_holder_gives_its_slot_back():
    def fail(engine: Engine):
        yield engine.env.timeout(1)
        engine.cancel(0)

    b = ProgramBuilder()
    pool = b.pool("slots", b.place("r0", [0]), 1)
    for i in range(2):
        b.op("k", [b.lane(0, f"x{i}")], name=f"k{i}", acquires=[pool], releases=[pool])
    assert ends(b, fail, work_s={"k": 5}) == {"k0": 1, "k1": 6}


def test_done_tells_when_an_op_has_ended():
    seen = []

    def watch(engine: Engine):
        op = yield engine.end_of(1)
        seen.append((op, engine.env.now))
        yield engine.end_of(0)  # has ended already
        seen.append((0, engine.env.now))

    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    for _ in range(3):
        b.op("k", [x])
    ends(b, watch, work_s={"k": 2})
    assert seen == [(1, 4), (0, 4)]


def test_a_process_may_slow_a_rank_when_an_op_ends():
    def straggle(engine: Engine):
        yield engine.end_of(0)
        engine.set_rank_speed(0, 0.5)

    b = ProgramBuilder()
    (x,) = lanes_of(b, "x")
    b.op("k", [x], name="a")
    b.op("k", [x], name="b")
    assert ends(b, straggle, work_s={"k": 2}) == {"a": 2, "b": 6}
