from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import messages
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.plan import Plan

OUT = Path("s.jsonl")


def record(case, visit_round=0, **more):
    return {"group": "gemm", "case": case, "params": {}, "round": visit_round} | more


STEADY, WIDE, VERY_WIDE = [100.0, 100.0, 100.0], [80.0, 100.0, 120.0], [50.0, 100.0, 150.0]


def opening(facts, left=0, **environment):
    """Lines before a run of seven visits, of which so many are left."""
    the_plan = Plan((None,) * 7, {"too slow": 1})
    return messages.opening_lines({"gpu": "CPU"} | environment, facts, the_plan, left, 120.0, OUT)


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 8)


def test_a_family_is_counted_by_cases_and_spreads_by_visits():
    records = [
        record("a", samples=STEADY),
        record("a", 1, samples=WIDE),
        record("b", samples=VERY_WIDE, wrong=3),
        record("c", error="RuntimeError: no"),
    ]
    line = "gemm           2 cases measured, 1 failed, 1 of 3 spreads wide, 1 very wide, 1 with wrong results"
    assert messages.closing_lines(records, 0, OUT)[0] == line


def test_a_busy_machine_is_named():
    records = [record("a", samples=VERY_WIDE), record("b", samples=STEADY)]
    assert messages.closing_lines(records, 0, OUT)[1].startswith("warning: 1 of 2 spreads are very wide")
    assert messages.closing_lines([record("b", samples=STEADY)], 0, OUT)[1] == "wrote 1 records to s.jsonl"


def test_what_is_left_is_said_and_else_what_comes_next():
    assert messages.closing_lines([], 3, OUT) == [
        "nothing to add to s.jsonl; 3 visits are left: the same command goes on where it stopped"
    ]
    assert messages.closing_lines([], 0, OUT)[-1].endswith("runcast calibrate fit s.jsonl --out s.json")


def test_what_makes_times_too_long_is_said_before(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    _, load, ranks, *_ = opening(Facts("cpu", ((0, 1, 2),)))
    assert load.startswith("warning: the load of this node is 1.5 on 2 CPUs")
    assert ranks == "warning: 3 ranks on 2 CPUs wait for each other"


def test_gpus_that_ranks_do_not_see_are_named(quiet):
    assert "--gpu-bind=none" in opening(Facts("cuda", ((0, 1),)), gpus_visible=1)[1]


def test_a_quiet_machine_has_no_warnings(quiet):
    lines = opening(Facts("cuda", (tuple(range(8)),)), gpus_visible=8)
    assert [line for line in lines if line.startswith("warning")] == []


def test_one_and_many(quiet):
    assert opening(Facts("cpu"), 3) == [
        "CPU, 1 rank on 1 node, gloo",
        "left out: 1 case: too slow",
        "3 visits of cases, about 2 min, 4 of 7 are in s.jsonl already",
    ]
    assert opening(Facts("cpu", ((0, 1), (2, 3))))[0] == "CPU, 4 ranks on 2 nodes, gloo"
