"""Files of `--json`, `--html` and so on: written before anything is printed, with what the options asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runcast.simulator import cli
from runcast.simulator.answers.outputs import json_text

ROOT = Path(__file__).parents[2]
TINY = "data/scenarios/tiny-2ranks.toml"
ROWS = "cost_class,device,bytes,seconds\ncopy.h2d,H100 SXM,39600000,1e-3\n"


def left(arguments, stdout):
    """The exit code of the command line in a process of its own."""
    runcast = Path(sys.executable).with_name("runcast")
    done = subprocess.run([runcast, *arguments], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, timeout=300)
    return done.returncode


@pytest.mark.parametrize(
    ("arguments", "endings"),
    [
        (["simulate", TINY], ("json", "csv", "trace.json", "html")),
        pytest.param(["explain", TINY, "--quick"], ("json", "html"), marks=pytest.mark.slow),
        pytest.param(["compare", TINY, "--set", "seed=1"], ("json", "csv", "html"), marks=pytest.mark.slow),
        pytest.param(["validate", "--kind", "copy", "--rows", "{rows}"], ("json", "csv"), marks=pytest.mark.slow),
    ],
)
def test_files_are_there_when_nobody_reads_what_is_printed(arguments, endings, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "rows.csv").write_text(ROWS)
    given = [word.format(rows=tmp_path / "rows.csv") for word in arguments]
    asked = [f"--{ending.partition('.')[0]}={tmp_path / f'out/f.{ending}'}" for ending in endings]
    reader, writer = os.pipe()
    os.close(reader)

    code = left([*given, *asked], writer)
    os.close(writer)

    assert (code, {path.name for path in (tmp_path / "out").iterdir()}) == (1, {f"f.{ending}" for ending in endings})


def test_draws_are_in_the_report(tmp_path):
    with pytest.raises(SystemExit):
        cli.main(["simulate", str(ROOT / TINY), "--draws", "20", "--seed", "3", "--out", str(tmp_path / "out")])
    report = json.loads((tmp_path / "out/report.json").read_text())
    drawn = report["draws"]

    assert (list(drawn), drawn["count"], drawn["seed"]) == (["count", "seed", "low_s", "median_s", "high_s"], 20, 3)
    assert drawn["low_s"] < drawn["median_s"] < drawn["high_s"] < 2 * report["interval_high_s"]


def test_what_is_no_number_is_never_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"total_s": float("nan")})
