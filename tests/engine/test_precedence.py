"""What can run beside a chain of ops: what the order alone says is never contradicted by what happens."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.engine import simulate
from runcast.simulator.program import ProgramBuilder, may_overlap

from ..examples import examples
from .test_properties import runs


def chain_and_others():
    """Three broadcasts in a row; an op before all, one between the first two, one free, one that waits for the last."""
    b = ProgramBuilder()
    place = b.place("r0", [0])
    comm, copy, host = (b.lane(place, name) for name in ("comm", "copy", "host"))
    before = b.op("a", [host])
    first = b.op("broadcast", [comm], [before])
    between = b.op("a", [copy], [first])
    second = b.op("broadcast", [comm], [between])
    free = b.op("a", [b.lane(place, "free")], [first])
    third = b.op("broadcast", [comm])
    behind = b.op("a", [host], [third])
    return b.build(), [first, second, third], free, [before, between, behind]


def test_ops_that_are_ordered_with_all_of_a_chain_never_run_beside_it():
    program, chain, free, ordered = chain_and_others()
    beside = may_overlap(program, np.array(chain))
    assert beside[free]
    assert not beside[ordered].any()


@examples(200)
@given(runs(pools=False), st.integers(0, 10))
def test_what_cannot_overlap_does_not(run, pick):
    program, costs = run
    chain = program.order[pick % len(program.lanes)]
    timeline = simulate(program, costs)
    start, end = timeline.start_s, timeline.end_s
    for op in np.flatnonzero(~may_overlap(program, chain)):
        together = np.minimum(end[op], end[chain]) - np.maximum(start[op], start[chain])
        assert (together <= 0).all()
