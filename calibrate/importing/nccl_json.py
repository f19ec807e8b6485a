"""The file that nccl-tests writes with `-J`, schema 3 (src/util.cu).

`args` are those of the test itself, so they name it but hold no `-np`. `devices` stands in `config` and lists one of
each process (all that the writer parses of a process' lines), so ranks = devices x nthreads x ngpus. Numbers are
written with `%lf`; no number is "nan", and `nwrong` is null where results were not checked. `env` holds the whole
environment of rank 0 and is never looked at.
"""

import re
from collections.abc import Mapping
from typing import Any

from ...simulator.base.errors import UserError
from .found import Found
from .nccl_run import Listed, Row, Run, Timing
from .options import Options
from .printed import from_json, table
from .versions import decoded


def recognises(root: object) -> bool:
    """Whether a JSON file is one of nccl-tests."""
    return isinstance(root, Mapping) and isinstance(root.get("results"), list) and "test_info" not in root


def read(root: Mapping[str, Any], found: Found, options: Options) -> None:
    """The one test of a file.

    Raises:
        UserError: what the file does not say and the options neither, or results that are not in the form of schema 3.
    """
    run = _run(root, found.file)
    for index, result in enumerate(root["results"]):
        place = f"results[{index}]"
        row = _row(result, place)
        if row is None:
            found.leave(place, "not a result of schema 3")
        else:
            run.rows.append(row)
    run.add_to(found, options)


def _run(root: Mapping[str, Any], file: str) -> Run:
    config = table(root.get("config"))
    run = Run(op=_op(root.get("args")), per_process=_count(config, "nthreads") * _count(config, "ngpus"))
    if isinstance(version := root.get("nccl_version"), int) and version > 0:
        run.library = f"nccl {decoded(version)}"
    devices = config.get("devices", root.get("devices", []))
    if not isinstance(devices, list) or not all(isinstance(device, Mapping) for device in devices):
        raise UserError(f"{file}: config.devices: expected a list of tables, as schema 3 of nccl-tests has")
    for index, device in enumerate(devices):
        run.listed[index] = Listed(str(device.get("hostname", "")), index, str(device.get("device_hex", index)))
        if isinstance(name := device.get("device_info"), str):
            run.devices.add(name)
    run.processes, run.whole_list = len(devices) or None, bool(devices)
    run.cpu_time = any("cpu_time" in table(table(result).get("out_of_place")) for result in root["results"])
    return run


def _row(result: object, place: str) -> Row | None:
    row = table(result)
    size = row.get("size")
    if not isinstance(size, int) or not 0 <= size < 1 << 62 or not {"out_of_place", "in_place"} & set(row):
        return None
    out, within = _timing(table(row.get("out_of_place"))), _timing(table(row.get("in_place")))
    return Row(place, size, str(row.get("type", "")), out, within)


def _timing(half: Mapping[str, Any]) -> Timing | None:
    time, algbw, busbw = (from_json(half.get(key)) for key in ("time", "alg_bw", "bus_bw"))
    wrong = from_json(half.get("nwrong"))
    if time is None or algbw is None or busbw is None:
        return None
    return Timing(time, algbw, busbw, bool(wrong and wrong.value > 0))


def _op(args: object) -> str | None:
    """The test that `args[0]` is a path of."""
    first = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""
    match = re.search(r"(\w+_perf)\w*$", first)
    return match[1] if match else None


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key, 1)
    return value if isinstance(value, int) and 0 < value < 1 << 20 else 1
