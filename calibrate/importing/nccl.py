"""What nccl-tests and rccl-tests write: text, JSON of schema 3 (`-J`), and rccl-tests' own JSON (`-Z json`).

Text (src/util.cu and src/common.cu of several releases, and posted logs): `#` starts a comment; a row is
`size count type [redop] [root]`, then out of place and in place `time algbw busbw #wrong`. Logs to about 2022 lack the
root and call the last column `error`, a largest difference. With `-I` and bitwise checks each half has more columns,
and a time stamp may end the row, so the header says where the two halves begin. Without `-c 1` #wrong is N/A.

JSON (src/util.cu): `args` are those of the test itself, so they name it but hold no `-np`. `devices` stands in `config`
and lists one of each process (all that the writer parses of a process' lines), so ranks = devices x nthreads x ngpus.
Numbers are written with `%lf`; no number is "nan", and `nwrong` is null where results were not checked. `env` holds
the whole environment of rank 0 and is never looked at.

rccl-tests' own JSON (Reporter of its src/common.cpp) is a list with a row for each half, or such rows one after another
in old releases; times are in us. Its `ranks` are all processes, `ranksPerNode` those of one communicator, and `nodes`
the first over the second: 1 on however many machines, unless NCCL_TESTS_SPLIT makes several communicators. Without MPI
`gpus` are the ranks of the one process. `wrong` is text, `N/A` where results were not checked. Times of the CPU (-C)
are not marked, but contradict the bandwidths.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from ...simulator.base.errors import UserError
from .log import OPS, Found, Line, Printed, from_json, parse_number, table, version_text
from .nccl_run import Listed, Row, Run, Timing

_TYPES = {
    "int8": 0.0, "char": 0.0, "uint8": 0.0, "int32": 0.0, "int": 0.0, "uint32": 0.0, "int64": 0.0, "uint64": 0.0,
    "half": 1e-2, "fp16": 1e-2, "float16": 1e-2, "bfloat16": 1e-2, "bf16": 1e-2, "float": 1e-5, "float32": 1e-5,
    "double": 1e-12, "f8e4m3": 1e-2, "fp8_e4m3": 1e-2, "f8e5m2": 1e-2, "fp8_e5m2": 1e-2,
}  # fmt: skip
"""Types, and the largest `error` that old releases let pass (deltaMaxValue of src/common.cu)."""

_ROW = re.compile(rf"(?:^|[\s:|>\])])(\d{{1,18}})\s+(\d{{1,18}})\s+({'|'.join(_TYPES)})(?:\s+([a-z]+))?\s+(\S.*)$")
_REDOPS = {"none", "sum", "prod", "max", "min", "avg", "mulsum"}
_TESTS = "all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|sendrecv|reduce|gather|scatter|hypercube"
_HEADER = re.compile(r"#\s*size\s+count\s+type\b(.*\b(?:cpu)?time\s+algbw\b.*)$")
_USUAL = ["time", "algbw", "busbw", "#wrong"] * 2


def read_text(lines: Sequence[Line], found: Found) -> None:
    """All tests of a log; several may follow one another in one file."""
    done = [Run()]  # what ran, in order
    columns, command = _USUAL, ""
    for line in lines:
        if header := _HEADER.search(line.text):
            columns = header[1].split()
            _next(done).cpu_time = "cputime" in columns
        elif row := _ROW.search(line.text):
            _add_row(done[-1], line.number, row, columns, found)
        else:
            command = f"{command} {line.text}" if command else line.text
            _note(done, command)
            command = command[:-1] if command.endswith("\\") else ""
    for run in done:
        if run.rows:
            found.add_table(run.add_to)


def _next(done: list[Run]) -> Run:
    """The run that what stands above a table belongs to: a new one once the last has rows or has ended."""
    if done[-1].rows or done[-1].ended:
        done.append(Run())
    return done[-1]


def _add_row(run: Run, number: int, row: re.Match[str], columns: list[str], found: Found) -> None:
    first = next((i for i, name in enumerate(columns) if name in ("time", "cputime")), 0)
    tail, tokens = [name for name in columns[first:] if name != "timestamp"], row[5].split()
    half = len(tail) // 2
    if columns[-1] == "timestamp":
        tokens = tokens[:-2]
    if len(tokens) == len(tail) + 1 or len(tokens) == half + 1 != len(tail):  # the root
        tokens = tokens[1:]
    if len(tokens) not in (half, len(tail)):
        return found.leave(number, f"row has {len(tokens)} values; expected {len(tail)}")
    outside, inside = (tokens[:half], tokens[half:]) if len(tokens) == len(tail) else ([], tokens)
    names = tail[:half]
    try:
        out, within = _timing_of_text(names, outside, row[3]), _timing_of_text(names, inside, row[3])
    except ValueError:
        return found.leave(number, "row holds what is no number")
    redop = row[4] if row[4] in _REDOPS else ""
    run.rows.append(Row(number, int(row[1]), row[3], redop, out, within))


def _timing_of_text(names: list[str], tokens: list[str], dtype: str) -> Timing | None:
    """A half of a row; None where its time is N/A. A ValueError if a token is neither a number nor N/A."""
    values = dict(zip(names, tokens, strict=False))
    time, algbw, busbw = (_number(token) for token in tokens[:3]) if len(tokens) >= 3 else (None, None, None)
    if time is None or algbw is None or busbw is None:
        return None
    wrong = _number(values.get("#wrong", "N/A"))
    error = _number(values.get("error", "N/A"))
    bad = bool(wrong and wrong.value > 0) or bool(error and error.value > _TYPES[dtype])
    return Timing(time, algbw, busbw, bad)


def _number(token: str) -> Printed | None:
    value = parse_number(token)
    if value is None and token.lower().strip("-+") not in ("n/a", "nan", "inf"):
        raise ValueError(token)
    return value


def _note(done: list[Run], text: str) -> None:
    """What a line that is no row says of the run."""
    if match := _BANNER.search(text):
        run = _next(done)
        run.library = run.library or f"{match[1]} {version_text(int(match[2]))}"
    elif match := _STARTING.search(text):
        _next(done).op = match[1]
    elif match := _CONCLUDED.search(text):
        done[-1].op, done[-1].ended = done[-1].op or match[1], True
    elif match := _THREADS.search(text):
        _next(done).per_process = int(match[1]) * int(match[2])
    elif match := _RANK.search(text):
        run = _next(done)
        run.listed[int(match[1])] = Listed(match[3], int(match[4]), match[5], match[2] or "")
        if not match[6].endswith("..."):
            run.devices.add(match[6])
    elif match := _VERSION.search(text):  # what the library says of itself wins over the number of the banner
        if not done[-1].rows:
            done[-1].library = f"{match[1].lower()} {match[2]}"
    elif match := _SAYS_FORCED.search(text):
        run = _next(done) if done[-1].ended else done[-1]
        run.algorithm = match[1]
    elif _AVERAGE.search(text):
        done[-1].ended = bool(done[-1].rows)
    elif match := _COMMAND.search(text):
        run = _next(done)
        run.op = match[2]
        if processes := re.search(r"\s(?:-np|--np|-n|--ntasks)[ =]\s*(\d{1,9})\s", match[1]):
            run.processes = int(processes[1])
        run.split = bool(_SPLIT.search(match[1]))
        run.algorithm = forced[1] if (forced := _FORCED.search(match[1])) else run.algorithm
        if nodes := re.search(r"\bsrun\b.*\s(?:-N|--nodes)[ =]?\s*(\d{1,9})\s", match[1]):
            run.stated_nodes = int(nodes[1])


_BANNER = re.compile(r"#\s*[nr]ccl-tests version\b.*?\b([nr]ccl)-library=(\d{1,9})")
MARKS = (_HEADER, _BANNER, _ROW)
"""What shows that a log holds something of nccl-tests."""

_STARTING = re.compile(r"#\s*Collective test starting:\s*(\w+)")
_CONCLUDED = re.compile(r"#\s*Collective test concluded:\s*(\w+)")
_THREADS = re.compile(r"#\s*nThreads?:?\s+(\d{1,4})\s+nGpus:?\s+(\d{1,4})")
_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,9})\s+(?:Group\s+(\S+)\s)?.*?\bon\s+(\S+)\s+device\s+(\d{1,9})\s+\[([^\]]*)\]\s+(.*\S)"
)
_SPLIT = re.compile(r"\bNCCL_TESTS_SPLIT(?:_MASK)?=(?!['\"]?(?:0x)?0*['\"]?\s)")
_VERSION = re.compile(r"\b(NCCL|RCCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_FORCED = re.compile(r"\bNCCL_ALGO=['\"]?([\w^:;,]+)")
_SAYS_FORCED = re.compile(r"\bNCCL_ALGO set by environment to ([\w^:;,]+)")
"""What forces an algorithm: on a launcher's line, and as NCCL itself logs it (NCCL_DEBUG=INFO)."""

