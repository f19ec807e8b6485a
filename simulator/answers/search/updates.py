"""Weight updates as a search sees them: which ways there are, and what a simulation says of one."""

from collections.abc import Mapping
from typing import Any

from ...base.errors import UserError
from ...base.memo import Memo
from ...report.spending import rates
from ...scenario import Changes
from ...systems.weight_update.methods import FROM_TRAINERS, METHODS
from ...systems.weight_update.report import Report
from ...systems.weight_update.resolve import Resolved
from ...systems.weight_update.scenario import Scenario
from ...systems.weight_update.system import resolve
from .records import ANY, LEFT, Amounts, Measured, Question, Row, Subject, no_level, scenario_value
from .space import Axis, Rule, Space, Wanted, add_wanted, divisors

_FROM_TRAINERS = (
    "single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard", "chain",
)  # fmt: skip
_SMALLEST_BUCKET = 2**28


def _space(table: Mapping[str, Any], resolved: Resolved, wanted: Wanted) -> Space:
    """Ways of a weight update: bucket size, and the pipeline, or the method, with messages by tensor or by bucket if it
    has that choice; and how many GPUs train if nobody says it.

    A UserError if `wanted` says what there is not, or what no update says.
    """
    scenario, machines = resolved.scenario, resolved.cluster
    if wanted.target != ANY:
        raise UserError(f"--for {wanted.target}: is of training steps, and no tool has arguments for a weight update")
    if wanted.schedules or wanted.uneven:
        flag = "--schedules" if wanted.schedules else "--uneven"
        raise UserError(f"{flag}: is of pipelines, and a weight update has none")
    update, gpus, each = scenario.update, machines.n_gpus, min(machines.gpus_per_node)
    most = int(min(node.device.memory_bytes for node in machines.nodes))
    sizes = [_SMALLEST_BUCKET << i for i in range(64) if _SMALLEST_BUCKET << i <= most]
    axes = [Axis("update.bucket", tuple(sorted({*sizes, *([update.bucket] if update.bucket else [])})))]
    if update.method not in FROM_TRAINERS:
        axes.append(Axis("update.pipeline", ("two_stage", "three_stage", "serial")))
        if update.method == "p2p":
            axes.append(Axis("update.readers", ("assigned", "one")))
    else:
        known = update.method in _FROM_TRAINERS
        axes.append(Axis("update.method", _FROM_TRAINERS if known else (update.method,)))
        axes.append(Axis("update.messages", (None, "bucket")))
        given = update.trainer is not None and update.trainer.gpus is not None
        if not given and update.inference.gpus is None and update.method != "colocated":
            steps = range(each, gpus, each) if gpus > each else divisors(gpus)[:-1]
            axes.append(Axis("update.trainer.gpus", tuple(steps)))
    rules = (_MESSAGES,) if update.method in FROM_TRAINERS else ()
    return add_wanted(Space(tuple(axes), rules), wanted, table)


_MESSAGES = Rule("the method sends buckets in any case", ("update.method", "update.messages"),
                 lambda at: at["update.messages"] is None or METHODS[at["update.method"]].by_tensor)  # fmt: skip


def _screen(question: Question, changes: Changes, scenario: Scenario, states: float, memo: Memo) -> Row:
    """No bound of an update's time is known; its plan finds what does not divide, fit or go together."""
    resolved = resolve(scenario, question.where, memo)
    _ = resolved.plan
    free = rates(resolved.cluster).usd_per_hour is None
    return Row(changes, LEFT, floor=Amounts(0.0, 0.0, None if free else 0.0))


def _own(resolved: Resolved, key: str) -> Any:
    """The bucket as it is, given or not; messages only where they are by bucket."""
    if key == "update.bucket":
        return resolve(resolved.scenario, resolved.where, resolved.memo).plan.bucket_bytes
    value = scenario_value(resolved, key)
    return None if (key, value) == ("update.messages", "tensor") else value


def _measure(question: Question, report: Report) -> Measured:
    time = report.pause_s if question.objective == "pause" else report.update_time_s
    needed, cost = float(report.peak.bytes), report.spending.cost_usd
    amounts, fits = Amounts(time, needed, cost), needed <= question.memory_bytes
    share = time / report.update_time_s
    interval = report.interval_low_s * share, report.interval_high_s * share
    return Measured(amounts, time, 0, fits, needed, cost, dict(report.exposed), report.budget, interval)


UPDATES = Subject(
    objectives=("update_time", "pause", "cost", "memory"), title="update", level=no_level, speed_name="time",
    resolve=Resolved, space=_space, states_bytes=None, screen=_screen, measure=_measure, own=_own,
)  # fmt: skip
