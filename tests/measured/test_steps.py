"""The program that times whole steps runs, and its rows are those that are committed (on a GPU: docs/measuring.md)."""

from pathlib import Path

import pytest

from . import steps

FOLDER = Path("data/measured/h100-sxm")


@pytest.mark.parametrize("recompute", [False, True])
def test_a_case_is_timed(monkeypatch, recompute):
    monkeypatch.setattr(steps, "LASTS_S", 0.0)
    case = steps.Case("tiny", 2, 32, 2, False, "flash", recompute)
    record = steps.measure(case, steps.TINY, "cpu")
    assert len(record["samples_s"]) == steps.FEWEST
    assert min(record["samples_s"]) > 0


def test_a_step_changes_the_weights():
    model, step = steps.prepare(steps.Case("tiny", 2, 32, 1, False, "flash", False), steps.TINY, "cpu")
    before = model.embed.weight.detach().clone()
    step()
    assert not before.equal(model.embed.weight)


def test_the_committed_rows_are_those_of_the_records(capsys):
    steps.write_rows(FOLDER / "steps.jsonl", "H100-SXM-80GB")
    assert capsys.readouterr().out == (FOLDER / "steps.csv").read_text()
