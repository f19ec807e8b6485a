"""Jobs of a Slurm log, `sacct --allusers --parsable2 --format=JobID,User,Submit,Start,End,AllocTRES,Timelimit,…`.

Fields and their forms: sacct's manual, https://slurm.schedmd.com/sacct.html. A CSV file with the same columns will do,
with times as numbers of seconds too, and a column GPUs instead of AllocTRES.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from ....base.errors import UserError, fault
from ....base.files import read_text
from .scheduler import Job

_NEEDED = ("jobid", "submit", "start", "end")
_GPUS = ("gpus", "alloctres", "reqtres", "nnodes")
_NOTHING = {"", "unknown", "none", "n/a", "invalid", "unlimited", "partition_limit"}
_STEP = re.compile(r"\d+(_\d+)?(\+\d+)?\.")  # 123.batch, 123_4.0, 123+1.extern
_TIME = "expected a time such as 2026-05-01T12:00:00, or a number of seconds"
_LENGTH = "expected a duration such as 1-12:00:00 (a day and 12 hours), or a number of seconds"
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class JobTrace:
    """Jobs in the order of the log; the first was submitted at 0 s. `notes` say what was left out."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...]


def read_sacct(path: Path, gpus_per_node: int) -> JobTrace:
    """The jobs of a log.

    Each needs the GPUs that it had (AllocTRES; in a log without such columns, NNodes x `gpus_per_node`), works from
    Start to End, and asks the queue for Timelimit, or for what it took if that is no time. Lines of steps are skipped,
    columns that are not known ignored; jobs without GPUs, or that never ran or have not ended, are left out.

    Raises:
        UserError: one line with file, line and what was expected.
    """
    rows, jobs, left_out = _rows(path), list[Job](), Counter[str]()
    for where, row in rows:
        if _STEP.match(row["jobid"]):
            continue
        job = _job(where, row, gpus_per_node)
        if isinstance(job, Job):
            jobs.append(job)
        else:
            left_out[job] += 1
    if not jobs:
        raise UserError(f"{path}: has no job with GPUs that ran and ended")
    first_s = min(job.at_s for job in jobs)
    notes = (f"{path.name}: {count:,} jobs are left out: {reason}" for reason, count in sorted(left_out.items()))
    return JobTrace(tuple(replace(job, at_s=job.at_s - first_s) for job in jobs), tuple(notes))


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """File and line, and the fields by their columns in lower case."""
    text = read_text(path, "a log of sacct")
    bars = "|" in text.partition("\n")[0]
    reader = csv.reader(
        StringIO(text, newline=""),
        delimiter="|" if bars else ",",
        quoting=csv.QUOTE_NONE if bars else csv.QUOTE_MINIMAL,
    )
    head = [name.strip().lower() for name in next(reader, [])]
    _check_head(path, head)
    for row in reader:
        if row and len(row) != len(head):
            raise UserError(
                f"{path}: line {reader.line_num}: has {len(row)} fields; expected {len(head)}, as in line 1"
            )
        if row:
            yield f"{path}: line {reader.line_num}", dict(zip(head, map(str.strip, row), strict=True))


def _check_head(path: Path, head: list[str]) -> None:
    if missing := [name for name in _NEEDED if name not in head]:
        raise UserError(f"{path}: line 1: has no column {missing[0]}; expected JobID, Submit, Start and End at least")
    if not set(_GPUS) & set(head):
        raise UserError(f"{path}: line 1: says no GPUs; expected a column AllocTRES, ReqTRES, GPUs or NNodes")


def _job(where: str, row: Mapping[str, str], gpus_per_node: int) -> Job | str:
    """A job, or why there is none; `at_s` is in seconds since 1970."""
    at_s, start_s, end_s = (_time(where, row, name) for name in ("Submit", "Start", "End"))
    if start_s is None:
        return "never started"
    if end_s is None:
        return "have not ended"
    if end_s < start_s:
        raise UserError(fault(where, "End", row["end"], f"expected a time after Start, which is {row['start']}"))
    if at_s is None:
        raise UserError(fault(where, "Submit", row["submit"], _TIME))
    gpus = _gpus(where, row, gpus_per_node)
    if not gpus:
        return "have no GPUs"
    if end_s == start_s:
        return "took no time"
    return Job(
        name=row.get("jobname") or row["jobid"],
        gpus=gpus,
        time_s=end_s - start_s,
        at_s=at_s,
        estimate_s=_length(where, row.get("timelimit", "")),
        user=row.get("user", ""),
        priority=_whole(where, row, "Priority"),
    )


def _time(where: str, row: Mapping[str, str], name: str) -> float | None:
    """Seconds since 1970 of a column; None where sacct knows no time."""
    text = row[name.lower()]
    if text.lower() in _NOTHING:
        return None
    if _is_number(text):
        return float(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(fault(where, name, text, _TIME)) from None
    return ((time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time) - _EPOCH).total_seconds()


def _length(where: str, text: str) -> float | None:
    """Seconds of a Timelimit, [days-[hours:]]minutes:seconds; None where it is not a time."""
    if text.lower() in _NOTHING:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return 86400.0 * days + 3600 * hours + 60 * minutes + seconds
    if not _is_number(text):
        raise UserError(fault(where, "Timelimit", text, _LENGTH))
    return float(text)


def _gpus(where: str, row: Mapping[str, str], gpus_per_node: int) -> int:
    if "gpus" in row:
        return _whole(where, row, "GPUs")
    if "alloctres" in row or "reqtres" in row:
        return _gpus_of(where, row.get("alloctres") or row.get("reqtres", ""))
    return _whole(where, row, "NNodes") * gpus_per_node


def _gpus_of(where: str, tres: str) -> int:
    """GPUs of `billing=8,gres/gpu=8,gres/gpu:h100=8,node=1`: the total, or the sum of types where there is no total."""
    counts = dict(item.partition("=")[::2] for item in tres.split(","))
    each = {name: count for name, count in counts.items() if name == "gres/gpu" or name.startswith("gres/gpu:")}
    if wrong := [count for count in each.values() if not count.isdecimal()]:
        raise UserError(fault(where, "gres/gpu", wrong[0], "expected a whole number"))
    return int(each["gres/gpu"]) if "gres/gpu" in each else sum(map(int, each.values()))


def _whole(where: str, row: Mapping[str, str], name: str) -> int:
    """The whole number of a column; 0 where there is none."""
    text = row.get(name.lower(), "")
    if text.lower() in _NOTHING:
        return 0
    if not text.isdecimal():
        raise UserError(fault(where, name, text, "expected a whole number"))
    return int(text)


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"\d+(\.\d+)?", text))
