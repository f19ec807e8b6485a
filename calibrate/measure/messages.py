"""What a run tells its user: lines before and after, progress meanwhile, and how it ends.

Progress is a bar on a terminal, and a line now and then elsewhere.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .case import Facts
from .records import Record, record_key
from .show import spread_word

GO_ON = "the same command goes on where it stopped"

_LINE_EVERY_S = 15.0
_WIDTH = 24
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


class Progress:
    """Of `total` visits that were expected to take so long together; the rest is estimated from how that held."""

    def __init__(self, total: int, expected_s: float):
        self.total, self.expected_s = total, expected_s
        self.count, self.spent_s, self.current_s = 0, 0.0, 0.0
        self.start_s = self.last_line_s = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def begin(self, name: str, expected_s: float) -> None:
        """A visit begins."""
        self.current_s = expected_s
        took_s, left_s = time.monotonic() - self.start_s, max(self.expected_s - self.spent_s, 0.0)
        left = duration(left_s * (took_s / self.spent_s if self.spent_s > 1 else 1.0))  # at the pace so far
        if self.terminal:
            full = round(_WIDTH * self.count / max(self.total, 1))
            text = f"[{'#' * full}{'.' * (_WIDTH - full)}] {self.count}/{self.total} {left} left  {name}"
            print(f"\r\x1b[K{text[:110]}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.last_line_s > _LINE_EVERY_S:
            self.line(f"{self.count}/{self.total} visits, about {left} left")

    def end(self) -> None:
        """A visit has ended."""
        self.count += 1
        self.spent_s += self.current_s

    def line(self, text: str) -> None:
        """A line of its own."""
        say(f"\r\x1b[K{text}" if self.terminal else text)
        self.last_line_s = time.monotonic()


def machine_line(environment: Mapping[str, Any], facts: Facts) -> str:
    """What is measured: `NVIDIA H200, 8 ranks on 1 node, nccl 2.27.3`."""
    ranks, nodes = _count(facts.ranks, "rank"), _count(len(facts.nodes), "node")
    return f"{environment['gpu']}, {ranks} on {nodes}, {facts.collectives}"


def warnings(environment: Mapping[str, Any], facts: Facts) -> list[str]:
    """What will make times longer than they should be."""
    load, cpus, here = os.getloadavg()[0], os.cpu_count() or 1, len(facts.nodes[0])
    lines = []
    if load > 0.5 * cpus:
        lines.append(f"warning: the load of this node is {load:.1f} on {_count(cpus, 'CPU')}: times will be too long")
    if environment.get("gpus_visible", here) < here:
        lines.append("warning: ranks see their own GPU only, and NCCL may not find NVLink: --gpu-bind=none")
    if not facts.cuda and here > cpus:
        lines.append(f"warning: {here} ranks on {_count(cpus, 'CPU')} wait for each other")
    return lines


def left_out(reasons: Mapping[str, int]) -> list[str]:
    """Cases that are not measured on this machine, and why."""
    return [f"left out: {_count(count, 'case')}: {reason}" for reason, count in reasons.items()]


def work_line(left: int, done: int, left_s: float, out: Path) -> str:
    """How much there is to do, and how long it takes."""
    before = f", {done} of {left + done} are in {out} already" if done else ""
    return f"{left} visits of cases, about {duration(left_s)}{before}"


def summary(records: Sequence[Record]) -> list[str]:
    """What was measured, a line per family, and what to look at."""
    lines = []
    for family in sorted({record["group"] for record in records}):
        mine = [record for record in records if record["group"] == family]
        good = [record for record in mine if "error" not in record]
        cases, measured = (len({record_key(record) for record in some}) for some in (mine, good))
        spreads = [spread_word(record["samples"]) for record in good]
        counts = {
            "failed": cases - measured,
            f"of {len(good)} spreads wide": spreads.count("wide"),
            "very wide": spreads.count("very wide"),
            "with wrong results": sum(bool(record.get("wrong")) for record in good),
        }
        remarks = [f"{count} {what}" for what, count in counts.items() if count]
        lines.append(f"{family:14s} {', '.join([f'{measured} cases measured', *remarks])}")
    return lines


def verdict(records: Sequence[Record], left: int, out: Path) -> list[str]:
    """What was written, whether it can be trusted, and what to do with it."""
    good = [record for record in records if "error" not in record]
    shaky = sum(spread_word(record["samples"]) == "very wide" for record in good)
    lines = []
    if shaky > _SHAKY * len(good):
        lines.append(f"warning: {shaky} of {len(good)} spreads are very wide: does something else run here?")
    done = f"wrote {len(records)} records to {out}" if records else f"nothing to add to {out}"
    if left:
        return [*lines, f"{done}; {left} visits are left: {GO_ON}"]
    fit = f"runcast calibrate fit {out} --out {out.stem}.json"
    return [*lines, done, f"next: python -m runcast.calibrate show {out}, or {fit}"]


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
