"""Files: whole or not at all; numbers read back."""

import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runcast.simulator import UserError
from runcast.simulator.costs import by_kind
from runcast.simulator.engine import simulate
from runcast.simulator.timeline import Timeline, spans_of_ranks, write_atomic, write_csv
from runcast.simulator.updates import BucketSize, make_plan, two_stage


def update() -> Timeline:
    program = two_stage(make_plan(np.full(8, 256), 4, BucketSize(256, 3), classes=[range(4)]))
    return simulate(program, by_kind(program, {"h2d": 1 / 3, "broadcast": 0.1, "reload": 1e-7 / 7}))


@pytest.mark.parametrize("name", ["spans.csv", "spans.csv.gz"])
def test_numbers_of_a_csv_read_back_exactly(tmp_path: Path, name: str) -> None:
    write_csv(update(), tmp_path / name)
    back = pd.read_csv(tmp_path / name)
    expected = spans_of_ranks(update())
    numbers = ["rank", "op", "ready_s", "start_s", "end_s", "queued_s", "bytes", "rate_bytes_per_s"]
    pd.testing.assert_frame_equal(back[numbers], expected[numbers], check_exact=True)
    assert back.bucket.fillna(-1).tolist() == expected.bucket.tolist()


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    write_atomic(path, b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("x", b"new")]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="x: cannot be written: No space left on device"):
        write_atomic(path, b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("x", b"old")]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"x: cannot be written: there is no folder {tmp_path}/no"):
        write_atomic(tmp_path / "no" / "x", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: it is a folder"):
        write_atomic(tmp_path, b"")


def test_a_link_keeps_pointing_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_device_is_written_to_and_stays() -> None:
    write_atomic(os.devnull, b"new")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
