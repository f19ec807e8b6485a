"""Where the time of a Timeline goes: along its critical path, on each rank of a training step, and for overlap.

The engine records for each op the op whose end let it start, so the path is followed, not guessed: from the op that
ends last back to time zero its spans touch each other and sum to the makespan.

An op alone takes `uncontended_s`. Kernels slow down beside exchanges on their GPU; exchanges and copies beside kernels,
and where they share a link with others. What overlaps is not free: `slowed_s` is its price.

On a rank of a training step (`split_by_place`) the parts add up to all of the time. Its compute lane is busy with
kernels of a phase, or idle until something ends. Then the gap is cut where what it waits for has begun, and so on back:
each piece is named after what the rank itself did in it: an exchange of an axis, a copy, the host. What others did
before that is named after the exchange that waited for them, or it is `pipeline`, a stage elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..base.op_kinds import COPY, kinds_of_form
from ..costs import EXCHANGES, PHASES, Costs, phase_of_op
from ..costs.phases import COMPUTE
from ..profile import PROVENANCE
from ..program import Program
from ..timeline import Timeline

_LEAST, _SHOWN = 0.01, 0.0005
"""Shares of a total from which on the report says so, and names a part."""

SLOWED: Mapping[str, str] = {
    "kernels": "kernels beside exchanges and copies",
    "exchanges": "exchanges beside kernels, or beside others on the same link",
    "copies": "copies beside kernels, or beside others on the same link",
}
"""What takes longer, and beside what."""


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The ops on the path in the order of time, and the seconds that each one holds up the end.

    The work of a lane is written alike (`busiest_lanes`): ops that follow one another, and the seconds of each.
    """

    ops: NDArray[np.int64]
    seconds: NDArray[np.float64]


def critical_path(timeline: Timeline, since_s: float = 0.0) -> CriticalPath:
    """The path from the op that ends last back to `since_s`."""
    ops: list[int] = []
    op = int(timeline.end_s.argmax()) if len(timeline.end_s) else -1
    while op >= 0 and timeline.end_s[op] > since_s:
        ops.append(op)
        op = int(timeline.cause[op])
    path = np.array(ops[::-1], np.int64)
    return CriticalPath(path, timeline.end_s[path] - np.maximum(timeline.start_s[path], since_s))


def sum_by_group(path: CriticalPath, group: NDArray[np.int64], names: tuple[str, ...]) -> dict[str, float]:
    """Seconds of the path per group of ops; `group[op]` indexes `names`; largest first, empty ones left out."""
    seconds = np.bincount(group[path.ops], path.seconds, minlength=len(names))
    order = np.argsort(-seconds, kind="stable")
    return {names[i]: float(seconds[i]) for i in order if seconds[i] > 0}


def provenance(path: CriticalPath, costs: Costs) -> dict[str, float]:
    """The share of the path's time by provenance of its numbers."""
    seconds = sum_by_group(path, costs.provenance, PROVENANCE)
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()} if total else {}


def slowed_s(path: CriticalPath, program: Program, costs: Costs) -> dict[str, float]:
    """Seconds that ops of a whole critical path take longer than alone, by what they are (SLOWED)."""
    longer = np.maximum(path.seconds - costs.uncontended_s[path.ops], 0.0)
    exchange, copy = program.is_kind(*EXCHANGES)[path.ops], program.is_kind(*kinds_of_form(COPY))[path.ops]
    parts = {"kernels": ~exchange & ~copy, "exchanges": exchange, "copies": copy}
    return {name: float(longer[of].sum()) for name, of in parts.items()}


def slowed_lines(slowed: Mapping[str, float], total_s: float) -> Iterator[str]:
    """A note on the slowdowns as shares of the total; none if they are below 1 % together."""
    share = sum(slowed.values()) / max(total_s, 1e-30)
    if share < _LEAST:
        return
    parts = (f"{SLOWED[name]} ({seconds / total_s:.1%})" for name, seconds in slowed.items()
             if seconds >= _SHOWN * total_s)  # fmt: skip
    yield (
        f"ops on the critical path take {share:.1%} of the step longer because of what runs beside them: "
        f"{', '.join(parts)}"
    )


def path_by_phase(path: CriticalPath, program: Program, mix: Floats | None = None) -> Floats:
    """Seconds of a critical path by phase; whole actions by their `mix` (shape [actions, phases]), if that is known."""
    return _by_phase(program, phase_of_op(program), path.ops, path.seconds, mix)


