"""What ends a sweep early, and taking it up again: kills, ^C, other processes, disks."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from runcast.simulator import UserError
from runcast.simulator.answers.sweep import Store, load_sweep, run_sweep
from runcast.simulator.answers.sweep import plan as point_module
from runcast.simulator.answers.sweep import store as store_module
from runcast.simulator.runner import InProcess

from .conftest import TINY, many, start


def seconds(folder: Path) -> dict[int, float]:
    """By number of each finished point, the seconds that it took: another run would take others."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{folder}/state.sqlite?mode=ro", uri=True)) as state:
        return dict(state.execute("SELECT number, seconds FROM points"))
    return {}


def wait_for(folder: Path, points: int, process: "subprocess.Popen[str]") -> None:
    """Until so many points are done; a process that ended by itself ends the wait."""
    deadline = time.monotonic() + 120
    while len(seconds(folder)) < points and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def reference(path: Path, folder: Path) -> bytes:
    run_sweep(load_sweep(path), folder, InProcess())
    return (folder / "report.csv").read_bytes()


def killed_and_resumed(path: Path, folder: Path, moments: list[int]) -> bytes:
    """The report after a kill -9 at each moment, in finished points; what was done then is never done again."""
    pauses = [random.random() / 10 for _ in moments]
    for moment, pause in zip(moments, pauses, strict=True):
        process = start(path, "--out", folder, "--workers", 2)
        wait_for(folder, moment, process)
        time.sleep(pause)
        process.kill()
        process.communicate()
        before = seconds(folder)
    done = start(path, "--out", folder, "--workers", 2)
    _, error = done.communicate(timeout=300)
    after = seconds(folder)

    print(f"killed after {moments} points and then {pauses} s")  # pytest shows it where a test fails
    kept = {number: after.get(number) for number in before}
    assert (done.returncode, kept) == (0, before), error
    return (folder / "report.csv").read_bytes()


@pytest.mark.slow
def test_killed_and_resumed_is_the_uninterrupted_sweep(sweep_file, tmp_path):
    path = sweep_file(many(60))

    assert killed_and_resumed(path, tmp_path / "out", [20]) == reference(path, tmp_path / "whole")


@pytest.mark.slow
def test_six_hundred_points_killed_five_times(sweep_file, tmp_path):
    path = sweep_file(many(600))
    moments = sorted(random.sample(range(1, 500), 5))

    assert killed_and_resumed(path, tmp_path / "out", moments) == reference(path, tmp_path / "whole"), moments


