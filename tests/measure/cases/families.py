"""What the families of this folder's tests have in common."""

import pytest
import torch
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.timing import Bench
from runcast.simulator.profile.forms import cost_class

CPU = Facts("cpu")
GPU = Facts("cuda", sms=132, memory_bytes=8e10)
NODE = Facts("cuda", ((0, 1, 2, 3), (4, 5, 6, 7)), sms=132, memory_bytes=8e10)
CPUS = Facts("cpu", ((0, 1),))
EVERY = [CPU, GPU, NODE, CPUS]
each = pytest.mark.parametrize("facts", EVERY, ids=["cpu", "gpu", "two nodes", "two cpus"])

_CLOSE_TO_ZERO = {"causal", "skew"}


def check(cases, facts):
    """The same cases every time, each with a name of its own and what its class needs to know."""
    found = list(cases(facts))
    keys = [case.key for case in found]
    assert keys == [case.key for case in cases(facts)]
    assert len(set(keys)) == len(keys)
    assert any(case.quick for case in found) or len(found) == 1
    for case in found:
        _check(case, facts)
    return found


def _check(case, facts):
    assert set(case.team) <= set(range(facts.ranks)), case.key
    assert case.flop >= 0 <= case.bytes
    if not case.cost_class:
        assert not case.features
        return
    known = cost_class(case.cost_class)
    assert known is not None, case.cost_class
    assert set(known.features) <= set(case.features) <= set(known.names), case.key
    assert all(x > 0 or (x == 0 and name in _CLOSE_TO_ZERO) for name, x in case.features.items()), case.key


def one(cases, facts, name, **params):
    """The case of this name with these parameters."""
    (found,) = [
        case
        for case in cases(facts)
        if case.name == name and all(case.params.get(key) == value for key, value in params.items())
    ]
    return found


def small(cases, seconds=0.2):
    """Those for a CPU, one call of which takes less than that, by the lean estimate."""
    return [case for case in cases if case.flop / 3e10 + case.bytes / 2e9 < seconds and case.team == (0,)]


def spread(cases, count):
    """So many of them, from the cheapest to the dearest."""
    ordered = sorted(cases, key=lambda case: (case.flop / 3e10 + case.bytes / 2e9, case.key))
    return [ordered[i * (len(ordered) - 1) // max(count - 1, 1)] for i in range(min(count, len(ordered)))]


BENCH = Bench(CpuDevice(), budget_s=0.002)


def measures(case, bench=BENCH, fewest=3):
    """Measured here and now: times, and nothing wrong. By one thread, since tests run beside each other."""
    torch.set_num_threads(1)
    found = case.measure(bench)
    assert len(found.samples_s) >= fewest, case.key
    assert min(found.samples_s) > 0, case.key
    assert not found.wrong, case.key
    return found


def measures_some(cases, count, seconds=0.2):
    """Some of every name and library, cheap ones and dear ones."""
    found = small(cases, seconds)
    for name, library in sorted({(case.name, case.library) for case in found}):
        for case in spread([case for case in found if (case.name, case.library) == (name, library)], count):
            measures(case)
