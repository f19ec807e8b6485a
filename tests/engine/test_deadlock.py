"""A deadlock is an error that names the cycle: which op waits for which, on which lane."""

import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import DeadlockError, simulate
from runcast.simulator.program import ProgramBuilder


def message(b: ProgramBuilder, *processes) -> str:
    program = b.build()
    with pytest.raises(DeadlockError) as error:
        simulate(program, kind_costs(program, dict.fromkeys(program.kinds, 1.0)), processes)
    return str(error.value)


def two_lanes(b: ProgramBuilder) -> tuple[int, int]:
    return b.lane(b.place("r0", [0]), "x"), b.lane(b.place("r1", [1]), "x")


def test_ops_that_depend_on_each_other():
    b = ProgramBuilder()
    x, y = two_lanes(b)
    b.op("k", [x], name="fine")
    b.op("k", [x], [2], name="hen")
    b.op("k", [y], [1], name="egg")
    assert message(b) == ("deadlock: 2 ops cannot run; the cycle is\n  'hen' waits for 'egg'\n  'egg' waits for 'hen'")


def test_collectives_in_opposite_order_on_two_ranks():
    b = ProgramBuilder()
    x, y = two_lanes(b)
    b.op("all", [x, y], name="first")
    b.op("all", [x, y], name="second")
    program = b.build_with_order([[0, 1], [1, 0]])
    with pytest.raises(DeadlockError) as error:
        simulate(program, kind_costs(program, {"all": 1.0}))
    assert str(error.value) == (
        "deadlock: 2 ops cannot run; the cycle is\n"
        "  'first' waits on lane r1.x for 'second'\n"
        "  'second' waits on lane r0.x for 'first'"
    )


def test_a_dependency_on_an_op_behind_oneself():
    b = ProgramBuilder()
    x, _ = two_lanes(b)
    b.op("k", [x], [1], name="first")
    b.op("k", [x], name="second")
    assert message(b) == (
        "deadlock: 2 ops cannot run; the cycle is\n"
        "  'first' waits for 'second'\n"
        "  'second' waits on lane r0.x for 'first'"
    )


def test_only_the_cycle_is_named_not_what_waits_for_it():
    b = ProgramBuilder()
    x, y = two_lanes(b)
    b.op("k", [y], [1], name="outside")
    b.op("k", [x], [2], name="a")
    b.op("k", [b.lane(0, "z")], [1], name="b")
    assert "outside" not in message(b)


def test_a_pool_that_is_never_released():
    b = ProgramBuilder()
    x, y = two_lanes(b)
    pool = b.pool("halves", 0, 1)
    b.op("k", [x], name="taker", acquires=[pool])
    b.op("k", [y], [0], name="next", acquires=[pool])
    assert message(b) == (
        "an op can never start: 1 ops cannot run; the first of them\n"
        "  'next' waits for a slot of 'halves' that nothing gives back"
    )


def test_a_pool_released_behind_the_op_that_waits_for_it():
    b = ProgramBuilder()
    x, _ = two_lanes(b)
    pool = b.pool("halves", 0, 1)
    b.op("k", [x], name="b0", acquires=[pool])
    b.op("k", [x], name="b1", acquires=[pool])
    b.op("k", [x], name="reload", releases=[pool])
    assert message(b) == (
        "deadlock: 2 ops cannot run; the cycle is\n"
        "  'b1' waits for a slot of 'halves', given back by 'reload'\n"
        "  'reload' waits on lane r0.x for 'b1'"
    )


def test_an_op_that_needs_more_slots_than_the_pool_has():
    b = ProgramBuilder()
    x, _ = two_lanes(b)
    pool = b.pool("halves", 0, 2)
    b.op("k", [x], name="greedy", acquires=[pool] * 3, releases=[pool] * 3)
    assert "'greedy' waits for a slot of 'halves'" in message(b)


def test_a_rank_that_stalls_for_ever():
    def stall(engine):
        engine.set_rank_speed(0, 0.0)
        yield engine.env.timeout(1)

    b = ProgramBuilder()
    x, y = two_lanes(b)
    b.op("all", [x, y], name="collective")
    assert "'collective' has started but its speed is 0" in message(b, stall)


def test_an_error_of_a_process_is_its_own():
    def fail(engine):
        yield engine.env.timeout(0.5)
        raise RuntimeError("my own")

    b = ProgramBuilder()
    x, _ = two_lanes(b)
    b.op("k", [x])
    program = b.build()
    with pytest.raises(RuntimeError, match="my own"):
        simulate(program, kind_costs(program, {"k": 1.0}), [fail])
