"""nvbandwidth, text and JSON. Shapes: its output.cpp and json_output.cpp, NVIDIA/nvbandwidth issues 13 and 24."""

import json

import pytest
from runcast.calibrate.importing import Options, import_logs
from runcast.simulator.base.errors import UserError

HEAD = """nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12060
Driver Version: 560.35.05

secret-host
Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)
Device 1: NVIDIA H100 80GB HBM3 (00000000:3b:00)

"""
MIB = 1 << 20


def block(test, title, rows):
    header = "           0         1\n"
    return f"Running {test}.\n{title}\n{header}{rows}\nSUM {test} 1.0\n\n"


def read(tmp_path, text, options=Options()):  # noqa: B008
    (tmp_path / "bw.log").write_text(text)
    return import_logs([tmp_path / "bw.log"], options)


def test_a_matrix_is_a_sample_per_cell(tmp_path):
    log = HEAD + block(
        "host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", " 0   55.28   50.00"
    )
    samples = read(tmp_path, log)
    assert samples.table.iloc[1].to_dict() == {
        "cost_class": "copy.h2d",
        "device": "H100 SXM",
        "library": "copy engine",
        "group": "host_to_device_memcpy_ce",
        "seconds": 512 * MIB / 50e9,
        "source": f"{tmp_path}/bw.log:14",
        "bytes": 512.0 * MIB,
    }


CLASSES = {
    "host_to_device_memcpy_ce": ("copy.h2d", "copy engine"),
    "device_to_host_memcpy_sm": ("copy.d2h", "copy kernel"),
    "host_to_device_bidirectional_memcpy_ce": ("copy.h2d.bidirectional", "copy engine"),
    "device_to_host_bidirectional_memcpy_sm": ("copy.d2h.bidirectional", "copy kernel"),
    "device_to_device_memcpy_read_ce": ("copy.p2p", "copy engine"),
    "device_to_device_memcpy_write_sm": ("copy.p2p", "copy kernel"),
    "device_to_device_bidirectional_memcpy_write_ce": ("copy.p2p.bidirectional", "copy engine"),
    "device_local_copy": ("copy.d2d", "copy engine"),
    "all_to_host_memcpy_ce": ("copy.d2h.concurrent", "copy engine"),
    "host_to_all_bidirectional_memcpy_sm": ("copy.h2d.bidirectional.concurrent", "copy kernel"),
}


@pytest.mark.parametrize("test", CLASSES)
def test_classes_of_tests(tmp_path, test):
    samples = read(tmp_path, HEAD + block(test, "memcpy bandwidth (GB/s)", " 0   100.0   50.00"))
    assert samples.table[["cost_class", "library"]].drop_duplicates().values.tolist() == [list(CLASSES[test])]


@pytest.mark.parametrize(
    ("test", "title", "reason"),
    [
        ("host_device_latency_sm", "memory latency SM CPU(row) <-> GPU(column) (ns)", "a latency of loads, not a copy"),
        ("all_to_one_write_sm", "memcpy bandwidth (GB/s)", "a sum over GPUs, not a copy"),
        ("device_to_device_bidirectional_memcpy_read_sm", "memcpy SM bandwidth (GB/s)", "counts both ways"),
        ("device_to_device_bidirectional_memcpy_read_ce", "memcpy CE Total bandwidth (GB/s)", "counts both ways"),
        ("new_test_ce", "memcpy bandwidth (GB/s)", "has no cost class"),
    ],
)
def test_what_is_no_copy_is_left_out(tmp_path, test, title, reason):
    good = block("device_local_copy", "memcpy local GPU(column) bandwidth (GB/s)", " 0   1000.0   N/A")
    samples = read(tmp_path, HEAD + good + block(test, title, " 0   100.0   50.00"))
    assert set(samples.table["cost_class"]) == {"copy.d2d"}
    assert samples.dropped[1].startswith(f"{tmp_path}/bw.log: 2 left out: {test}")
    assert reason in samples.dropped[1]


