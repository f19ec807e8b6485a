"""Raw records of a machine as JSON lines: one record per case and round, with its repeats in microseconds.

The first record is the environment (`group` is "environment"; it or its `params` name the GPU, "CPU" for none). A
record with an `error` holds no samples, one with `wrong` elements none that can be trusted. A record that states its
`cost_class` is a sample of it with its `features`; an empty class says that it is no sample. What older records mean
that do not state one is `probe_cases`. One sample here is one case: the median of the repeats of all its rounds.
"""

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ...base.errors import UserError
from ...hardware import device
from ...profile.forms import FEATURES
from . import probe_cases
from .table import KEYS, Record, Samples, sound_samples

Placed = tuple[str, Record]
"""A record with its file and line."""

_VENDOR = re.compile(r"^(NVIDIA|Tesla)\s+")
_ENVIRONMENT = (
    *("gpu", "cpu", "sms", "memory_bytes", "clocks", "threads", "ranks", "nodes"),
    *("suite", "runcast", "torch", "cuda", "cudnn", "nccl", "collectives", "driver", "python"),
)
"""What a profile keeps of a machine: versions and the GPU, nothing that names a host or a user."""


def read(lines: Sequence[str], file: str) -> Samples:
    """The samples of a file whose lines keep their ends; records that are no samples go to `others`.

    A UserError if a line is no record (with its number), the GPU is unknown, or nothing can be used. A last line that
    was cut short, as when a run is stopped, is left out.
    """
    records, dropped = _records(lines, file)
    first = next((record for _, record in records), {})
    gpu = _gpu(first, file)
    rows: list[dict[str, Any]] = []
    others: list[Record] = []
    for rounds in _sound_cases(records, dropped):
        place, record = rounds[0]
        found = _row_or_fault(rounds)
        if isinstance(found, str):
            dropped.append(f"{place}: {_called(record)}: {found}")
        elif found is not None:
            rows.append({**found, "device": gpu, "source": place})
        else:
            others += [{**one, "device": gpu, "source": where} for where, one in rounds]
    if not rows and not others:
        raise UserError(*(dropped[:3] or [f"{file}: holds no samples of kernels, copies or calls"]))
    empty = Samples(pd.DataFrame(columns=list(KEYS)), tuple(dropped))
    samples = sound_samples(pd.DataFrame(rows), file, dropped) if rows else empty
    return replace(samples, environment=_environment(first), others=tuple(others))


def _records(lines: Sequence[str], file: str) -> tuple[list[Placed], list[str]]:
    """All records by place, and a last line that was cut short as left out."""
    found: list[Placed] = []
    for number, line in enumerate(lines, 1):
        place = f"{file}:{number}"
        try:
            found += [(place, _record(line, place))] if line.strip() else []
        except UserError:
            if number < len(lines) or number == 1 or line.endswith("\n"):
                raise
            return found, [f"{place}: cut short"]
    return found, []


def _record(line: str, where: str) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON: {error}") from None
    if not isinstance(record, dict) or "group" not in record:
        raise UserError(f"{where}: expected an object with group, case, params and samples")
    return record


def _environment(record: Record) -> dict[str, str]:
    drivers = [key for key in record if key.startswith("driver_version")]
    return {key.partition(",")[0]: str(record[key]) for key in (*_ENVIRONMENT, *drivers) if record.get(key) is not None}


def _gpu(first: Record, file: str) -> str:
    params = first.get("params")
    told = {**first, **params} if isinstance(params, Mapping) else first
    known = told if first.get("group") == "environment" else {}
    names = [str(known[key]) for key in ("gpu", "device_name", "name") if key in known]
    if not names:
        raise UserError(f"{file}:1: the first line does not name the GPU; expected the environment")
    return device(_VENDOR.sub("", names[0]), file, "gpu").name


def _called(record: Record) -> str:
    return f"{record['group']}/{record.get('case')}"


def _sound_cases(records: Iterable[Placed], dropped: list[str]) -> list[list[Placed]]:
    """The records with samples, the rounds of a case together; those that failed or were wrong go to `dropped`."""
    cases: dict[str, list[Placed]] = {}
    for place, record in records:
        if "error" in record:
            dropped.append(f"{place}: {_called(record)}: {record['error']}")
        elif wrong := record.get("wrong"):
            dropped.append(f"{place}: {_called(record)}: {wrong} elements of the result were wrong")
        elif record.get("samples"):
            identity = [record.get(key) for key in ("group", "case", "params")]
            key = json.dumps(identity, sort_keys=True) if "round" in record else place
            cases.setdefault(key, []).append((place, record))
    return list(cases.values())


def _row_or_fault(rounds: Sequence[Placed]) -> dict[str, Any] | str | None:
    """A row of the table, why there is none, or None for what is no sample of a class."""
    record = rounds[0][1]
    try:
        row = _stated(record) if "cost_class" in record else probe_cases.row(record)
        repeats = [float(us) for _, one in rounds for us in one["samples"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"params or samples that do not fit the case: {type(error).__name__}: {error}"
    return row and {**row, "seconds": statistics.median(repeats) * 1e-6}


def _stated(record: Record) -> dict[str, Any] | None:
    """The row that a record says it is."""
    if not record["cost_class"]:
        return None
    features = {name: float(value) for name, value in record.get("features", {}).items()}
    if strange := [name for name in features if name not in FEATURES]:
        raise ValueError(f"unknown feature {strange[0]!r}")
    library, group = str(record.get("library") or "torch"), str(record.get("together") or record["case"])
    return {"cost_class": str(record["cost_class"]), "library": library, "group": group, **features}
