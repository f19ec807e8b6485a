"""What a run tells its user before and after it measures, and how it ends."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .case import Facts
from .plan import Plan
from .records import Record, record_key
from .show import spread_word

GO_ON = "the same command goes on where it stopped"

_SHAKY = 0.25  # of all visits with a very wide spread: then it is the machine, not the case


class RunEndError(Exception):
    """The run is over: exit code, and a line for the user, empty if there is nothing to say."""

    def __init__(self, code: int, line: str = ""):
        super().__init__(line)
        self.code, self.line = code, line


def say(line: str) -> None:
    """Print a line for the user, who may redirect the standard output."""
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`42 s`, `3 min`, `1 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def opening_lines(
    environment: Mapping[str, Any], facts: Facts, plan: Plan, left: int, left_s: float, out: Path
) -> list[str]:
    """The first lines of a run: what is measured, what may disturb it, what is left out, and its duration."""
    load, cpus, here = os.getloadavg()[0], os.cpu_count() or 1, len(facts.nodes[0])
    ranks, nodes = _count(facts.ranks, "rank"), _count(len(facts.nodes), "node")
    lines = [f"{environment['gpu']}, {ranks} on {nodes}, {facts.collectives}"]
    if load > 0.5 * cpus:
        lines.append(f"warning: the load of this node is {load:.1f} on {_count(cpus, 'CPU')}: times will be too long")
    if environment.get("gpus_visible", here) < here:
        lines.append("warning: ranks see their own GPU only, and NCCL may not find NVLink: --gpu-bind=none")
    if not facts.cuda and here > cpus:
        lines.append(f"warning: {here} ranks on {_count(cpus, 'CPU')} wait for each other")
    total = len(plan.visits)
    done = f", {total - left} of {total} are in {out} already" if left < total else ""
    return [*lines, *skip_lines(plan), f"{left} visits of cases, about {duration(left_s)}{done}"]


def skip_lines(plan: Plan) -> list[str]:
    """Cases that are not measured on this machine, and why."""
    return [f"left out: {_count(count, 'case')}: {reason}" for reason, count in plan.left_out.items()]


def closing_lines(records: Sequence[Record], left: int, out: Path) -> list[str]:
    """What was measured, a line per family; whether it can be trusted, what was written, and what to do with it."""
    lines, very_wide, measured = [], 0, 0
    for family in sorted({record["group"] for record in records}):
        mine = [record for record in records if record["group"] == family]
        good = [record for record in mine if "samples" in record]
        slow = [record for record in mine if "left_out" in record]
        cases, good_cases, slow_cases = (len({record_key(record) for record in some}) for some in (mine, good, slow))
        spreads = [spread_word(record["samples"]) for record in good]
        counts = {
            "failed": cases - good_cases - slow_cases,
            "left out as too slow": slow_cases,
            f"of {len(good)} spreads wide": spreads.count("wide"),
            "very wide": spreads.count("very wide"),
            "with wrong results": sum(bool(record.get("wrong")) for record in good),
        }
        remarks = [f"{count} {what}" for what, count in counts.items() if count]
        lines.append(f"{family:14s} {', '.join([f'{good_cases} cases measured', *remarks])}")
        very_wide, measured = very_wide + counts["very wide"], measured + len(good)
    if very_wide > _SHAKY * measured:
        lines.append(f"warning: {very_wide} of {measured} spreads are very wide: does something else run here?")
    done = f"wrote {len(records)} records to {out}" if records else f"nothing to add to {out}"
    if left:
        return [*lines, f"{done}; {left} visits are left: {GO_ON}"]
    fit = f"runcast calibrate fit {out} --out {out.stem}.json"
    return [*lines, done, f"next: python -m runcast.calibrate show {out}, or {fit}"]


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
