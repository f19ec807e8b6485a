import gzip
import json
import math
import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.case import Case
from runcast.calibrate.measure.records import Writer, matches, read_records, record_key, visits_in
from runcast.calibrate.measure.timing import Measurement

CASE = Case("gemm", "wgrad", {"m": 8, "dtype": "bf16"}, lambda bench: None, cost_class="gemm.bf16.wgrad", flop=16.0)


def test_a_record_holds_all_that_the_fit_reads():
    record = CASE.record(1, Measurement((1e-6, 2.5e-6), 0, {"issue_s": 1e-6}))
    assert record == {
        "group": "gemm",
        "case": "wgrad",
        "params": {"m": 8, "dtype": "bf16"},
        "round": 1,
        "library": "torch",
        "cache": "cold",
        "unit": "us",
        "samples": [1.0, 2.5],
        "flop": 16.0,
        "bytes": 0.0,
        "wrong": 0,
        "cost_class": "gemm.bf16.wgrad",
        "features": {},
        "together": "",
        "more": {"issue_s": 1e-6},
    }


def test_a_failed_visit_has_its_reason_and_no_samples():
    record = CASE.record(0, "RuntimeError: boom")
    assert (record["error"], "samples" in record) == ("RuntimeError: boom", False)


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ((), "gave no samples"),
        ((1.0, math.nan), "a sample of nan s is no time"),
        ((-1.0,), "a sample of -1 s is no time"),
    ],
)
def test_what_are_no_times_fail_the_visit(samples, told):
    assert CASE.record(0, Measurement(samples))["error"] == told


def test_numbers_that_are_none_are_left_open():
    measured = Measurement((1.0,), more={"power_w": [math.inf, 1.0]})
    assert CASE.record(0, measured)["more"] == {"power_w": [None, 1.0]}


@pytest.mark.parametrize(
    "pattern", ["gemm", "gemm/*", "*/wgrad", "gemm/[vw]*", "gemm/wgrad m=8*", "gemm/wgrad m=8 dtype=bf16"]
)
def test_patterns_that_name_a_case(pattern):
    assert matches(CASE.key, pattern)


@pytest.mark.parametrize("pattern", ["gem", "wgrad", "gemm/w", "gemm/wgrad m=9*", ""])
def test_patterns_that_do_not(pattern):
    assert not matches(CASE.key, pattern)


def test_what_is_written_is_read(tmp_path):
    written = [{"group": "environment"}, CASE.record(0, Measurement((1.0,))), CASE.record(1, "no")]
    writer = Writer(tmp_path / "deep" / "s.jsonl")
    for record in written:
        writer.append(record)
    writer.close()
    assert read_records(tmp_path / "deep" / "s.jsonl") == written


def test_a_line_that_a_kill_cut_is_forgotten_and_written_over(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text('{"group": "environment"}\n{"group": "gemm", "ca')
    assert read_records(path) == [{"group": "environment"}]
    writer = Writer(path)
    writer.append({"group": "next"})
    writer.close()
    assert read_records(path) == [{"group": "environment"}, {"group": "next"}]


def test_a_record_is_on_the_disk_when_append_returns(tmp_path, monkeypatch):
    path = tmp_path / "s.jsonl"
    on_disk = []
    monkeypatch.setattr(os, "fsync", lambda file: on_disk.append(read_records(path)))
    writer = Writer(path)
    writer.append({"group": "environment"})
    assert on_disk == [[{"group": "environment"}]]
    writer.append({"group": "next"})
    assert on_disk[1:] == [[{"group": "environment"}, {"group": "next"}]]
    writer.close()


def test_gzipped_files_are_read(tmp_path):
    path = tmp_path / "s.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"group": "environment"}\n'))
    assert read_records(path) == [{"group": "environment"}]


def test_what_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "s.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(bytes(2**20) for _ in range(257))
    for name in (path, Path("/dev/zero")):
        with pytest.raises(ValueError, match="is too large: at most 256 MiB of records are read"):
            read_records(name)


def test_too_many_lines_are_refused_as_such(tmp_path):
    path = tmp_path / "s.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(b"\n" * 2**20 for _ in range(9))

    with pytest.raises(ValueError, match="is too large: at most 8,388,608 lines are read"):
        read_records(path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nonsense", "s.jsonl:2: is not JSON"),
        ("[1]", "s.jsonl:2: is no record"),
        ('{"group": "g", "case": "c", "round": 0}', "is no record"),
        ('{"group": "g", "case": "c", "round": "0", "samples": [1.0]}', "is no record"),
        ('{"group": "g", "case": "c", "round": 0, "samples": ["1"]}', "is no record"),
        ('{"group": "g", "case": "c", "round": 0, "samples": []}', "is no record"),
        ('{"group": "g", "case": "c", "round": 0, "samples": [NaN]}', "is no record"),
    ],
)
def test_other_files_are_one_line(tmp_path, line, told):
    path = tmp_path / "s.jsonl"
    path.write_text('{"group": "environment"}\n' + line + "\n")
    with pytest.raises(ValueError, match=told):
        read_records(path)


def test_a_case_is_found_again_by_its_key():
    record = json.loads(json.dumps(CASE.record(0, Measurement((1.0,)))))
    assert record_key(record) == CASE.key == "gemm/wgrad m=8 dtype=bf16"


def test_failed_visits_count_as_done_unless_they_are_to_be_retried():
    records = [{"group": "environment"}, CASE.record(0, Measurement((1.0,))), CASE.record(1, "no")]
    assert visits_in(records) == {(CASE.key, 0), (CASE.key, 1)}
    assert visits_in(records, failed_too=False) == {(CASE.key, 0)}
