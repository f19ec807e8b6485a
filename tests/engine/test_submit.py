"""Processes that submit ops: retries, and workers that decide as they go."""

import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import DeadlockError, Engine, simulate
from runcast.simulator.program import ProgramBuilder, validate


def test_a_failed_op_is_cancelled_and_done_again():
    builder = ProgramBuilder()
    lane = builder.lane(builder.place("r0", [0]), "compute")
    work = builder.op("work", [lane], name="step")
    program = builder.build()

    def fails_at_2(engine: Engine):
        yield engine.env.timeout(2)
        engine.cancel(work)
        engine.submit(work)

    timeline = simulate(program, kind_costs(program, {"work": 5}), [fails_at_2])

    assert (timeline.end_s.tolist(), timeline.program.names) == ([2, 7], ("step", "step again"))


def test_a_submitted_op_stands_behind_what_its_lane_still_holds_and_waits_for_its_dependencies():
    builder = ProgramBuilder()
    one, two = (builder.lane(builder.place(f"r{rank}", [rank]), "compute") for rank in (0, 1))
    first, second, other = builder.op("a", [one]), builder.op("b", [one]), builder.op("long", [two])
    program = builder.build()

    def submits(engine: Engine):
        yield engine.end_of(first)
        engine.submit(like=first, after=[other])
        engine.submit(like=second)

    timeline = simulate(program, kind_costs(program, {"a": 1, "b": 2, "long": 10}), [submits])

    assert timeline.start_s.tolist() == [0, 1, 0, 10, 11]


def test_a_worker_goes_on_submitting_when_its_own_last_op_ends():
    builder = ProgramBuilder()
    step = builder.op("step", [builder.lane(builder.place("r0", [0]), "compute")])
    program = builder.build()

    def asynchronous_worker(engine: Engine):
        last = step
        for _ in range(4):
            yield engine.end_of(last)
            last = engine.submit(step)

    assert simulate(program, kind_costs(program, {"step": 3}), [asynchronous_worker]).makespan_s == 15


def test_submitted_ops_share_links_and_pools_like_their_originals():
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    slot = builder.pool("slot", place, 1)
    copy = builder.op("copy", [builder.lane(place, "h2d")], acquires=[slot], releases=[slot])
    send = builder.op("send", [builder.lane(place, "comm")])
    program = builder.build()
    demand = {copy: {0: 1.0}, send: {0: 1.0}}
    costs = kind_costs(program, {"copy": 4, "send": 8}, demand=demand, capacity_bytes_per_s=(1.0,))

    def twice(engine: Engine):
        engine.submit(copy)
        yield engine.env.timeout(0)

    assert simulate(program, costs, [twice]).end_s.tolist() == [8, 16, 16]


def test_the_grown_program_is_well_formed():
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    buffer = builder.buffer("b", place, 8)
    op = builder.op("work", [builder.lane(place, "compute")], writes=[(buffer, 0, 8)], tags={"bucket": 3})
    program = builder.build()

    def again(engine: Engine):
        yield engine.end_of(op)
        engine.submit(op, after=[op])

    grown = simulate(program, kind_costs(program, {"work": 1}), [again]).program

    assert validate(grown).names == ("work 0", "work 0 again")
    assert (grown.deps[1].tolist(), grown.tags["bucket"].tolist()) == ([0], [3, 3])


def test_a_submitted_op_that_can_never_start_is_named():
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    slot = builder.pool("slot", place, 1)
    op = builder.op("work", [builder.lane(place, "compute")], name="first", acquires=[slot])
    program = builder.build()

    def again(engine: Engine):
        yield engine.end_of(op)
        engine.submit(op, name="second")

    with pytest.raises(DeadlockError, match="'second' waits for a slot of 'slot' that nothing gives back"):
        simulate(program, kind_costs(program, {"work": 1}), [again])
