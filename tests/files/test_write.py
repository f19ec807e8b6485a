"""Files are written whole or not at all."""

import gzip
import os
import stat
from pathlib import Path

import pytest
from runcast.simulator import UserError
from runcast.simulator.base.files import write_atomic, write_by_suffix


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


def test_a_suffix_says_whether_to_compress(tmp_path: Path) -> None:
    write_by_suffix(tmp_path / "x.csv", b"new")
    write_by_suffix(tmp_path / "x.csv.gz", b"new")
    assert (tmp_path / "x.csv").read_bytes() == gzip.decompress((tmp_path / "x.csv.gz").read_bytes()) == b"new"