def split_by_place(timeline: Timeline, until_s: Floats | None = None, mix: Floats | None = None) -> Floats:
    """Seconds by place and phase, shape [places, phases]; the sum over phases is `until_s` (default: the makespan)."""
    program, phase = timeline.program, phase_of_op(timeline.program)
    until = np.full(len(program.places), timeline.makespan_s) if until_s is None else until_s
    found = np.zeros((len(program.places), len(PHASES)))
    gaps, last = list[_Gaps](), _last_ops(timeline)
    for lane, at in enumerate(program.lanes):
        if at.name != COMPUTE:
            continue
        ops, latest = program.order[lane], last[at.place]
        start, ended = timeline.start_s[ops], np.concatenate(([0.0], timeline.end_s[ops]))
        found[at.place] += _by_phase(program, phase, ops, ended[1:] - start, mix)
        gaps.append(_gaps(at.place, timeline.cause[ops], ended[:-1], start))
        end_s = min(float(timeline.end_s[latest]) if latest >= 0 else 0.0, float(until[at.place]))
        gaps.append(_gaps(at.place, np.array([latest]), ended[-1:], np.array([end_s])))
        found[at.place, PHASES.index("pipeline")] += until[at.place] - max(end_s, ended[-1])
    return found + _waits(timeline, phase, gaps)


def busiest_lanes(timeline: Timeline, since_s: float = 0.0) -> dict[str, CriticalPath]:
    """The work of the busiest lane of each name after `since_s`, by name: its ops, and the seconds of each.

    A lane that works less than a tenth of the time is left out: all wait for it only if it takes ten times as long.
    """
    program, took = timeline.program, timeline.end_s - np.maximum(timeline.start_s, since_s)
    found, busiest_s = dict[str, CriticalPath](), dict[str, float]()
    least_s = (timeline.makespan_s - since_s) / 10
    for lane, at in enumerate(program.lanes):
        ops = program.order[lane][took[program.order[lane]] > 0]
        busy_s = float(took[ops].sum())
        if busy_s > busiest_s.get(at.name, least_s):
            found[at.name], busiest_s[at.name] = CriticalPath(ops, took[ops]), busy_s
    return found


def _by_phase(
    program: Program, phase: NDArray[np.int64], ops: NDArray[np.int64], seconds: Floats, mix: Floats | None
) -> Floats:
    if mix is None:
        return np.bincount(phase[ops], seconds, minlength=len(PHASES)).astype(np.float64)
    whole = phase[ops] == PHASES.index("coarse")
    action = program.shape.values[program.shape.start[ops[whole]]]
    found = np.bincount(phase[ops[~whole]], seconds[~whole], minlength=len(PHASES))
    mixed: Floats = found + seconds[whole] @ mix[action]
    return mixed


class _Gaps(NamedTuple):
    """Times in which the kernels' lane of a place is idle, and the op whose end each waits for (-1: none)."""

    place: NDArray[np.int64]
    cause: NDArray[np.int64]
    since_s: Floats
    until_s: Floats


def _gaps(place: int, cause: NDArray[np.int64], since_s: Floats, until_s: Floats) -> _Gaps:
    idle = until_s > since_s
    return _Gaps(np.full(int(idle.sum()), place), cause[idle], since_s[idle], until_s[idle])


def _last_ops(timeline: Timeline) -> list[int]:
    """The op of each place that ends last; -1 if it has none."""
    program, found = timeline.program, [-1] * len(timeline.program.places)
    for lane, at in enumerate(program.lanes):
        op = int(program.order[lane][-1]) if len(program.order[lane]) else -1
        if op >= 0 and (found[at.place] < 0 or timeline.end_s[op] > timeline.end_s[found[at.place]]):
            found[at.place] = op
    return found


def _waits(timeline: Timeline, phase: NDArray[np.int64], gaps: Sequence[_Gaps]) -> Floats:
    """Seconds of gaps by place and phase.

    A gap is followed back along causes while they are ops of its place; the rest has the phase of the last of them.
    """
    shape = len(timeline.program.places), len(PHASES)
    found = np.zeros(shape[0] * shape[1])
    at_place = np.array([lane.place for lane in timeline.program.lanes], np.int64)
    place, cause, since, until = (np.concatenate(column) for column in zip(*gaps, strict=True))
    named = np.full(len(place), PHASES.index("pipeline"))
    while len(place):
        here = (cause >= 0) & _are_of(timeline.program, at_place, np.maximum(cause, 0), place)
        began = np.where(here, np.clip(timeline.start_s[cause], since, until), since)
        named = np.where(here, phase[cause], named)
        found += np.bincount(place * shape[1] + named, until - began, minlength=len(found))
        more = here & (began > since)
        place, since, until, named = place[more], since[more], began[more], named[more]
        cause = timeline.cause[cause[more]]
    return found.reshape(shape)


def _are_of(
    program: Program, at_place: NDArray[np.int64], ops: NDArray[np.int64], place: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each op holds a lane of the place beside it; `at_place` is that of each lane."""
    entries, of = program.lanes_of.positions(ops)
    found = np.zeros(len(ops), bool)
    found[of[at_place[program.lanes_of.values[entries]] == place[of]]] = True
    return found
