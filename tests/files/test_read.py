"""Files of the user's are read, or one line says why not; names are found beside the file they stand in."""

import gzip
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import UserError
from runcast.simulator.base import files
from runcast.simulator.base.files import (
    MOST_BYTES,
    MOST_JSON,
    MOST_SETTINGS,
    digest,
    parse_toml,
    path_beside,
    read_json,
    read_text,
    read_toml,
)
from runcast.simulator.formats.samples import read_table
from runcast.simulator.hardware import cluster, device
from runcast.simulator.models import load_hf_config
from runcast.simulator.profile import load_profile, load_stack
from runcast.simulator.scenario import load_scenario


def fault(read: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(*arguments)
    assert len(caught.value.faults) == len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_plain_values(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = 1")
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert read_toml(tmp_path / "x.toml") == read_json(tmp_path / "x.json") == {"a": 1}


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbfa = 1")
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_toml(tmp_path / "x.toml") == read_json(tmp_path / "x.json") == {"a": 1}


@pytest.mark.parametrize(("mark", "code"), [(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")])
def test_text_of_windows_in_utf_16(tmp_path: Path, mark: bytes, code: str) -> None:
    (tmp_path / "x.log").write_bytes(mark + "Zürich\r\n".encode(code))

    assert read_text(tmp_path / "x.log") == "Zürich\r\n"


def test_half_a_character_of_utf_16_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"\xff\xfea")

    assert fault(read_text, tmp_path / "x.log") == f"{tmp_path}/x.log: is not text; expected a text file"


@pytest.mark.parametrize(
    ("content", "toml", "json"),
    [
        (b"= 4", "is not TOML: ", "is not JSON: "),
        (b"\x89PNG\xff\xfe", "is not text; expected a TOML file", "is not text; expected a JSON file"),
        (b"a = " + b"[" * 100_000, "is not TOML: ", "is not JSON: "),
        (b"a." * 3000 + b"b = 1", "is not TOML: tables or lists are more than 100 levels deep", "is not JSON: "),
        (b"a = " + b"9" * 5000, *["holds a number of more than 1,000 digits"] * 2),
    ],
)
def test_what_is_not_the_language(tmp_path: Path, content: bytes, toml: str, json: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert fault(read_toml, path).startswith(f"{path}: {toml}")
    assert fault(read_json, path).startswith(f"{path}: {json}")


@pytest.mark.parametrize(("levels", "said"), [(100, ""), (101, "more than 100 levels deep")])
def test_tables_are_so_deep_in_each_other(levels: int, said: str) -> None:
    text = f"{'.'.join('a' * levels)} = 1"  # the file itself is a table
    with pytest.raises(ValueError, match=said) if said else nullcontext():
        parse_toml(text)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.toml", "none.toml: no such file"),
        ("/", "/: is a folder; expected a TOML file"),
        ("/proc/self/mem", "/proc/self/mem: cannot read: Input/output error"),
        ("a" * 5000, "a: cannot read: File name too long"),
        ("a\0b", "b: cannot read: embedded null byte"),
    ],
)
def test_what_cannot_be_read(path: str, message: str) -> None:
    assert fault(read_toml, Path(path)).endswith(message)


@pytest.mark.parametrize(
    "read",
    [
        lambda name: load_scenario(name),
        lambda name: cluster(name, 1),
        lambda name: device(name),
        lambda name: load_profile(name),
        lambda name: load_stack(name),
        lambda name: load_hf_config(name),
    ],
)
def test_all_readers_say_it_alike(tmp_path: Path, read: Callable[[str], Any]) -> None:
    folder, broken = tmp_path / "x.toml", tmp_path / "broken.toml"
    (folder / "config.json").mkdir(parents=True)
    broken.write_bytes(b"\xff")
    missing = fault(read, str(tmp_path / "no.toml"))
    assert [words in missing for words in (f"{tmp_path}/no.toml", "no such file")] == [True, True]
    assert ": is a folder; expected a " in fault(read, str(folder))
    assert fault(read, str(broken)).startswith(f"{broken}: is not text; expected a ")


@pytest.mark.parametrize(
    ("read", "most"),
    [
        (read_toml, MOST_SETTINGS),
        (read_json, MOST_JSON),
        pytest.param(read_text, MOST_BYTES, marks=pytest.mark.slow),
        pytest.param(read_table, MOST_BYTES, marks=pytest.mark.slow),
    ],
)
def test_every_reader_stops_at_its_limit(tmp_path: Path, read: Callable[..., Any], most: int) -> None:
    """A device without an end, and a small file that unpacks to more than its reader takes."""
    bomb = tmp_path / "x"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.writelines(bytes(2**20) for _ in range(most // 2**20 + 1))
    said = f"holds more than {most >> 20} MiB, the most that is read"
    assert [fault(read, Path(path)) for path in ("/dev/zero", bomb)] == [f"/dev/zero: {said}", f"{bomb}: {said}"]


def test_lines_have_a_limit_too(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\n" * 2048)
    assert (
        fault(read_text, tmp_path / "x", "a text", 32 * 2047)
        == f"{tmp_path}/x: holds more than 2,047 lines, the most that are read"
    )
    assert read_text(tmp_path / "x", "a text", 32 * 2048) == "\n" * 2048


def test_a_small_file_of_many_small_values_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gzip.compress(b"[" + b"[]," * 2**23 + b"[]]"))

    assert (
        fault(read_text, tmp_path / "x")
        == f"{tmp_path}/x: unpacks to more than 100 times its size, the most that is read"
    )


def test_a_pipe_is_read_and_one_that_gives_nothing_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAIT_FOR_PIPE_S", 0.1)
    ours, theirs = os.pipe()
    os.write(theirs, b"a = 1")
    os.close(theirs)
    os.mkfifo(tmp_path / "x")
    assert read_toml(Path(f"/dev/fd/{ours}")) == {"a": 1}
    os.close(ours)
    assert fault(read_toml, tmp_path / "x") == f"{tmp_path}/x: cannot read: nothing came through this pipe for 0.1 s"


def test_a_digest_of_a_device_is_no_digest() -> None:
    assert fault(digest, Path("/dev/zero")).startswith("/dev/zero: is a device or a pipe")


def test_a_name_is_beside_the_file_it_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, here = tmp_path / "scenarios" / "s.toml", tmp_path / "here"
    for folder in (scenario.parent, here):
        folder.mkdir()
        (folder / "both").touch()
    scenario.touch()
    (here / "mine").touch()
    monkeypatch.chdir(here)

    assert path_beside("both", str(scenario)) == scenario.parent / "both"
    assert path_beside("neither", str(scenario)) == scenario.parent / "neither"
    assert path_beside("mine", str(scenario)) == Path("mine")
    assert path_beside("both", "scenario") == Path("both")
    assert path_beside("/both", str(scenario)) == Path("/both")
    assert path_beside("neither", "train-llama3-70b-64xh100") == Path("neither")  # nobody's files lie where that ships
