"""What cannot be read is one line that says why."""

import gzip
import json
import os

import pytest
from runcast.simulator import UserError
from runcast.simulator.base.files import read_text
from runcast.simulator.formats.traces import read_run

from .kineto_file import GEMM, HERE, document, host_op, kernel, step, write
from .log_file import iteration

FIXTURES = HERE / "fixtures"
NO_STEP = (
    "no line tells the time of a step; expected a log of Megatron-LM, Megatron Bridge, NeMo, torchtitan, nanotron, "
    "DeepSpeed, Hugging Face Trainer, or a trace (JSON)"
)


def line(path, step=None):
    """The one line that reading ends with, without the folder."""
    with pytest.raises(UserError) as caught:
        read_run(path, step)
    assert len(caught.value.faults) == 1
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}{os.sep}", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello\n", NO_STEP),
        ("", NO_STEP),
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('[{"ph": "X"', "is not JSON: Expecting ',' delimiter: line 1 column 12 (char 11)"),
        ('{"kind": "train_step"}', "is no trace: it has no list `traceEvents`"),
        ("[]", "holds no events at all; "
               "profile with ProfilerActivity.CUDA, in a process that may read CUPTI"),
    ],
)  # fmt: skip
def test_texts_that_are_nothing(tmp_path, text, expected):
    path = tmp_path / "file"
    path.write_text(text)

    assert line(path) == f"file: {expected}"


def test_no_such_file(tmp_path):
    assert line(tmp_path / "nothing.json") == "nothing.json: no such file"


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "trace.pb"
    path.write_bytes(b"\xff\xd8\x00\x01")

    assert line(path) == "trace.pb: is not text; expected a trace or a log of a run"


def test_a_torn_gzip_file(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 1000)[:-20])

    assert line(path) == "trace.json.gz: cannot read: Compressed file ended before the end-of-stream marker was reached"


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_file_above_the_limit(tmp_path, pack):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(pack(b" " * 2**20))

    with pytest.raises(UserError, match=r"holds more than 512 KiB, the most that is read$"):
        read_text(path, most_bytes=2**19)


def test_a_profile_of_the_host_alone_says_what_it_holds(tmp_path):
    path = write(tmp_path / "trace.json", [host_op(), host_op(), step(1, 0, 10, gpu=False)])

    assert line(path) == (
        "trace.json: holds no kernels of a GPU, only 2 cpu_op, user_annotation; "
        "profile with ProfilerActivity.CUDA, in a process that may read CUPTI"
    )


def test_a_real_profile_of_the_host(tmp_path):
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(8, 8) @ torch.ones(8, 8)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))

    assert "trace.json: holds no kernels of a GPU, only" in line(tmp_path / "trace.json")


def test_a_trace_without_steps(tmp_path):
    path = write(tmp_path / "trace.json", [kernel(GEMM, 0, 10)])

    assert line(path) == "trace.json: marks no step (ProfilerStep#N); call step() of the profiler once a step"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("megatron-rank0.json.gz", "10, 11, 12"), ("megatron-llama3-70b.log", "1, 2, 3, 4, 5, 6, 7, 8")],
)
def test_a_step_that_is_not_there(name, expected):
    assert line(FIXTURES / name, step=99) == f"{name}: holds no step 99; it has {expected}"


def test_many_steps_are_told_by_their_ends(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("\n".join(iteration(number, 1000.0) for number in range(1, 50)))

    assert line(path, step=99) == "run.log: holds no step 99; it has 49 from 1 to 49"


@pytest.mark.parametrize(
    ("dur", "expected"),
    [
        ({"dur": -5}, "dur = -5: expected 0 or more microseconds"),
        ({}, "ts and dur must be numbers of microseconds"),
    ],
)
def test_kernels_that_do_not_say_how_long_they_take(tmp_path, dur, expected):
    event = {key: value for key, value in kernel(GEMM, 0, 10).items() if key != "dur"}
    path = write(tmp_path / "trace.json", [step(1, 0, 10), event | dur])

    assert line(path) == f"trace.json: event '{GEMM}': {expected}"


def test_times_that_are_no_numbers(tmp_path):
    path = write(tmp_path / "trace.json", [step(1, 0, 10), kernel(GEMM, 0, 10) | {"ts": "noon"}])

    assert line(path) == f"trace.json: event '{GEMM}': ts and dur must be numbers of microseconds"


def test_a_folder_without_traces(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()

    assert line(folder) == "empty: holds no traces: expected a .json or .json.gz file per rank"


def test_two_files_of_one_rank(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("a.json", "b.json"):
        write(folder / name, [step(1, 0, 10), kernel(GEMM, 0, 10)])

    assert line(folder).replace(str(tmp_path), "") == "run/b.json: is of rank 0, as run/a.json is"


def test_ranks_without_a_common_step(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in (0, 1):
        write(folder / f"{rank}.json", [step(rank, 0, 10), kernel(GEMM, 0, 10)], rank)

    assert line(folder) == "run: no step is marked in the traces of all 2 ranks"


def test_odd_values_beside_the_events_do_no_harm(tmp_path):
    path = tmp_path / "trace.json"
    table = document(
        [step(1, 0, 10), kernel(GEMM, 0, 10), 7, {"ph": "X", "cat": "kernel", "ts": 1, "dur": 0, "args": None}]
    )
    path.write_text(json.dumps(table | {"distributedInfo": [], "deviceProperties": None}))

    assert read_run(path).step_s == pytest.approx(10e-6)


@pytest.mark.parametrize("value", [None, -1, "noon", [], {}, float("nan"), float("inf"), 10**400, True])
@pytest.mark.parametrize("key", ["ts", "dur", "name", "cat", "pid", "tid", "args"])
def test_a_value_of_any_type_is_read_or_is_one_line(tmp_path, key, value):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document([step(1, 0, 10), kernel(GEMM, 0, 5), kernel(GEMM, 5, 5) | {key: value}])))

    try:
        found = read_run(path).step_s > 0
    except UserError as error:
        found = "\n" not in str(error)

    assert found


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        ("0.0", "tells of 1 steps, but of none a time above zero"),
        (
            ".",
            NO_STEP,
        ),
    ],
)
def test_a_log_whose_steps_take_nothing(tmp_path, took, expected):
    path = tmp_path / "run.log"
    path.write_text(f" iteration 1/ 5 | elapsed time per iteration (ms): {took} |\n" * 3)

    assert line(path) == f"run.log: {expected}"


def test_a_time_with_two_points_is_read_to_the_second(tmp_path):
    path = tmp_path / "run.log"
    path.write_text(" iteration 1/ 5 | elapsed time per iteration (ms): 1.2.3 |\n")

    assert read_run(path).step_s == pytest.approx(0.0012)
