"""Training steps as a search sees them: which plans there are, bounds without a simulation, what one says."""

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any

from ...base.errors import UserError, fault
from ...base.memo import Memo
from ...formats.recipes import export_recipe
from ...report.spending import rates
from ...scenario import Changes
from ...schedules import SCHEDULES
from ...systems.train_step.report import TrainReport
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from .floors import activation_bytes, floor_bytes, floor_s, shorten, states_bytes
from .records import LEFT, MEMORY, Amounts, Measured, Question, Row, Subject
from .space import NO_ZERO_3, Axis, Rule, Space, Values, Wanted, add_wanted, divisors

MEGATRON = ("1f1b", "interleaved")
"""Schedules that are searched by default: those that Megatron-LM has arguments for, for any model."""
_NOT_OF_STATES = ("batch.micro", "schedule", "recompute")


def _space(table: Mapping[str, Any], resolved: ResolvedTrain, wanted: Wanted) -> Space:
    """Every plan that divides on these GPUs: tp, cp, pp, ep and etp, micro-batch, schedule, recomputation.

    tp goes up to the GPUs of a node; dp is what is left. What the scenario says otherwise stays. Its own recomputation
    is tried beside none and full, its own schedule beside those of `wanted`. A UserError if `wanted` says what there is
    not, or what no plan says.
    """
    scenario, spec, machines = resolved.scenario, resolved.spec, resolved.cluster
    if scenario.parallel.zero == 3:
        raise UserError(fault(resolved.where, "parallel.zero", 3, NO_ZERO_3))
    gpus, layers = machines.n_gpus, spec.divided_layers + 2 * scenario.parallel.embedding_as_layer
    batch = scenario.batch.global_
    names = tuple(dict.fromkeys(wanted.schedules or (*MEGATRON, scenario.schedule.name)))
    if unknown := [name for name in names if name not in SCHEDULES]:
        raise UserError(fault("--schedules", "", unknown[0], f"known: {', '.join(SCHEDULES)}"))
    uneven = wanted.uneven or layers % scenario.parallel.pp > 0
    none, own = {"mode": "none"}, scenario.recompute.model_dump(exclude_unset=True, mode="json")
    recompute = [none, own or none, {"mode": "full"}]
    axes = [
        Axis("parallel.tp", divisors(min(machines.gpus_per_node))),
        Axis("parallel.pp", tuple(pp for pp in divisors(gpus) if pp <= layers)),
        Axis("parallel.cp", divisors(gpus)),
        *([Axis("parallel.ep", divisors(gcd(spec.moe.n_routed_experts, gpus))),
           Axis("parallel.etp", divisors(min(machines.gpus_per_node)))] if spec.moe else []),
        Axis("batch.micro", divisors(batch)),
        Axis("schedule", tuple(_schedules(scenario, names, layers, uneven))),
        Axis("recompute", tuple(one for i, one in enumerate(recompute) if one not in recompute[:i])),
    ]  # fmt: skip
    rules = (
        Rule("tp x pp does not divide the GPUs", ("parallel.tp", "parallel.pp"), lambda at: gpus % _ranks(at, 1) == 0),
        Rule("tp x pp x cp does not divide the GPUs", ("parallel.tp", "parallel.pp", "parallel.cp"),
             lambda at: gpus % _ranks(at) == 0),
        Rule("etp is neither 1 nor tp", ("parallel.tp", "parallel.etp"),
             lambda at: at["parallel.etp"] in (1, at["parallel.tp"])),
        Rule("etp x ep does not divide the GPUs of a stage", ("parallel.pp", "parallel.ep", "parallel.etp"),
             lambda at: gpus // at["parallel.pp"] % (at["parallel.ep"] * at["parallel.etp"]) == 0),
        Rule("micro x dp does not divide the batch", ("parallel.tp", "parallel.pp", "parallel.cp", "batch.micro"),
             lambda at: at.get("batch.global", batch) % (at["batch.micro"] * (gpus // _ranks(at))) == 0),
        Rule("stages do not divide the layers", ("parallel.pp", "schedule"),
             lambda at: _stages_fit(at["parallel.pp"], at["schedule"], layers, uneven)),
        Rule("a schedule for one stage is 1f1b", ("parallel.pp", "schedule"),
             lambda at: at["parallel.pp"] > 1 or at["schedule"]["name"] == "1f1b"),
    )  # fmt: skip
    keys = {axis.key for axis in axes}
    return add_wanted(Space(tuple(axes), tuple(rule for rule in rules if set(rule.keys) <= keys)), wanted, table)


def _ranks(at: Values, cp: int | None = None) -> int:
    """GPUs of one copy of the model."""
    return int(at["parallel.tp"] * at["parallel.pp"] * (cp or at["parallel.cp"]))


def _schedules(scenario: TrainScenario, names: Sequence[str], layers: int, uneven: bool) -> Iterable[dict[str, Any]]:
    """Tables of `schedule`: by name, and by chunks per rank where a schedule takes any."""
    own = scenario.schedule.model_dump(exclude_unset=True)
    most = layers // 2 if uneven else 1
    powers = {2**i for i in range(1, most.bit_length()) if 2**i <= most}
    several = {chunks for chunks in divisors(layers) if chunks > 1} | powers
    for name in names:
        given = {"group": own["group"]} if own.get("name") == name and "group" in own else {}
        if SCHEDULES[name].chunks is None:
            mine = {scenario.schedule.vpp or 1} if scenario.schedule.name == name else set()
            yield from ({"name": name, "vpp": vpp, **given} for vpp in sorted(several | mine))
        else:
            yield {"name": name, **given}


def _stages_fit(pp: int, schedule: Mapping[str, Any], layers: int, uneven: bool) -> bool:
    """Whether every stage has a layer, and all as many, unless they need not."""
    stages = SCHEDULES[schedule["name"]].stages(pp, schedule.get("vpp", 1))
    return stages <= layers and (uneven or layers % max(stages, 1) == 0)


def _states_bytes(question: Question, changes: Changes, memo: Memo) -> float:
    """The least memory of states: one number for all plans that share them; 0 if unknown."""
    schedule = changes.get("schedule")
    if schedule is None or SCHEDULES[schedule["name"]].chunks not in (1, None):
        return 0.0  # or its first and last stage are not on the outer ranks

    def least() -> float:
        scenario = {**changes, "schedule": {"name": "1f1b"}}
        try:
            return states_bytes(shorten(ResolvedTrain(question.scenario(scenario), question.where, memo)))
        except UserError:
            return 0.0

    shared = {key: value for key, value in changes.items() if key not in _NOT_OF_STATES}
    return memo.get("states", repr(shared), least)


def _screen(question: Question, changes: Changes, scenario: TrainScenario, states: float, memo: Memo) -> Row:
    resolved = shorten(ResolvedTrain(scenario, question.where, memo))
    for bound in (lambda: states + activation_bytes(resolved), lambda: floor_bytes(resolved)):  # the quick one first
        if (needed := bound()) > question.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, needed, None))
    seconds = floor_s(resolved)
    tokens, per_second = scenario.batch.global_ * scenario.batch.seq_len, rates(resolved.cluster).amount(1.0).cost_usd
    cost = None if per_second is None else per_second * seconds / tokens
    return Row(changes, LEFT, floor=Amounts(seconds / tokens, needed, cost))


def _measure(question: Question, report: TrainReport) -> Measured:
    tokens, needed, cost = report.tokens, report.peak.peak_bytes, report.spending.cost_usd
    amounts = Amounts(report.step_time_s / tokens, needed, None if cost is None else cost / tokens)
    fits = needed <= question.memory_bytes
    terms, likely = dict(report.split_s), report.fits_probability
    return Measured(amounts, report.step_time_s, tokens, fits, needed, cost, terms, report.budget, likely)


STEPS = Subject(
    objectives=("tokens_per_s", "cost", "memory"), levels=("coarse", "kernels"), speed_name="throughput",
    resolve=ResolvedTrain, space=_space, states_bytes=_states_bytes, screen=_screen, measure=_measure,
    export=export_recipe,
)  # fmt: skip
