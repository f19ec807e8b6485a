"""What rank 0 keeps of a run, and what is left to be done when the same command starts again."""

import errno
from dataclasses import asdict

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.job import Job, Place
from runcast.calibrate.measure.leader import Leader
from runcast.calibrate.measure.messages import RunEndError
from runcast.calibrate.measure.plan import Options
from runcast.calibrate.measure.records import read_records
from runcast.calibrate.measure.timing import Measurement

MACHINE = {"facts": asdict(Facts("cpu")), "environment": {"group": "environment", "gpu": "CPU"}}
ONLY = ("overheads/synchronize", "overheads/launch")


def leader(out, retry=False, options=Options(only=ONLY, rounds=2), **other):  # noqa: B008
    """One that knows the machine: two cases, twice each."""
    begun = Leader(Job(Place(), "cpu", options), out, retry)
    begun.handle(MACHINE | {"environment": MACHINE["environment"] | other})
    return begun


def measured(of, position, wrong=None):
    """Its worker has measured that visit."""
    visit = of.plan.visits[position]
    of.handle({"record": visit.case.record(visit.round, Measurement((1e-6,) * 5, wrong)), "position": position})


def test_a_case_that_was_given_up_is_spared_now_and_later(tmp_path):
    out = tmp_path / "s.jsonl"
    first = leader(out)
    given_up, other = first.todo(-1)[:2]
    first.give_up(given_up, "timed out")
    first.give_up(given_up, "timed out")  # heard twice
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
    first.give_up(first.todo(-1)[0], "timed out")
    first.close()
    again = leader(out, retry=True)
    again.close()
    assert len(again.todo(-1)) == 4


@pytest.mark.parametrize(
    ("options", "here"),
    [
        (Options(only=ONLY, quick=True), "--quick --budget-ms 40.0"),
        (Options(only=ONLY, budget_s=0.01), "--budget-ms 10.0"),
    ],
)
def test_a_file_has_visits_of_one_budget(tmp_path, options, here):
    out = tmp_path / "s.jsonl"
    leader(out).close()
    with pytest.raises(RunEndError) as error:
        leader(out, options=options)
    said = f"{out}: was measured with --budget-ms 40.0, here it is {here}; name another --out, or give the same flags"
    assert (error.value.code, str(error.value)) == (2, said)


def test_a_file_that_does_not_note_its_budget_goes_on(tmp_path):
    out = tmp_path / "s.jsonl"
    out.write_text('{"group": "environment", "gpu": "CPU"}\n')
    again = leader(out, options=Options(only=ONLY, quick=True))
    again.close()
    assert len(again.todo(-1)) == 4


def test_what_has_been_measured_is_not_given_up(tmp_path):
    """A supervisor may hear of a broken rank only when its own worker is done with the case."""
    first = leader(tmp_path / "s.jsonl")
    done, *others = first.todo(-1)
    measured(first, done)
    first.give_up(done, "rank 1: its worker ended with exit code 1")
    first.close()
    assert first.todo(-1) == others
    assert [record for record in read_records(tmp_path / "s.jsonl") if "error" in record] == []


def test_each_round_of_a_case_is_a_visit_of_its_own(tmp_path):
    first = leader(tmp_path / "s.jsonl")
    done, *others = first.todo(-1)
    measured(first, done)
    first.close()
    again = leader(tmp_path / "s.jsonl")
    again.close()
    assert again.todo(-1) == others


def test_wrong_results_are_named_at_once_and_counted_in_the_end(tmp_path, capsys):
    first = leader(tmp_path / "s.jsonl")
    measured(first, first.todo(-1)[0], wrong=7)
    said = capsys.readouterr().err
    first.close()
    assert f"wrong: {first.plan.visits[0].case.key}: 7 elements of the result are wrong" in said
    assert "overheads      1 cases measured, 1 with wrong results" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["suite", "gpu", "torch", "cuda", "driver", "collectives", "cpu", "threads", "nodes"])
def test_a_file_goes_on_where_all_is_as_it_was(tmp_path, key):
    out = tmp_path / "s.jsonl"
    first = leader(out, **{key: [[0, 1]]}, machine="any")
    first.close()
    leader(out, **{key: ((0, 1),)}, machine="another").close()
    assert len(read_records(out)) == 1
    told = rf"was measured with {key} = \[\[0, 1\]\], here it is \[\[0\], \[1\]\]; name another --out"
    with pytest.raises(RunEndError, match=told) as ended:
        leader(out, **{key: ((0,), (1,))})
    assert ended.value.code == 2


def test_a_full_disk_ends_the_run(tmp_path, monkeypatch):
    first = leader(tmp_path / "s.jsonl")

    def full(_record):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(first.writer, "append", full)
    with pytest.raises(RunEndError, match=r"cannot write .*: No space left on device") as ended:
        measured(first, first.todo(-1)[0])
    assert ended.value.code == 1
