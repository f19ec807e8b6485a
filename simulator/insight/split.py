"""Where the time of each rank of a training step goes, without remainder.

A rank's compute lane is busy with kernels of a phase, or idle until something ends, and then the gap is named after
that: an exchange of an axis, a stage elsewhere (`pipeline`), the host.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..costs import BUSY, PHASES, phase_of_lane, phase_of_op
from ..costs.phases import COMPUTE
from ..program import Program
from ..timeline import Timeline
from .critical_path import CriticalPath

Floats = NDArray[np.float64]


def path_by_phase(path: CriticalPath, program: Program, mix: Floats | None = None) -> Floats:
    """Seconds of a critical path by phase; whole actions by their `mix` (shape [actions, phases]), if that is known."""
    return _by_phase(program, phase_of_op(program), path.ops, path.seconds, mix)


def split_by_place(timeline: Timeline, until_s: Floats | None = None, mix: Floats | None = None) -> Floats:
    """Seconds by place and phase, shape [places, phases]; the sum over phases is `until_s` (default: the makespan)."""
    program, phase = timeline.program, phase_of_op(timeline.program)
    until = np.full(len(program.places), timeline.makespan_s) if until_s is None else until_s
    found = np.zeros((len(program.places), len(PHASES)))
    others = _other_lanes(program)
    for lane, at in enumerate(program.lanes):
        if at.name != COMPUTE:
            continue
        ops = program.order[lane]
        start, end = timeline.start_s[ops], timeline.end_s[ops]
        gap = start - np.concatenate(([0.0], end[:-1]))
        found[at.place] += _by_phase(program, phase, ops, end - start, mix)
        found[at.place] += np.bincount(_waited_for(timeline, phase, ops), gap, minlength=len(PHASES))
        behind = until[at.place] - (end[-1] if len(end) else 0.0)
        found[at.place, PHASES.index(_trailing(timeline, others[at.place], until[at.place]))] += behind
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


def _waited_for(timeline: Timeline, phase: NDArray[np.int64], ops: NDArray[np.int64]) -> NDArray[np.int64]:
    """The phase of what each op was let go by; compute elsewhere is a stage of the pipeline."""
    cause = timeline.cause[ops]
    waited = phase[cause]
    waited[(cause < 0) | (waited < len(BUSY))] = PHASES.index("pipeline")
    return waited


def _other_lanes(program: Program) -> list[list[int]]:
    """For each place its lanes except the lane of kernels."""
    found: list[list[int]] = [[] for _ in program.places]
    for lane, at in enumerate(program.lanes):
        if at.name != COMPUTE:
            found[at.place].append(lane)
    return found


def _trailing(timeline: Timeline, lanes: Sequence[int], until_s: float) -> str:
    """What a rank waits for after its last kernel: the gather of its own weights, or other stages."""
    program = timeline.program
    late = [(timeline.end_s[program.order[lane][-1]], lane) for lane in lanes if len(program.order[lane])]
    end, lane = max(late, default=(0.0, -1))
    return phase_of_lane(program.lanes[lane].name) if end >= until_s else "pipeline"
