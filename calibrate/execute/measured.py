"""What a run measured: all ranks' spans as one table, the same as a Timeline, and the files that keep both."""

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...simulator.answers.compare.spans import SPANS, SUMMARY
from ...simulator.base.errors import UserError
from ...simulator.base.files import write_atomic
from ...simulator.base.units import format_seconds
from ...simulator.timeline import Timeline
from .lanes import Stamp
from .parts import Parts

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["rank", "lane", "op", "name", "kind", "ready_s", "start_s", "end_s", "bytes"]


@dataclass(frozen=True)
class Checked:
    """How many tensors a rank compared with what they must be, their bytes, and the names of those that differ."""

    tensors: int
    bytes: int
    wrong: list[str]


@dataclass(frozen=True)
class RankReport:
    """What one rank has to tell after a run; `clock_bound_ns` says how far its clock may be off."""

    began_ns: int
    clock_bound_ns: int
    stamps: list[Stamp]
    checked: Checked


@dataclass(frozen=True)
class Measured:
    """A run: time 0 is when the first rank began. `about` describes it (scenario, prediction, machine, libraries)."""

    parts: Parts
    reports: Sequence[RankReport]
    about: dict[str, Any]

    @property
    def checked(self) -> int:
        """Tensors compared with what they must hold, over all ranks."""
        return sum(report.checked.tensors for report in self.reports)

    @cached_property
    def wrong(self) -> list[str]:
        """Buffers with wrong contents, by name and rank."""
        return [f"{name} on rank {rank}" for rank, report in enumerate(self.reports) for name in report.checked.wrong]

    @cached_property
    def spans(self) -> "pd.DataFrame":
        """One row per op, rank and lane, by op; `start_s - ready_s` is queueing for lanes.

        A member of a gang starts when it joins, so that its span holds the wait for the last one.
        """
        import pandas as pd  # half a second, which only the rank that tells of the run needs

        program, began_ns = self.parts.program, min(report.began_ns for report in self.reports)

        def seconds(stamp: Stamp) -> list[float]:
            """Since the run began; what was ready before it was ready at 0."""
            return [max(at - began_ns, 0) / 1e9 for at in (stamp.ready_ns, stamp.start_ns, stamp.end_ns)]

        rows = [
            (rank, program.lanes[lane].name, stamp.op, program.names[stamp.op], program.kind_of(stamp.op),
             *seconds(stamp), int(program.bytes[stamp.op]))
            for rank, report in enumerate(self.reports)
            for parts in [self.parts.rank_parts(rank)]
            for stamp in report.stamps
            for lane in parts[stamp.op].lanes
        ]  # fmt: skip
        table = pd.DataFrame(rows, columns=COLUMNS)
        return table.sort_values(["op", "rank"], kind="stable", ignore_index=True)

    @cached_property
    def timeline(self) -> Timeline:
        """Per op: it starts when its last member joins, as in the engine, and ends with its last member.

        Its cause is the op that ended last of those that it had to wait for. A rank goes on when its own part of a
        gang has ended, so an op may start before the gang's last member ends.
        """
        by_op = self.spans.groupby("op")
        start, end = (by_op[column].max().to_numpy(float) for column in ("start_s", "end_s"))
        before = zip(self.parts.predecessors, self.parts.previous, strict=True)
        waits = [[*awaited, *previous] for awaited, previous in before]
        cause = np.array([max(others, key=end.__getitem__, default=-1) for others in waits], np.int64)
        return Timeline(self.parts.program, start, end, cause, np.zeros(len(end), bool))

    def summary(self) -> dict[str, Any]:
        """What to know first; times in seconds."""
        return self.about | {
            "makespan_s": self.timeline.makespan_s,
            "measured_s": self.timeline.makespan_s,
            "busy_s": {kind: self.timeline.busy_s(kind) for kind in self.parts.program.kinds},
            "clock_bound_s": max(report.clock_bound_ns for report in self.reports) / 1e9,
            "checked_bytes": sum(report.checked.bytes for report in self.reports),
            "wrong": len(self.wrong),
            "tensors_checked": self.checked,
            "tensors_wrong": len(self.wrong),
            "first_wrong": self.wrong[:10],
        }

    def lines(self) -> Iterator[str]:
        """How it went, in one line."""
        took, ops = format_seconds(self.timeline.makespan_s), len(self.parts.program)
        ranks, checked = len(self.reports), f"{self.checked:,} tensors checked, {len(self.wrong)} wrong"
        yield f"{self.about['name']}: {took}, {ops} ops on {ranks} ranks; {checked}"

    @property
    def fault(self) -> str | None:
        """What is wrong, in words."""
        if not self.wrong:
            return None
        some = f": {', '.join(self.wrong[:3])}{', ...' if len(self.wrong) > 3 else ''}"
        return f"{len(self.wrong)} tensors hold wrong values{some}"

    def write(self, folder: Path) -> None:
        """Save spans and summary in a folder, which is made if need be, each whole or not at all.

        Raises:
            UserError: they cannot be written there.
        """
        make_folder(folder)
        write_atomic(folder / SPANS, self.spans.to_csv(index=False, lineterminator="\n").encode())
        write_atomic(folder / SUMMARY, json.dumps(self.summary(), indent=2).encode() + b"\n")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, if need be; a UserError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(folder, error) from None


def check_folder(folder: Path) -> None:
    """Raise a UserError if nothing could be written in this folder, or if it could not be made; makes nothing."""
    try:
        place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _no_folder(folder, error) from None


def _no_folder(folder: Path, error: OSError) -> UserError:
    return UserError(f"--out {folder}: cannot make this folder: {error.strerror}")
