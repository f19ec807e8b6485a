"""What a run tells its user: lines before and after, progress meanwhile, and how it ends.

Progress is a bar on a terminal, and a line now and then elsewhere.
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .case import Facts
from .records import Record, key_of
from .statistics import wide

GO_ON = "the same command goes on where it stopped"


class RunEndError(Exception):
    """The run is over: exit code, and a line for the user, empty if there is nothing to say."""

    def __init__(self, code: int, line: str = ""):
        super().__init__(line)
        self.code, self.line = code, line


def say(line: str) -> None:
    """To the user, beside the progress."""
    print(line, file=sys.stderr, flush=True)


_LINE_EVERY_S = 15.0
_WIDTH = 24


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
        self.started = time.monotonic()
        self.printed = self.started
        self.terminal = sys.stderr.isatty()

    def begin(self, name: str, expected_s: float) -> None:
        """A visit begins."""
        self.current_s = expected_s
        if self.terminal:
            self._draw(name)
        elif time.monotonic() - self.printed > _LINE_EVERY_S:
            self.line(f"{self.count}/{self.total} visits, about {duration(self.left_s())} left")

    def done(self) -> None:
        """A visit has ended."""
        self.count += 1
        self.spent_s += self.current_s

    def left_s(self) -> float:
        """What is left, at the pace so far."""
        took, left = time.monotonic() - self.started, self.expected_s - self.spent_s
        return max(left, 0.0) * (took / self.spent_s if self.spent_s > 1 else 1.0)

    def line(self, text: str) -> None:
        """A line of its own."""
        self._clear()
        print(text, file=sys.stderr, flush=True)
        self.printed = time.monotonic()

    def _draw(self, name: str) -> None:
        full = round(_WIDTH * self.count / max(self.total, 1))
        bar = "#" * full + "." * (_WIDTH - full)
        text = f"[{bar}] {self.count}/{self.total} {duration(self.left_s())} left  {name}"
        print(f"\r\x1b[K{text[:110]}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


_SHAKY = 0.25  # of all visits with a very wide spread: then it is the machine, not the case


def machine(environment: Mapping[str, Any], facts: Facts) -> str:
    """What is measured: `NVIDIA H200, 8 ranks on 1 node, nccl 2.27.3`."""
    return (
        f"{environment['gpu']}, {_many(facts.ranks, 'rank')} on {_many(len(facts.nodes), 'node')}, {facts.collectives}"
    )


def warnings(environment: Mapping[str, Any], facts: Facts) -> list[str]:
    """What will make times longer than they should be."""
    load, cpus, here = os.getloadavg()[0], os.cpu_count() or 1, len(facts.nodes[0])
    lines = []
    if load > 0.5 * cpus:
        lines.append(f"warning: the load of this node is {load:.1f} on {_many(cpus, 'CPU')}: times will be too long")
    if environment.get("gpus_visible", here) < here:
        lines.append("warning: ranks see their own GPU only, and NCCL may not find NVLink: --gpu-bind=none")
    if not facts.cuda and here > cpus:
        lines.append(f"warning: {here} ranks on {_many(cpus, 'CPU')} wait for each other")
    return lines


def left_out(reasons: Mapping[str, int]) -> list[str]:
    """Which cases this machine is spared."""
    return [f"left out: {_many(count, 'case')}: {reason}" for reason, count in reasons.items()]


def work(left: int, done: int, left_s: float, out: Path) -> str:
    """How much there is to do, and how long it takes."""
    resumed = f", {done} of {left + done} are in {out} already" if done else ""
    return f"{left} visits of cases, about {duration(left_s)}{resumed}"


def summary(records: Sequence[Record]) -> list[str]:
    """What was measured, by family, and what to look at."""
    families = sorted({record["group"] for record in records})
    return [_of_family(family, [record for record in records if record["group"] == family]) for family in families]


def verdict(records: Sequence[Record], left: int, out: Path) -> list[str]:
    """What was written, whether it can be trusted, and what to do with it."""
    good = _good(records)
    shaky = sum(wide(record["samples"]) == "very wide" for record in good)
    lines = []
    if shaky > _SHAKY * len(good):
        lines.append(f"warning: {shaky} of {len(good)} spreads are very wide: does something else run here?")
    done = f"wrote {len(records)} records to {out}" if records else f"nothing to add to {out}"
    if left:
        return [*lines, f"{done}; {left} visits are left: {GO_ON}"]
    fit = f"runcast calibrate fit {out} --out {out.stem}.json"
    return [*lines, done, f"next: python -m runcast.calibrate show {out}, or {fit}"]


def _of_family(family: str, records: Sequence[Record]) -> str:
    good = _good(records)
    failed = _cases(records) - _cases(good)
    spreads = [wide(record["samples"]) for record in good]
    counts = {
        "failed": failed,
        f"of {len(good)} spreads wide": spreads.count("wide"),
        "very wide": spreads.count("very wide"),
        "with wrong results": sum(bool(record.get("wrong")) for record in good),
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{family:14s} {', '.join([f'{_cases(good)} cases measured', *told])}"


def _good(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if "error" not in record]


def _cases(records: Iterable[Record]) -> int:
    return len({key_of(record) for record in records})


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