_AVERAGE = re.compile(r"#\s*Avg bus bandwidth")
_COMMAND = re.compile(rf"^(?!#)(.*?\s|)\S*?\b(({_TESTS})_perf)\b")
"""A launcher's command line: how many processes and nodes, and the test."""


def read_json(root: Mapping[str, Any], found: Found, at: str = "") -> None:
    """The one test of `-J`; `at` is put before the places of its rows."""
    run = _run_of_json(root, found.file)
    for index, result in enumerate(root["results"]):
        place, row = f"{at}results[{index}]", table(result)
        size = row.get("size")
        if not _is_size(size) or not {"out_of_place", "in_place"} & set(row):
            found.leave(place, "not a result of schema 3")
            continue
        out, within = _timing_of_json(table(row.get("out_of_place"))), _timing_of_json(table(row.get("in_place")))
        run.rows.append(Row(place, size, str(row.get("type", "")), _redop(row), out, within))
    if run.rows:
        found.add_table(run.add_to)


def _run_of_json(root: Mapping[str, Any], file: str) -> Run:
    config, args = table(root.get("config")), root.get("args")
    path = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""  # of the test
    test = re.search(r"(\w+_perf)\w*$", path)
    run = Run(op=test[1] if test else None, per_process=_count(config, "nthreads") * _count(config, "ngpus"))
    if isinstance(version := root.get("nccl_version"), int) and version > 0:
        run.library = f"nccl {version_text(version)}"
    devices = config.get("devices", root.get("devices", []))
    if not isinstance(devices, list) or not all(isinstance(device, Mapping) for device in devices):
        raise UserError(f"{file}: config.devices: expected a list of tables, as schema 3 of nccl-tests has")
    for index, device in enumerate(devices):
        host, bus = str(device.get("hostname", "")), str(device.get("device_hex", index))
        run.listed[index] = Listed(host, index, bus, str(device.get("group", "")))
        if isinstance(name := device.get("device_info"), str):
            run.devices.add(name)
    run.processes, run.whole_list = len(devices) or None, bool(devices)
    run.cpu_time = any("cpu_time" in table(table(result).get("out_of_place")) for result in root["results"])
    return run


