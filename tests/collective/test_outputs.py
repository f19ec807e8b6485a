"""What `runcast collective`, sweeps and comparisons make of a collective."""

import csv
import io
import json

import pytest
from runcast.simulator import simulate
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.predict import predict

from ..command import runcast
from .make import collective, predicted

ASKED = ("collective", "all_reduce", "--cluster", "dgx-h100", "--nodes", "2", "--sizes", "1 MiB:4 MiB")
SCENARIO = """
name = "mine"
kind = "collective"
cluster = "dgx-h100"
nodes = 2
[collective]
op = "all_reduce"
sizes = "64 MiB"
"""
COLUMNS = [
    "bytes", "algorithm", "level", "seconds", "low_s", "high_s", "algbw_bytes_per_s", "busbw_bytes_per_s",
    "provenance", "pieces", "latency_s", "protocol", "channels", "chosen",
    "draws_low_s", "draws_high_s",
]  # fmt: skip


def scenario(folder):
    path = folder / "mine.toml"
    path.write_text(SCENARIO)
    return path


def test_the_report_has_its_keys():
    found = predicted().to_json()
    assert {
        "seconds", "low_s", "high_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "algorithm", "level", "bytes", "op",
        "ranks", "exposed", "bound_by", "provenance", "rows",
    } <= set(found)  # fmt: skip
    assert [list(row) for row in found["rows"]] == [COLUMNS] * len(found["rows"])


def test_parts_sum_to_the_time():
    found = predicted().to_json()
    assert abs(sum(found["exposed"].values()) - found["seconds"]) < 1e-12 * found["seconds"] + 1e-15


@pytest.mark.parametrize("level", ["formula", "chunks"])
@pytest.mark.parametrize(
    "one", [one for op in OPS for one in algorithms(op).values()], ids=lambda one: f"{one.op}-{one.name}"
)
def test_the_timeline_ends_with_the_collective(one, level):
    found = predict(collective(one.op, algorithm=one.name, level=level, nodes=1 if one.name == "nvls" else 2))
    assert found.timeline.makespan_s == pytest.approx(found.report.best.seconds, rel=1e-12)


def test_the_timeline_of_a_curve_is_one_span():
    found = predict(collective(level="measured"))
    assert found.timeline.end_s.tolist() == [found.report.best.seconds]


def test_terms_beside_each_other_start_together():
    spans = predict(collective("all_to_all", algorithm="direct")).timeline.spans()
    launch, inside, between = spans.sort_values("op").itertuples()
    assert launch.end_s == inside.start_s == between.start_s


def test_a_fitted_curve_has_one_part():
    found = predicted(sizes="1 KiB", level="measured")
    assert found.to_json()["exposed"] == {"curve": found.best.seconds}
    assert (found.bound_by, found.best.latency_s) == ("curve", None)


def test_json_on_stdout_is_that_of_the_scenario():
    done = runcast(*ASKED, "--json", "-")
    found = json.loads(done.stdout)
    assert (done.returncode, found["rows"]) == (0, predicted(sizes="1 MiB:4 MiB").to_json()["rows"])


def test_csv_and_html_are_files(tmp_path):
    done = runcast(*ASKED, "--csv", tmp_path / "a.csv", "--html", tmp_path / "a.html")
    rows = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert done.returncode == 0, done.stderr
    assert (rows[0], len(rows)) == (COLUMNS, 1 + 3 * 8)
    assert "busbw" in (tmp_path / "a.html").read_text()


def test_the_table_marks_the_fastest_of_each_size():
    lines = runcast(*ASKED).stdout.splitlines()
    assert sum(line.endswith("*") for line in lines) == 3


def test_changes_and_mistakes_on_the_command_line():
    line = runcast(*ASKED, "--set", "collective.pieces=0")
    assert (line.returncode, line.stdout) == (2, "")
    assert line.stderr == "error: runcast collective: collective.pieces = 0: expected more than 0\n"


def test_a_sweep_over_algorithms(tmp_path):
    names = ["ring", "tree", "recursive_doubling"]
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f'base = "{scenario(tmp_path)}"\n[[axes]]\nkey = "collective.algorithm"\nvalues = {names}\n')
    done = runcast("sweep", sweep, "--out", tmp_path / "out", "--workers", 1)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out/report.csv").read_text())))
    asked = {name: simulate(scenario(tmp_path), [f"collective.algorithm={name}"]).report.best.seconds for name in names}
    assert done.returncode == 0, done.stderr
    assert {row["collective.algorithm"]: float(row["seconds"]) for row in rows} == asked


def test_two_scenarios_are_compared(tmp_path):
    mine, other = scenario(tmp_path), tmp_path / "other.toml"
    other.write_text(SCENARIO.replace("nodes = 2", "nodes = 4"))
    done = runcast("compare", mine, other)
    assert done.returncode == 0, done.stderr
    assert "nodes" in done.stdout
    assert "latency" in done.stdout