@pytest.mark.slow
def test_ctrl_c_leaves_a_report_of_what_is_done_and_says_how_to_go_on(sweep_file, tmp_path):
    path, folder = sweep_file(many(2000)), tmp_path / "out"
    process = start(path, "--out", folder, "--workers", 2)
    wait_for(folder, 5, process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    done = len(seconds(folder))

    assert (process.returncode, (folder / "report.csv").read_text().count("\n") - 1, error.splitlines()[-2:]) == (
        130,
        done,
        [f"stopped with {done:,} of 2,000 points; the same command goes on from here", "interrupted"],
    )


@pytest.mark.slow
def test_sigterm_ends_it_as_ctrl_c_does_and_leaves_nothing(sweep_file, tmp_path):
    """Neither processes nor semaphores, of which Python's resource tracker would warn."""
    process = start(sweep_file(many(2000)), "--out", tmp_path / "out", "--workers", 2, start_new_session=True)
    wait_for(tmp_path / "out", 5, process)
    process.terminate()
    _, error = process.communicate(timeout=300)

    assert session_after(process.pid) == []
    assert (process.returncode, error.splitlines()[-1], "leaked" in error) == (130, "interrupted", False)


@pytest.mark.slow
def test_workers_end_with_a_process_that_was_killed(sweep_file, tmp_path):
    process = start(sweep_file(many(2000)), "--out", tmp_path / "out", "--workers", 2, start_new_session=True)
    wait_for(tmp_path / "out", 5, process)
    process.kill()
    process.wait()

    assert session_after(process.pid) == []


def session_after(leader: int, patience_s: float = 20.0) -> list[int]:
    """Living processes of the session that this one began, once there are none, or when patience ends."""
    deadline = time.monotonic() + patience_s
    while (found := session(leader)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def session(leader: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def test_two_sweeps_refuse_each_other(sweep_file, tmp_path):
    sweep = load_sweep(sweep_file())
    with (
        Store.open(tmp_path / "out", sweep),
        pytest.raises(UserError, match=f"another sweep is at work here .process {os.getpid()} on "),
        Store.open(tmp_path / "out", sweep),
    ):
        pass


def test_a_folder_of_another_sweep_says_which(sweep_file, tmp_path):
    first, second = (load_sweep(sweep_file(many(points), f"{points}.toml")) for points in (2, 3))
    run_sweep(first, tmp_path / "out", InProcess())

    with pytest.raises(UserError, match=r"holds another sweep, 'unnamed' of .*2\.toml \(2 points\)") as refused:
        run_sweep(second, tmp_path / "out", InProcess())

    assert len(refused.value.faults) == 1


@pytest.mark.parametrize("change", ["nodes=2", "update.inference.tp=1", "profile=h200-sxm"])
def test_another_base_is_another_sweep(sweep_file, change):
    path = sweep_file()

    assert load_sweep(path).digest != load_sweep(path, [change]).digest


def test_a_machine_file_that_changes_makes_another_sweep(sweep_file, tmp_path):
    machine = tmp_path / "mine.toml"
    machine.write_text('base = "h20-hgx"\ngpus_per_node = 2\n')
    path = sweep_file()
    before = load_sweep(path, [f"cluster={machine}"]).digest
    machine.write_text('base = "h20-hgx"\ngpus_per_node = 4\n')

    assert load_sweep(path, [f"cluster={machine}"]).digest != before


def test_a_failed_point_is_tried_again_when_the_sweep_goes_on(sweep_file, tmp_path, monkeypatch):
    path, folder = sweep_file(many(3)), tmp_path / "out"
    real = point_module.simulate

    def broken_once(scenario, **options):
        if scenario.update.bucket == 2**20 + 4096:
            raise MemoryError
        return real(scenario, **options)

    monkeypatch.setattr(point_module, "simulate", broken_once)
    first = run_sweep(load_sweep(path), folder, InProcess()).counts
    before = seconds(folder)
    monkeypatch.undo()
    again = run_sweep(load_sweep(path), folder, InProcess()).counts
    after = seconds(folder)

    assert (first, again, {n: after[n] == before[n] for n in before}) == (
        {"failed": 1, "ok": 2},
        {"ok": 3},
        {0: True, 1: False, 2: True},
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["lock", "report.csv", "rows/mine.parquet", "notes.txt"])
def test_a_folder_with_files_of_others_is_refused_and_stays_as_it_is(sweep_file, tmp_path, name):
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")

    first = name.partition("/")[0]
    with pytest.raises(UserError, match=f"out: holds {first}, which is no sweep's; give another --out$"):
        run_sweep(load_sweep(sweep_file()), tmp_path / "out", InProcess())

    assert contents(tmp_path / "out") == {name: b"mine"}


def test_a_database_of_another_program_is_refused_and_stays_as_it_is(sweep_file, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "state.sqlite")) as database:
        database.execute("CREATE TABLE mine (x)")
    (folder / "lock").write_text("mine")
    before = contents(folder)

    with pytest.raises(UserError, match=r"holds state\.sqlite, which is no sweep's"):
        run_sweep(load_sweep(sweep_file()), folder, InProcess())

    assert contents(folder) == before


def test_files_beside_those_of_a_sweep_stay(sweep_file, tmp_path):
    path, folder = sweep_file(many(2)), tmp_path / "out"
    run_sweep(load_sweep(path), folder, InProcess())
    (folder / "rows/mine.csv").write_text("mine")
    (folder / "rows/part-00009.parquet").write_text("of a longer report")
    run_sweep(load_sweep(path), folder, InProcess())

    assert sorted(entry.name for entry in (folder / "rows").iterdir()) == ["mine.csv", "part-00000.parquet"]


def test_a_sweep_may_lie_in_its_own_folder(tmp_path):
    file = tmp_path / "mine" / "sweep.toml"
    file.parent.mkdir()
    file.write_text(f'base = "{TINY}"\n{many(2)}')

    assert run_sweep(load_sweep(file), file.parent, InProcess()).counts == {"ok": 2}


MACHINE = 'base = "h20-hgx"\ngpus_per_node = 2\n'
NAMING = {
    "an axis": '[[axes]]\nkey = "cluster"\nvalues = ["mine.toml", "h20-hgx"]\n',
    "a what-if": '[[axes]]\nwhat_if = ["mine"]\n[what_if.mine]\nchanges = { cluster = "mine.toml" }\n',
    "a point": 'points = [{ cluster = { base = "h20-hgx", device = "mine.toml" } }]\n',
    "a file that an axis names": '[[axes]]\nkey = "cluster"\nvalues = ["outer.toml"]\n',
    "a folder of a model": '[[axes]]\nkey = "model.config"\nvalues = ["model"]\n',
}


@pytest.mark.parametrize("text", NAMING.values(), ids=NAMING.keys())
def test_a_file_that_only_points_name_makes_another_sweep_when_it_changes(sweep_file, tmp_path, text):
    (tmp_path / "outer.toml").write_text('base = "h20-hgx"\ndevice = "mine.toml"\n')
    (tmp_path / "model").mkdir()
    path = sweep_file(text)
    digests = []
    for content in ("", MACHINE, MACHINE.replace("2", "4"), MACHINE):
        for file in ("mine.toml", "model/config.json"):
            (tmp_path / file).write_text(content)
        with contextlib.chdir(tmp_path):
            digests.append(load_sweep(path).digest)

    assert [digests.index(one) for one in digests] == [0, 1, 2, 1]


def test_an_edited_file_of_an_axis_is_one_line(sweep_file, tmp_path):
    machine = tmp_path / "mine.toml"
    machine.write_text(MACHINE)
    path = sweep_file(f'[[axes]]\nkey = "cluster"\nvalues = ["{machine}"]\n')
    run_sweep(load_sweep(path), tmp_path / "out", InProcess())
    machine.write_text(MACHINE.replace("2", "4"))

    with pytest.raises(UserError, match=r"holds another sweep, .* or files that these name; give another --out$"):
        run_sweep(load_sweep(path), tmp_path / "out", InProcess())


def test_a_file_that_is_no_database_is_one_line(sweep_file, tmp_path):
    (tmp_path / "state.sqlite").write_text("something else, and long enough to be looked at" * 20)

    with pytest.raises(UserError, match=r"state\.sqlite is damaged \(file is not a database\); remove the folder"):
        run_sweep(load_sweep(sweep_file()), tmp_path, InProcess())


def test_a_row_that_was_written_over_is_computed_again(sweep_file, tmp_path):
    path = sweep_file(many(4))
    expected = reference(path, tmp_path)
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as state, state:
        state.execute("UPDATE points SET report = '{\"a' WHERE number = 1")
        state.execute("UPDATE points SET report = '[1]' WHERE number = 2")
        state.execute("DELETE FROM points WHERE number = 3")

    assert reference(path, tmp_path) == expected


@pytest.mark.parametrize(
    "change",
    ["status = 'done'", "asked = 'of another'", "number = 99 WHERE number = 5", "number = -1 WHERE number = 0"],
)
def test_a_row_of_another_sweep_is_refused(change, sweep_file, tmp_path):
    sweep = load_sweep(sweep_file())
    run_sweep(sweep, tmp_path / "out", InProcess())
    with closing(sqlite3.connect(tmp_path / "out/state.sqlite")) as state, state:
        state.execute(f"UPDATE points SET {change}")

    with pytest.raises(UserError, match=r"state\.sqlite: row -?\d+ is no point of this sweep; remove the folder, or"):
        run_sweep(sweep, tmp_path / "out", InProcess())


def test_a_database_that_lost_what_it_is_of_is_another_sweep(sweep_file, tmp_path):
    reference(path := sweep_file(many(2)), tmp_path)
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as state, state:
        state.execute("DELETE FROM sweep WHERE key = 'digest'")

    with pytest.raises(UserError, match="holds another sweep"):
        run_sweep(load_sweep(path), tmp_path, InProcess())


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_one_line(sweep_file, tmp_path):
    (tmp_path / "file").write_text("")
    process = start(sweep_file(), "--out", tmp_path / "file/out")
    _, error = process.communicate(timeout=300)

    assert (process.returncode, error.splitlines()) == (
        2,
        [f"error: {tmp_path}/file/out: cannot be written: Not a directory"],
    )


@pytest.mark.slow
def test_a_full_database_keeps_what_is_finished(sweep_file, tmp_path, monkeypatch):
    """SQLite itself says that the disk is full, at a size that it is given."""
    path, folder = sweep_file(many(60)), tmp_path / "out"
    connect = store_module._connect

    def small(where: Path) -> sqlite3.Connection:
        database = connect(where)
        database.execute("PRAGMA max_page_count = 24")
        return database

    monkeypatch.setattr(store_module, "_connect", small)
    with pytest.raises(UserError, match="disk is full; what is finished is kept"):
        run_sweep(load_sweep(path), folder, InProcess())
    monkeypatch.undo()
    before = seconds(folder)
    run_sweep(load_sweep(path), folder, InProcess())
    after = seconds(folder)

    assert (len(before) > 10, {number: after[number] for number in before}) == (True, before)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 kB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_finished_rows_survive(sweep_file, tmp_path, small_disk):
    path, folder = sweep_file(many(120)), small_disk / "out"
    process = start(path, "--out", folder, "--workers", 1)
    _, error = process.communicate(timeout=300)
    before = seconds(folder)
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    run_sweep(load_sweep(path), folder, InProcess())
    after = seconds(folder)
    report = (folder / "report.csv").read_bytes()

    assert (process.returncode, error.splitlines()[-1].startswith(f"error: {folder}: cannot be written: ")) == (2, True)
    assert (len(before) > 10, {number: after[number] for number in before}) == (True, before)
    assert report == reference(path, tmp_path / "whole")


@pytest.mark.slow
def test_a_read_only_folder_is_one_line_and_the_finished_rows_survive(sweep_file, small_disk):
    path, folder = sweep_file(many(2)), small_disk / "out"
    before = reference(path, folder)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    process = start(path, "--out", folder)
    _, error = process.communicate(timeout=300)

    assert (process.returncode, error, (folder / "report.csv").read_bytes()) == (
        2,
        f"error: {folder}: cannot be written: Read-only file system; what is finished is kept\n",
        before,
    )
