from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import messages
from runcast.calibrate.measure.case import Facts

OUT = Path("s.jsonl")


def record(case, visit_round=0, **more):
    return {"group": "gemm", "case": case, "params": {}, "round": visit_round} | more


STEADY, WIDE, VERY_WIDE = [100.0, 100.0, 100.0], [80.0, 100.0, 120.0], [50.0, 100.0, 150.0]


def test_a_family_is_counted_by_cases_and_spreads_by_visits():
    records = [
        record("a", samples=STEADY),
        record("a", 1, samples=WIDE),
        record("b", samples=VERY_WIDE, wrong=3),
        record("c", error="RuntimeError: no"),
    ]
    told = "gemm           2 cases measured, 1 failed, 1 of 3 spreads wide, 1 very wide, 1 with wrong results"
    assert messages.summary(records) == [told]


def test_a_busy_machine_is_named():
    records = [record("a", samples=VERY_WIDE), record("b", samples=STEADY)]
    assert messages.verdict(records, 0, OUT)[0].startswith("warning: 1 of 2 spreads are very wide")
    assert messages.verdict([record("b", samples=STEADY)], 0, OUT)[0] == "wrote 1 records to s.jsonl"


def test_what_is_left_is_said_and_else_what_comes_next():
    assert messages.verdict([], 3, OUT) == [
        "nothing to add to s.jsonl; 3 visits are left: the same command goes on where it stopped"
    ]
    assert messages.verdict([], 0, OUT)[-1].endswith("runcast calibrate fit s.jsonl --out s.json")


def test_what_makes_times_too_long_is_said_before(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    cpus = messages.warnings({}, Facts("cpu", ((0, 1, 2),)))
    assert [line.partition(":")[0] for line in cpus] == ["warning", "warning"]
    assert "load of this node is 1.5 on 2 CPUs" in cpus[0]
    assert "3 ranks on 2 CPUs" in cpus[1]
    (bound, _) = reversed(messages.warnings({"gpus_visible": 1}, Facts("cuda", ((0, 1),))))
    assert "--gpu-bind=none" in bound


def test_a_quiet_machine_has_no_warnings(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert messages.warnings({"gpus_visible": 8}, Facts("cuda", (tuple(range(8)),))) == []


def test_one_and_many():
    assert messages.machine_line({"gpu": "CPU"}, Facts("cpu")) == "CPU, 1 rank on 1 node, gloo"
    assert messages.machine_line({"gpu": "CPU"}, Facts("cpu", ((0, 1), (2, 3)))) == "CPU, 4 ranks on 2 nodes, gloo"
    assert messages.left_out({"too slow": 1}) == ["left out: 1 case: too slow"]
    assert messages.work_line(3, 4, 120.0, OUT) == "3 visits of cases, about 2 min, 4 of 7 are in s.jsonl already"
