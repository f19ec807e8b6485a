"""What a step or an update is made of: seconds by phase and by kind of op, what is exposed, bubble, host."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...costs import WAITS
from ...systems.train_step.report import TrainReport
from ...systems.weight_update.lower import HOST_LANES
from ...systems.weight_update.report import PHASES as UPDATE_PHASES
from ...systems.weight_update.report import phase_of_op
from ...timeline.insight import by_group
from .case import Case

_AXES = tuple(phase for phase in WAITS if phase not in ("pipeline", "host", "offload"))
_MOVING = ("h2d", "broadcast", "write")


@dataclass(frozen=True)
class Parts:
    """Seconds of a total by phase, in the order of its waterfall, and what else one asks of them.

    `split_s` sums to the total: of a training step the mean over pipeline ranks of what their compute lanes do or wait
    for, of an update its critical path. `path_s` is the critical path by phase, `class_s` by kind of op.
    `exposed_s` is communication in `split_s`: waits for exchanges of tp, cp, ep, dp and fsdp, or the copies, broadcasts
    and writes of an update; `exposed_path_s` is that on the critical path, sends between stages counted too.
    `bubble_s` is waiting for other stages (None: an update), `host_s` the work of host threads on the critical path,
    `slowed_s` how much longer ops on that of a step take because of what runs beside them.
    """

    split_s: Mapping[str, float]
    path_s: Mapping[str, float]
    class_s: Mapping[str, float]
    exposed_s: float
    exposed_path_s: float
    bubble_s: float | None
    host_s: float
    slowed_s: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return vars(self) | {name: dict(getattr(self, name)) for name in ("split_s", "path_s", "class_s", "slowed_s")}


def parts_of(case: Case) -> Parts:
    """The parts of the total of a case."""
    costs, report = case.resolved.costs, case.report
    classes = by_group(case.path, costs.cost_class, costs.classes)
    if isinstance(report, TrainReport):
        return _of_step(report, classes)
    return _of_update(case, classes)


def _of_step(report: TrainReport, classes: Mapping[str, float]) -> Parts:
    split = {phase: seconds for phase, seconds in report.split_s.items() if seconds}
    return Parts(
        split_s=split,
        path_s=report.exposed,
        class_s=classes,
        exposed_s=_sum(split, _AXES),
        exposed_path_s=_sum(report.exposed, (*_AXES, "pipeline")),
        bubble_s=report.split_s["pipeline"],
        host_s=report.exposed.get("host", 0.0),
        slowed_s=report.slowed_s,
    )


def _of_update(case: Case, classes: Mapping[str, float]) -> Parts:
    path = by_group(case.path, phase_of_op(case.resolved.program), tuple(UPDATE_PHASES))
    moved = _sum(path, _MOVING)
    return Parts(
        split_s={phase: path[phase] for phase in UPDATE_PHASES if phase in path},
        path_s=path,
        class_s=classes,
        exposed_s=moved,
        exposed_path_s=moved,
        bubble_s=None,
        host_s=_host_s(case),
        slowed_s={},
    )


def _host_s(case: Case) -> float:
    """Seconds of the path in which an op runs on host threads alone."""
    program = case.resolved.program
    on_host = np.array([lane.name in HOST_LANES for lane in program.lanes])[program.lanes_of.values]
    elsewhere = np.bincount(program.lanes_of.row_of_value()[~on_host], minlength=len(program)) > 0
    return float(case.path.seconds[~elsewhere[case.path.ops]].sum())


def _sum(seconds: Mapping[str, float], phases: tuple[str, ...]) -> float:
    return sum(seconds.get(phase, 0.0) for phase in phases)
