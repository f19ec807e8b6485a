"""The scenario that is explained: resolved, simulated once, and priced again with one number changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from ... import engine
from ...base.arrays import Floats
from ...base.errors import UserError, fault
from ...base.memo import Memo
from ...costs import Costs
from ...insight import CriticalPath, critical_path, sum_by_group
from ...predict import Prediction, TrainPrediction, predict
from ...report.report import Parts
from ...scenario import Changes, Given, change, check_question, open_table, resolve
from ...systems.machines import OnMachines, shape_loss_s
from ...systems.registry import SYSTEMS
from ...systems.system import System


@dataclass(frozen=True)
class ReadCase:
    """What is explained as its table says it, with what its variants may share; not simulated yet."""

    table: Mapping[str, Any]
    where: str
    memo: Memo
    resolved: Any

    @property
    def system(self) -> System:
        """The system of the scenario."""
        return SYSTEMS[self.resolved.scenario.kind]


@dataclass(frozen=True)
class Case(ReadCase):
    """A training step or a weight update, whose critical path is explained."""

    @cached_property
    def prediction(self) -> Prediction | TrainPrediction:
        """The case as it is."""
        return cast(Prediction | TrainPrediction, predict(self.resolved))

    @property
    def report(self) -> Any:
        """The report of the case as it is."""
        return self.prediction.report

    @cached_property
    def parts(self) -> Parts:
        """The parts of the case's total."""
        costs, parts = self.resolved.costs, self.system.parts
        assert parts is not None
        by_class = sum_by_group(self.path, costs.cost_class, costs.classes)
        return parts(self.report, self.resolved.program, self.path, by_class)

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path of what is explained: the step, or the update from where its time begins."""
        timeline = self.prediction.timeline
        return critical_path(timeline, self.resolved.opening_s(timeline))

    @cached_property
    def beside_s(self) -> Mapping[int, Floats]:
        """Seconds that each op runs beside ops of the path on one of its ranks, by the class of those."""
        path, program = self.path, self.resolved.program
        start_s, end_s = self.prediction.timeline.start_s, self.prediction.timeline.end_s
        victim = self.resolved.costs.cost_class[path.ops]
        found = {one: np.zeros(len(end_s)) for one in np.unique(victim).tolist()}
        places = np.array([lane.place for lane in program.lanes], np.int64)
        for place in np.unique(places).tolist():
            lanes = np.flatnonzero(places == place).tolist()
            here = np.unique(np.concatenate([program.order[lane] for lane in lanes]))
            mine = np.isin(path.ops, here)
            for one, most in found.items():
                held = mine & (victim == one)
                covered = _covered(end_s[path.ops[held]], path.seconds[held])
                most[here] = np.maximum(most[here], covered(end_s[here]) - covered(start_s[here]))
        return found

    @property
    def total_s(self) -> float:
        """The time in seconds that is explained: the step time, or the update time."""
        timeline = self.prediction.timeline
        return timeline.makespan_s - float(self.resolved.opening_s(timeline))

    def awkward_s(self, simulate: bool) -> float:
        """Seconds that awkward shapes cost: by a second simulation, or along the present critical path."""
        if not self.resolved.awkward:
            return 0.0
        if not simulate:
            return shape_loss_s(self.resolved, self.path)
        return self.total_s - engine.simulate(self.resolved.program, self.resolved.neat_costs).makespan_s

    def variant(self, changes: Changes | Sequence[Changes]) -> "Case":
        """Another case: this one's table with changes; a UserError if they do not go with this scenario."""
        return make_case(change(self.table, changes, self.where), self.where, self.memo)

    def move_to(self, changes: Changes) -> OnMachines:
        """The same Program on a machine with other rates; they change the time of ops, not the Program."""
        other = self.variant(changes).resolved
        vars(other)["program"] = self.resolved.program
        return other

    def simulated_s(self, resolved: OnMachines) -> float:
        """The total of the same Program with other costs."""
        timeline = engine.simulate(resolved.program, resolved.costs)
        return timeline.makespan_s - resolved.opening_s(timeline)


@dataclass(frozen=True)
class Refused:
    """A what-if that this scenario does not allow, and why, in one line."""

    name: str
    subject: str
    reason: str


def read_case(scenario: Given, changes: Changes) -> Case:
    """A case from a table or a file, with changes.

    A UserError if the file cannot be read, says something that is not allowed, or is of a kind that is not explained.
    """
    return make_case(*open_table(scenario, changes), Memo())


def make_case(table: Mapping[str, Any], where: str, memo: Memo) -> Case:
    """A case from a table; a UserError as `read_case`."""
    resolved = resolve(check_question(table, where), where, memo)
    kind = resolved.scenario.kind
    if SYSTEMS[kind].parts is None:
        known = " or ".join(system.kind for system in SYSTEMS.values() if system.what_ifs)
        raise UserError(fault(where, "kind", kind, f"runcast explain takes kind {known}"))
    return Case(table, where, memo, resolved)


def same_costs(one: Costs, other: Costs) -> bool:
    """Whether a simulation could not tell two costs of a Program apart."""
    arrays = ("latency_s", "work_s", "row", "rate_bytes_per_s", "capacity_bytes_per_s", "interference")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


def _covered(end_s: Floats, seconds: Floats) -> Callable[[Floats], Floats]:
    """A function of times: the seconds of these (non-overlapping) spans before each time."""
    if not len(end_s):
        return np.zeros_like
    edges = np.stack((end_s - seconds, end_s), axis=1).ravel()
    before = np.concatenate(([0.0], np.cumsum(seconds)))
    covered = np.stack((before[:-1], before[1:]), axis=1).ravel()
    return lambda at: np.interp(at, edges, covered)