def test_the_two_ways_of_a_bidirectional_test(tmp_path):
    name = "device_to_device_bidirectional_memcpy_read_sm"
    log = f"Running {name}.\n" + "".join(
        f"memcpy SM GPU <-> GPU {part} bandwidth (GB/s)\n   0   1\n 0   N/A   {rate}\n 1   {rate}   N/A\n\n"
        for part, rate in (("Read1", 150.0), ("Read2", 151.0), ("Total", 301.0))
    )
    samples = read(tmp_path, HEAD + log)
    assert samples.table["bytes"].div(samples.table["seconds"]).round(-6).tolist() == [150e9, 150e9, 151e9, 151e9]


def test_waived_cells_and_tests_are_no_faults(tmp_path):
    log = HEAD + block(
        "device_to_device_memcpy_read_ce", "memcpy CE bandwidth (GB/s)", " 0   N/A   276.0\n 1   0.00   N/A"
    )
    samples = read(tmp_path, log + "Waived: \nWaived: no peers\nWaiving device_to_device_memcpy_write_ce.\n")
    assert len(samples) == 1
    assert samples.dropped == (
        f"{tmp_path}/bw.log: 3 left out: waived cells (line 14, 15, 15)",
        f"{tmp_path}/bw.log: 3 tests were waived",
    )


def test_a_broken_row_is_left_out(tmp_path):
    log = HEAD + block("device_local_copy", "memcpy local bandwidth (GB/s)", " 0   1000.0   999.0\n 1   12")
    samples = read(tmp_path, log)
    assert samples.dropped == (f"{tmp_path}/bw.log: 1 left out: row is not an index and 2 rates (line 15)",)


@pytest.mark.parametrize(
    ("version", "options", "mib"),
    [
        ("v0.2", Options(), 64),
        ("v0.6", Options(), 64),
        ("v0.7", Options(), 512),
        ("0.10", Options(), 512),
        ("v0.8", Options(buffer_bytes=16 * MIB), 16),
    ],
)
def test_the_size_of_a_copy_by_version(tmp_path, version, options, mib):
    log = HEAD.replace("v0.8", version, 1) + block(
        "device_local_copy", "memcpy bandwidth (GB/s)", " 0   1000.0   999.0"
    )
    assert set(read(tmp_path, log, options).table["bytes"]) == {float(mib * MIB)}


def test_the_size_of_a_copy_from_the_command(tmp_path):
    command = "$ ./nvbandwidth -b 128 -t device_local_copy\n"
    log = command + HEAD + block("device_local_copy", "memcpy bandwidth (GB/s)", " 0   1000.0   999.0")
    assert set(read(tmp_path, log).table["bytes"]) == {128.0 * MIB}


def body(**changes):
    case = {
        "name": "host_to_device_memcpy_ce",
        "status": "Passed",
        "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s) ",
        "bandwidth_matrix": [["50", "N/A"]],
        "sum": 50.0,
    }
    waived = {"name": "device_to_device_memcpy_read_ce", "status": "Waived"}
    error = {"name": "device_local_copy", "status": "Error", "error": "[CUDA_ERROR]"}
    devices = ["0: NVIDIA H100 80GB HBM3 (00000000:19:00)"]
    return {
        "version": "v0.8",
        "GPU Device list": devices,
        "host": "secret",
        "testcases": [case, waived, error],
        **changes,
    }


def test_json(tmp_path):
    samples = read(tmp_path, json.dumps({"nvbandwidth": body()}))
    assert samples.table[["cost_class", "device", "seconds"]].values.tolist() == [
        ["copy.h2d", "H100 SXM", pytest.approx(512 * MIB / 50e9)]
    ]
    assert samples.dropped == (
        f"{tmp_path}/bw.log: 1 left out: tests that did not pass (at testcases[2])",
        f"{tmp_path}/bw.log: 1 left out: waived cells (at testcases[0])",
        f"{tmp_path}/bw.log: 1 test was waived",
    )


@pytest.mark.parametrize(
    ("root", "line"),
    [
        (body(version="", git_version=""), "does not say how many bytes a copy has; give --buffer"),
        (body(**{"GPU Device list": []}), "does not name the GPU; give --device"),
        (body(testcases=None), "nvbandwidth.testcases: expected a list"),
        (body(testcases=[]), "holds no results"),
    ],
)
def test_json_refused_with_one_line(tmp_path, root, line):
    with pytest.raises(UserError, match=line) as error:
        read(tmp_path, json.dumps({"nvbandwidth": root}))
    assert len(error.value.faults) == 1
