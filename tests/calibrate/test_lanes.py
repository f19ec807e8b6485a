"""Threads that follow lanes, without torch."""

import time
from collections import defaultdict
from threading import current_thread

import pytest
from runcast.calibrate.execute.lanes import Marks, run_lanes
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


class Later(Marks):
    """A device that ends an op a second after the last one of its lane and of what the lane waits for."""

    def __init__(self):
        self.reached = defaultdict(int)  # by lane

    def lane(self):
        return current_thread().name

    def mark(self):
        return self.reached[self.lane()]

    def wait(self, mark):
        self.reached[self.lane()] = max(self.reached[self.lane()], mark)

    def reached_ns(self, mark):
        return mark

    def act(self, op):
        self.reached[self.lane()] += 10**9


def test_lanes_wait_for_marks_and_not_for_the_end_of_ops():
    """Op 1 takes two lanes; op 3 waits for op 0 and op 2. The host goes on at once: only marks have times."""
    device, began = Later(), time.monotonic()
    parts = [part(0, 0), part(1, 0, 1), part(2, 1), part(3, 2, after=(0, 2))]
    stamps = run_lanes({0: [0, 1], 1: [1, 2], 2: [3]}, {p.op: p for p in parts}, device.act, 0, OneRank(), device)

    assert [stamp.start_ns // 10**9 for stamp in stamps] == [0, 1, 2, 3]
    assert (stamps[3].ready_ns // 10**9, time.monotonic() - began < 1) == (3, True)


def test_an_error_ends_the_run_though_other_lanes_wait():
    def act(op):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        follow({0: [0], 1: [1]}, [part(0, 0), part(1, 1, after=(0,))], act)
