"""The files of an answer are written all or none, and devices are written to."""

from pathlib import Path

import pytest
from runcast.simulator.answers import outputs as module
from runcast.simulator.base.errors import UserError

from ..command import runcast

TINY = Path(__file__).parents[2] / "data/scenarios/tiny-2ranks.toml"


def test_a_full_disk_leaves_no_file_and_the_old_ones(tmp_path, monkeypatch):
    (tmp_path / "report.json").write_text("old")

    def full(*_: object) -> None:
        raise UserError("no room")

    monkeypatch.setattr(module, "write_trace", full)
    done = runcast("simulate", TINY, "--out", tmp_path)

    left = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert (done.returncode, done.stderr, left) == (2, "error: no room\n", {"report.json": "old"})


@pytest.mark.parametrize("name", ["report.json", "timeline.csv"])
def test_a_fault_names_the_file_that_was_asked_for(tmp_path, monkeypatch, name):
    def full(path: Path, *_: object) -> None:
        raise UserError(f"{path}: no room")

    monkeypatch.setattr(module, "write_csv", lambda timeline, path: full(path))
    monkeypatch.setattr(module, "write_by_suffix", full) if name == "report.json" else None
    assert runcast("simulate", TINY, "--out", tmp_path).stderr == f"error: {tmp_path / name}: no room\n"


def test_all_files_are_there_and_no_other(tmp_path):
    runcast("simulate", TINY, "--out", tmp_path)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["index.html", "report.json", "timeline.csv", "trace.json.gz"]


def test_a_pipe_is_written_to(tmp_path):
    done = runcast("simulate", TINY, "--json", "/dev/null", "--csv", tmp_path / "a.csv")
    assert (done.returncode, Path("/dev/null").is_char_device()) == (0, True)
