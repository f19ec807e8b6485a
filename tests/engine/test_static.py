"""The fast path gives the Timeline of the SimPy engine, bit for bit, interpreted and compiled."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.costs import Costs, kind_costs
from runcast.simulator.engine import DeadlockError, Engine, compiled, loops, simulate, static
from runcast.simulator.engine.disturbance import powers
from runcast.simulator.program import Pool, Program, ProgramBuilder, Ragged

from ..examples import examples
from .test_properties import SCRIPT, bits, runs

MANY = examples(200)
OVERLAPPING = ((0, 1), (1, 2), (2, 3, 4))
STATIC = st.one_of(
    runs(interference=True),
    runs(interference=True, ranks=OVERLAPPING),
    runs(),
    runs(pools=False),
)


@MANY
@given(STATIC)
def test_the_timeline_is_that_of_the_simpy_engine(run):
    program, costs = run
    fast, slow = static.run(program, costs, use_numba=False), Engine(program, costs).run()
    assert bits(fast) == bits(slow)
    assert not fast.cancelled.any()


@MANY
@given(STATIC, st.sampled_from([1 / 3, 0.7, 1.1]))
def test_times_that_no_float_holds_exactly_change_nothing_about_that(run, factor):
    program, costs = run
    costs = replace(costs, work_s=costs.work_s * factor, latency_s=costs.latency_s / 0.3)
    assert bits(static.run(program, costs, use_numba=False)) == bits(Engine(program, costs).run())


@MANY
@given(STATIC)
def test_compiled_code_gives_the_bits_of_interpreted_code(run):
    pytest.importorskip("numba")
    assert bits(static.run(*run, use_numba=True)) == bits(static.run(*run, use_numba=False))


@MANY
@given(STATIC)
def test_equal_inputs_give_equal_bytes_and_are_left_as_they_were(run):
    costs = run[1]
    work, interference = costs.work_s.copy(), costs.interference.copy()
    assert bits(simulate(*run)) == bits(simulate(*run))
    assert np.array_equal(costs.work_s, work)
    assert np.array_equal(costs.interference, interference)


@st.composite
def pooled(draw: st.DrawFn) -> tuple[Program, Costs]:
    """Random runs, of which ops take several slots of pools and others give them back, if anybody does."""
    program, costs = draw(runs(interference=True, pools=False))
    ops, pools = len(program), draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    acquires: list[list[int]] = [draw(st.lists(st.sampled_from(range(len(pools))), max_size=3)) for _ in range(ops)]
    releases: list[list[int]] = [[] for _ in range(ops)]
    for op, taken in enumerate(acquires):
        for pool in taken:
            releases[draw(st.integers(op, ops - 1))].append(pool)
    slots = tuple(Pool(f"p{i}", 0, many) for i, many in enumerate(pools))
    return replace(program, pools=slots, acquires=Ragged.build(acquires), releases=Ragged.build(releases)), costs


@pytest.mark.slow
@examples(500)
@given(pooled(), st.booleans())
def test_pools_are_those_of_the_simpy_engine(run, use_numba):
    program, costs = run
    fast = static.run(program, costs, use_numba)
    try:
        slow = Engine(program, costs).run()
    except DeadlockError:
        assert fast is None
    else:
        assert bits(fast) == bits(slow)


def test_many_ops_on_one_rank_disturb_each_other():
    """More than a few of one class at once: 10 lanes, of which 9 slow each op."""
    b = ProgramBuilder()
    place = b.place("r0", [0])
    for lane in range(10):
        b.op("copy", [b.lane(place, f"x{lane}")])
    program = b.build()
    costs = kind_costs(program, {"copy": 1}, interference={("copy", "copy"): 0.9})
    alone = float(powers(costs.interference, 10)[0, 9])
    assert static.run(program, costs).end_s.tolist() == [1 / alone] * 10
    assert alone == pytest.approx(0.9**9, rel=1e-15)


def test_compiled_code_takes_seconds_that_were_given_as_whole_numbers():
    pytest.importorskip("numba")
    b = ProgramBuilder()
    b.op("copy", [b.lane(b.place("r0", [0]), "x")])
    program = b.build()
    costs = kind_costs(program, {"copy": 2}, latency_s={"copy": 1}, interference={("copy", "copy"): 0.9})
    assert static.run(program, costs, use_numba=True).end_s.tolist() == [3.0]


def test_a_deadlock_is_explained_as_ever():
    b = ProgramBuilder()
    x, y = (b.lane(b.place(f"r{rank}", [rank]), "x") for rank in range(2))
    first, second = b.op("a", [x], name="first"), b.op("a", [y], name="second")
    b.op("a", [x, y], name="third")
    program = b.build()
    crossed = replace(program, order=type(program.order).build([[2, first], [second, 2]]), deps=program.deps)
    waiting = replace(crossed, deps=type(program.deps).build([[], [first], []]))
    with pytest.raises(DeadlockError) as fast:
        simulate(waiting, kind_costs(waiting, {"a": 1}))
    with pytest.raises(DeadlockError) as slow:
        Engine(waiting, kind_costs(waiting, {"a": 1})).run()
    assert str(fast.value) == str(slow.value)


def test_a_program_with_processes_runs_on_simpy(monkeypatch):
    monkeypatch.setattr(static, "run", lambda program, costs: pytest.fail("the fast path cannot run this"))
    b = ProgramBuilder()
    b.op("a", [b.lane(b.place("r0", [0]), "x")])

    def slows(engine):
        yield engine.env.timeout(0)
        engine.set_rank_speed(0, 0.5)

    assert simulate(b.build(), kind_costs(b.build(), {"a": 1}), [slows]).makespan_s == 2


@pytest.mark.slow
def test_without_numba_all_of_it_runs_interpreted():
    """In a process in which numba cannot be imported, with compiled code asked for."""
    compiles = "from runcast.simulator.engine import compiled\ncompiled._COMPILING_S = 0.0\n" + SCRIPT
    found = {_output(SCRIPT), _output(compiles), _output("import sys\nsys.modules['numba'] = None\n" + compiles)}
    assert len(found) == 1


def _output(script: str, **environment: str) -> str:
    run = [sys.executable, "-c", script]
    return subprocess.run(run, env=os.environ | environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_compiled_code_is_kept_in_the_users_cache_folder(tmp_path):
    pytest.importorskip("numba")
    script = "import numpy as np\nfrom runcast.simulator.engine import compiled, sharing\n"
    script += "fill = sharing.numba_fill()\nfill(*[np.zeros(0, int)] * 3, *[np.zeros(0)] * 5)\n"
    script += "print(sum(fill.stats.cache_hits.values()), compiled._is_kept(sharing.fill))"
    environment = {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    assert _output(script, **environment).split() == ["0", "True"]
    assert list(tmp_path.glob("runcast/*/**/*.nbc"))
    assert _output(script, **environment).split() == ["1", "True"]


@pytest.mark.slow
def test_compiled_code_needs_no_folder(tmp_path):
    pytest.importorskip("numba")
    file = tmp_path / "file"
    file.touch()
    script = "from runcast.simulator.engine import compiled\ndef one():\n    return 1\n"
    script += "print(compiled.compile_numba(one)())"
    environment = {"XDG_CACHE_HOME": str(file), "NUMBA_CACHE_DIR": ""}
    assert _output(script, **environment).strip() == "1"


def test_compiled_code_pays_once_a_process_has_interpreted_for_long(monkeypatch):
    monkeypatch.setattr(compiled, "_is_kept", lambda function: function is loops.run_alone)
    pace = compiled.Pace()
    assert [pace.pays(loops.run_alone, 0.25) for _ in range(3)] == [False, True, True]
    assert [pace.pays(loops.run_together, 0.25) for _ in range(4)] == [False, False, False, True]
