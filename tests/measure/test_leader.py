"""What rank 0 keeps of a run, and what is left to be done when the same command starts again."""

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.facts import Facts
from runcast.calibrate.measure.job import Job
from runcast.calibrate.measure.leader import Leader
from runcast.calibrate.measure.place import Place
from runcast.calibrate.measure.plan import Options
from runcast.calibrate.measure.records import read_records

MACHINE = {"facts": Facts("cpu").to_json(), "environment": {"group": "environment", "gpu": "CPU"}}
ONLY = ("overheads/synchronize", "overheads/launch")


def leader(out, retry=False):
    """One that knows the machine: two cases, twice each."""
    begun = Leader(Job(Place(), "cpu", Options(only=ONLY, rounds=2)), out, retry)
    begun.heard(MACHINE)
    return begun


def test_a_case_that_was_given_up_is_spared_now_and_later(tmp_path):
    out = tmp_path / "s.jsonl"
    first = leader(out)
    given_up, other = first.todo(-1)[:2]
    first.gave_up(given_up, "timed out")
    first.gave_up(given_up, "timed out")  # heard twice
    left = [first.plan.visits[position].case.key for position in first.todo(-1)]
    first.close()
    assert left == [first.plan.visits[other].case.key] * 2

    errors = [(record["round"], record["error"]) for record in read_records(out)[1:]]
    assert errors == [(0, "timed out"), (1, "spared, since an earlier round gave up: timed out")]
    again = leader(out)
    assert [again.plan.visits[position].case.key for position in again.todo(-1)] == left
    again.close()


def test_what_was_given_up_may_be_retried(tmp_path):
    out = tmp_path / "s.jsonl"
    first = leader(out)
    first.gave_up(first.todo(-1)[0], "timed out")
    first.close()
    again = leader(out, retry=True)
    again.close()
    assert len(again.todo(-1)) == 4