def is_rccl_row(value: object) -> bool:
    """Whether a JSON value is a row of rccl-tests' `-Z json`."""
    return {"name", "inPlace", "algBw", "busBw"} <= table(value).keys()


def read_rccl(rows: Sequence[tuple[str, Mapping[str, Any]]], found: Found) -> None:
    """All tests of `-Z json`, from rows with their places: each is one half, out of place first."""
    runs: list[Run] = []
    test = last = None
    for place, row in rows:
        if test != (test := [row.get(key) for key in ("name", "nodes", "ranksPerNode", "gpusPerRank", "gpus")]):
            runs.append(_run_of_rccl(row))
        size, timing = row.get("size"), _timing_of_json(row, ("time", "algBw", "busBw", "wrong"))
        if not _is_size(size) or row["inPlace"] not in (0, 1):
            found.leave(place, "not a row of rccl-tests")
            continue
        same = last == (last := [test, size, row.get("numCycle"), row.get("type"), row.get("redop")])
        if row["inPlace"] and same and runs[-1].rows[-1].within is None:
            runs[-1].rows[-1] = replace(runs[-1].rows[-1], within=timing)
        else:
            halves = (None, timing) if row["inPlace"] else (timing, None)
            runs[-1].rows.append(Row(place, size, str(row.get("type", "")), _redop(row), *halves))
    for run in runs:
        if run.rows:
            found.add_table(run.add_to)


def _run_of_rccl(row: Mapping[str, Any]) -> Run:
    """What a row says of its run: its `nodes` are communicators, and `ranksPerNode` the processes of one."""
    name, processes = str(row["name"]), _count(row, "ranksPerNode")
    return Run(
        op=_RCCL_TESTS.get(name.lower(), name),
        library="rccl",
        processes=processes,
        stated_nodes=1 if processes == 1 else None,
        per_process=_count(row, "gpus" if "gpus" in row else "gpusPerRank"),
        split=row.get("nodes", 1) != 1,
        nodes_are_groups=True,
    )


_RCCL_TESTS = {op.replace("_", ""): op for op in OPS}
"""Tests by their names in the JSON of rccl-tests, such as `AllReduce`, in small letters."""


def _timing_of_json(
    half: Mapping[str, Any], keys: Sequence[str] = ("time", "alg_bw", "bus_bw", "nwrong")
) -> Timing | None:
    time, algbw, busbw, wrong = (from_json(half.get(key)) for key in keys)
    if time is None or algbw is None or busbw is None:
        return None
    return Timing(time, algbw, busbw, bool(wrong and wrong.value > 0))


def _redop(row: Mapping[str, Any]) -> str:
    return value if (value := row.get("redop")) in _REDOPS else ""


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < 1 << 62


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key, 1)
    return value if isinstance(value, int) and 0 < value < 1 << 20 else 1
