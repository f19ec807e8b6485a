"""RL cycles as a search sees them: the split of nodes, the engines' tp and batch, and what a report says."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...base.errors import UserError, fault
from ...base.memo import Memo
from ...report.spending import rates
from ...scenario import Changes
from ...systems.rl_cycle.report import CycleReport
from ...systems.rl_cycle.resolve import ResolvedCycle
from ...systems.rl_cycle.scenario import CycleScenario
from .records import ANY, LEFT, Amounts, Measured, Question, Row, Subject, no_level
from .space import Axis, Space, Wanted, add_wanted, divisors

_BATCHES = (64, 128, 256, 512, 1024)


def _space(table: Mapping[str, Any], resolved: ResolvedCycle, wanted: Wanted) -> Space:
    """Nodes that roll out, where others train beside them; tp and batch of engines whose steps are predicted.

    A UserError if there is nothing of these, or `wanted` says what no cycle says.
    """
    if wanted.target != ANY:
        raise UserError(f"--for {wanted.target}: is of training steps, and no tool has arguments for an RL cycle")
    if wanted.schedules or wanted.uneven:
        flag = "--schedules" if wanted.schedules else "--uneven"
        raise UserError(f"{flag}: is of pipelines, and an RL cycle has none")
    axes = list(_axes(resolved))
    if not axes and not wanted.vary:
        allowed = "a search varies cycle.rollout_nodes and rollout.engine: give one of them, or --vary"
        raise UserError(fault(resolved.where, "rollout.engine", None, allowed))
    return add_wanted(Space(tuple(axes)), wanted, table)


def _axes(resolved: ResolvedCycle) -> Iterator[Axis]:
    scenario = resolved.scenario
    if scenario.cycle.rollout_nodes is not None:
        yield Axis("cycle.rollout_nodes", tuple(range(1, scenario.nodes)))
    if resolved.engine is not None:
        said = resolved.engine.said
        key = "rollout.engine.tp" if said.tp is not None else "update.inference.tp"
        yield Axis(key, divisors(min(resolved.cluster.gpus_per_node)))
        yield Axis("rollout.engine.max_batch", tuple(sorted({*_BATCHES, said.max_batch})))


def _screen(question: Question, changes: Changes, scenario: CycleScenario, states: float, memo: Memo) -> Row:
    """No bound of a cycle's time is known; resolving finds what does not divide, fit or go together."""
    resolved = ResolvedCycle(scenario, question.where, memo)
    _ = resolved.rollouts(resolved.pools[0])
    free = rates(resolved.cluster).usd_per_hour is None
    return Row(changes, LEFT, floor=Amounts(0.0, 0.0, None if free else 0.0))


def _measure(question: Question, report: CycleReport) -> Measured:
    tokens = report.tokens_per_s * report.step_time_s
    cost = report.spending.cost_usd
    of_training = report.training.peak.peak_bytes if report.training is not None else 0.0
    of_update = float(report.update.peak.bytes) if report.update is not None else 0.0
    needed = max(of_training, of_update)
    amounts = Amounts(1 / report.tokens_per_s, needed, None if cost is None else cost / tokens)
    fits = report.fits is not False and needed <= question.memory_bytes
    terms = {phase: seconds / (report.steps + report.warmup) for phase, seconds in report.exposed.items()}
    return Measured(
        amounts, report.step_time_s, round(tokens), fits, needed, cost, terms, report.budget, report.interval_s
    )


CYCLES = Subject(
    objectives=("tokens_per_s", "cost", "memory"), title="cycle", level=no_level, speed_name="throughput",
    resolve=ResolvedCycle, space=_space, states_bytes=None, screen=_screen, measure=_measure,
)  # fmt: skip
