"""Threads that follow lanes, without torch."""

import pytest
from runcast.calibrate.execute.lanes import run_lanes
from runcast.calibrate.execute.parts import Part


class OneRank:
    """A store that nobody else reads; others' parts end very late."""

    posted = ()

    def post(self, name, message):
        self.posted += ((name, message),)

    def read(self, name):
        return 10**30


def part(op, *lanes, after=(), signals=(), signalled=False):
    return Part(op, lanes, after, signals, signalled)


def follow(lanes, parts, act, store=None):
    return run_lanes(lanes, {p.op: p for p in parts}, act, 0, store or OneRank())


def test_an_op_on_two_lanes_waits_for_both():
    done = []
    stamps = follow({0: [0, 2, 3], 1: [1, 2]}, [part(0, 0), part(1, 1), part(2, 0, 1), part(3, 0)], done.append)
    assert (set(done[:2]), done[2:]) == ({0, 1}, [2, 3])
    assert [stamp.op for stamp in stamps] == [0, 1, 2, 3]
    assert stamps[2].start_ns >= max(stamps[0].end_ns, stamps[1].end_ns)


def test_ready_is_when_the_last_one_ended():
    stamps = follow({0: [0, 1], 1: [2]}, [part(0, 0), part(1, 0), part(2, 1, after=(0,))], lambda op: None)
    assert stamps[2].ready_ns == stamps[0].end_ns <= stamps[2].start_ns


def test_signals_carry_the_end():
    store = OneRank()
    stamps = follow({0: [0, 1]}, [part(0, 0, signalled=True), part(1, 0, signals=((7, 3),))], lambda op: None, store)
    assert store.posted == (("end/0/0", stamps[0].end_ns),)
    assert stamps[1].ready_ns == 10**30


def test_an_error_ends_the_run_though_other_lanes_wait():
    def act(op):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        follow({0: [0], 1: [1]}, [part(0, 0), part(1, 1, after=(0,))], act)
