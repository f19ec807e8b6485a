"""Every algorithm of every collective, run by real processes on Gloo, gives ranks what the library's own one gives.

The library says what an op means, in numbers; nothing here knows which blocks an algorithm sends where.
"""

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from ..run.real.processes import run_ranks
from .exchanges import ALL, cases, wrong


@pytest.mark.slow
def test_a_few_give_what_the_library_gives():
    """Each algorithm of three ranks, or of two and a switch, once; wrong numbers are found."""
    some = {(op, name): (op, name, group) for op, name, group in cases(3)}
    found = run_ranks(3, wrong, list(some.values()))
    by_case = [(case, *map(sum, zip(*ranks, strict=True))) for case, *ranks in zip(some, *found, strict=True)]
    assert [case for case, now, _ in by_case if now] == []
    assert [case for case, _, changed in by_case if not changed] == []


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3, 4, 5, 6, 8])
def test_everyone_gets_what_the_library_gives(processes):
    """All algorithms, shapes of islands and roots."""
    some = cases(processes)
    found = run_ranks(processes, wrong, some)
    bad = [case for ranks in found for case, (blocks, _) in zip(some, ranks, strict=True) if blocks]
    assert bad == []


def test_all_algorithms_are_run():
    run = {(op, name) for processes in (2, 3, 4) for op, name, _ in cases(processes)}
    assert run == {(one.op, one.name) for one in ALL}
