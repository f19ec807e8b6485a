"""Training steps as a search sees them: which plans there are, bounds without a simulation, what one says."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from ...base.errors import UserError, fault
from ...base.memo import Memo
from ...formats.recipes import export_recipe
from ...report.spending import rates
from ...scenario import Changes
from ...schedules import SCHEDULES
from ...systems.train_step.checks import no_such_part
from ...systems.train_step.report import TrainReport
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from .floors import activation_bytes, floor_bytes, floor_s, shorten, states_bytes
from .records import ANY, LEFT, MEMORY, REFUSED, Amounts, Measured, Question, Row, Subject, scenario_value
from .space import Axis, Rule, Space, Values, Wanted, add_wanted, divisors

SCHEDULES_OF: Mapping[str, tuple[str, ...]] = {
    ANY: ("1f1b", "interleaved"),
    "megatron": ("1f1b", "interleaved"),
    "torchtitan": ("1f1b", "interleaved", "zb-v"),
}
"""Schedules that are searched by default, by the tool that is to run a plan."""
_STAGES_OF_ZERO: Mapping[str, tuple[int, ...]] = {ANY: (1, 2, 3), "megatron": (1, 2, 3), "torchtitan": (0, 3)}
_MOST_GATHERED = 4_000  # layers times micro-batches of a plan with zero = 3: a simulation of about half a second
_NOT_OF_STATES = ("batch.micro", "schedule", "recompute")
_NONE: dict[str, Any] = {"mode": "none"}


def _space(table: Mapping[str, Any], resolved: ResolvedTrain, wanted: Wanted) -> Space:
    """Every plan whose sizes divide GPUs, layers and batch, and what saves memory: ZeRO, recomputation, offloading.

    dp is what is left. What the scenario says otherwise stays. A UserError if `wanted` says what there is not, or what
    no plan says.
    """
    scenario, target = resolved.scenario, wanted.target
    if target not in SCHEDULES_OF:
        raise UserError(fault("--for", "", target, f"expected one of {', '.join(SCHEDULES_OF)}"))
    layers = resolved.spec.divided_layers + 2 * scenario.parallel.embedding_as_layer
    uneven = wanted.uneven or layers % scenario.parallel.pp > 0
    axes = _axes(resolved, wanted, layers, uneven)
    keys = {axis.key for axis in axes}
    rules = (*_division(resolved, layers, uneven), *_saving(resolved, layers, target))
    space = add_wanted(Space(axes, tuple(rule for rule in rules if set(rule.keys) <= keys)), wanted, table)
    return space if uneven else replace(space, notes=_equal_stages(space, layers))


def _equal_stages(space: Space, layers: int) -> tuple[str, ...]:
    """A note where most numbers of stages are left out because they do not divide the layers."""
    numbers = next(axis.values for axis in space.axes if axis.key == "parallel.pp")
    equal = [str(pp) for pp in numbers if layers % pp == 0]
    if 2 * len(equal) >= len(numbers):
        return ()
    return (f"{layers} layers divide equally only into pp = {', '.join(equal)}; --uneven also tries other pp",)


def _axes(resolved: ResolvedTrain, wanted: Wanted, layers: int, uneven: bool) -> tuple[Axis, ...]:
    scenario, spec, target, gpus = resolved.scenario, resolved.spec, wanted.target, resolved.cluster.n_gpus
    own = (scenario.schedule.name,) if target == ANY else ()
    names = tuple(dict.fromkeys(wanted.schedules or (*SCHEDULES_OF[target], *own)))
    if unknown := [name for name in names if name not in SCHEDULES]:
        raise UserError(fault("--schedules", "", unknown[0], f"known: {', '.join(SCHEDULES)}"))
    zeros = {*_STAGES_OF_ZERO[target], *([scenario.parallel.zero] if target == ANY else [])}
    experts = spec.moe.n_routed_experts if spec.moe else 1
    return (
        Axis("parallel.tp", _tensor_parallel(resolved)),
        Axis("parallel.pp", tuple(pp for pp in divisors(gpus) if pp <= layers)),
        Axis("parallel.cp", divisors(gpus)),
        *([Axis("parallel.ep", divisors(gcd(experts, gpus))),
           Axis("parallel.etp", _tensor_parallel(resolved))] if spec.moe else []),
        Axis("batch.micro", divisors(scenario.batch.global_)),
        Axis("parallel.zero", tuple(sorted(zeros))),
        Axis("schedule", tuple(_schedules(scenario, names, layers, uneven))),
        Axis("recompute", tuple(_recomputations(resolved, target))),
        Axis("offload", tuple(_offloads(scenario, spec.num_hidden_layers, target))),
    )  # fmt: skip


def _division(resolved: ResolvedTrain, layers: int, uneven: bool) -> tuple[Rule, ...]:
    """What must divide what."""
    gpus, batch = resolved.cluster.n_gpus, resolved.scenario.batch.global_
    return (
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


def _saving(resolved: ResolvedTrain, layers: int, target: str) -> tuple[Rule, ...]:
    """What saves memory, and goes together in the tool that is to run a plan, or makes sense together."""
    gpus, scenario, batch = resolved.cluster.n_gpus, resolved.scenario, resolved.scenario.batch.global_
    own_zero, own_offload = scenario.parallel.zero, scenario.offload.model_dump(exclude_unset=True, mode="json")
    return (
        Rule("ZeRO 2 and 3 exchange all weights in each micro-batch of a pipeline", ("parallel.pp", "parallel.zero"),
             lambda at: at["parallel.pp"] == 1 or at["parallel.zero"] in (0, 1, own_zero) or target == "torchtitan"),
        Rule("one rank shards nothing", ("parallel.tp", "parallel.pp", "parallel.zero"),
             lambda at: gpus > _ranks(at, 1) or at["parallel.zero"] in (0, 1, own_zero)),
        Rule("torchtitan copies models without other axes alone", ("parallel.tp", "parallel.pp", "parallel.zero"),
             lambda at: target != "torchtitan" or at["parallel.zero"] > 0 or _ranks(at, 1) in (1, gpus)),
        Rule(f"ZeRO 3 gathers more than {_MOST_GATHERED:,} layers in a step",
             ("parallel.tp", "parallel.pp", "parallel.cp", "batch.micro", "parallel.zero"),
             lambda at: at["parallel.zero"] < 3 or _gathered(at, gpus, batch, layers) <= _MOST_GATHERED),
        Rule("activations are offloaded or recomputed", ("recompute", "offload"),
             lambda at: not at["offload"].get("activations") or at["recompute"] == _NONE
             or at["offload"] == own_offload),
        Rule("the optimizer is offloaded without recomputation, or with all of it", ("recompute", "offload"),
             lambda at: not at["offload"].get("optimizer") or at["recompute"]["mode"] != "selective"
             or at["offload"] == own_offload),
        Rule("Megatron-LM offloads activations without a pipeline alone", ("parallel.pp", "offload"),
             lambda at: target != "megatron" or at["parallel.pp"] == 1 or not at["offload"].get("activations")),
    )  # fmt: skip


def _tensor_parallel(resolved: ResolvedTrain) -> tuple[int, ...]:
    """Sizes that divide a node, and beyond it those that divide the heads, up to the GPUs that NVLink joins."""
    machines, heads = resolved.cluster, resolved.spec.num_attention_heads
    node = min(machines.gpus_per_node)
    joined = sum(machines.island(gpu) == machines.island(0) for gpu in range(min(machines.n_gpus, _LARGEST_TP)))
    return tuple(tp for tp in range(1, joined + 1) if node % tp == 0 or (tp > node and tp % node == heads % tp == 0))


_LARGEST_TP = 72  # GPUs of an NVL72 rack


def _recomputations(resolved: ResolvedTrain, target: str) -> Iterator[dict[str, Any]]:
    """Nothing, norms and activations, networks too, the scenario's own, and all: the cheap ones first."""
    spec, scenario = resolved.spec, resolved.scenario
    own = scenario.recompute.model_dump(exclude_unset=True, mode="json") or _NONE
    cheap = "activation" if target != "megatron" else "moe_act"  # which Megatron-LM recomputes in experts alone
    light = ["layernorm", *([cheap] if spec.moe or target != "megatron" else [])]
    heavy = [*light, "mla_up_proj", "core_attn", "mlp"]
    there = [module for module in heavy if not no_such_part(spec, module)]
    kept = [module for module in there if module != "core_attn" or scenario.attention == "unfused"]
    less: dict[str, Any] = {"mode": "selective", "modules": light}
    found: list[dict[str, Any]] = [_NONE, less, {"mode": "selective", "modules": kept}, own, {"mode": "full"}]
    if target == "torchtitan":  # which recomputes by operation
        found = [_NONE, less, {"mode": "full"}]
    yield from (one for place, one in enumerate(found) if one not in found[:place])


def _offloads(scenario: TrainScenario, layers: int, target: str) -> Iterator[dict[str, Any]]:
    """Nothing, the scenario's own, all activations, and the optimizer."""
    own = scenario.offload.model_dump(exclude_unset=True, mode="json")
    share = (layers - 1) / layers if target == "megatron" else 1.0  # it offloads fewer than all
    found = [{}, own, {"activations": share}, {"optimizer": True}] if target != "torchtitan" else [{}]
    yield from (one for place, one in enumerate(found) if one not in found[:place])


def _complete(target: str, changes: Changes) -> Changes:
    """The plan with what the tool that is to run it does in any case."""
    pipeline = changes["parallel.pp"] > 1
    if target == "megatron" and pipeline and changes["schedule"]["name"] == "1f1b":
        return {**changes, "overlap.pp": False}  # it overlaps sends of interleaved pipelines only
    if target == "torchtitan" and changes["parallel.zero"] == 3 and pipeline:
        return {**changes, "parallel.reshard": False, "parallel.sync_each_microbatch": False}
    return changes


def _own(resolved: ResolvedTrain, key: str) -> Any:
    """Sizes as they follow from the GPUs, and tables with what they say alone."""
    scenario, (table, _, name) = resolved.scenario, key.partition(".")
    if table == "parallel" and hasattr(resolved.dims, name):
        return getattr(resolved.dims, name)
    default: dict[str, dict[str, Any]] = {"schedule": {"name": "1f1b"}, "recompute": _NONE, "offload": {}}
    if key not in default:
        return scenario_value(resolved, key)
    return default[key] | getattr(scenario, key).model_dump(exclude_unset=True, mode="json")


def _level(table: Mapping[str, Any], changes: Changes, finest: bool) -> str:
    """Action by action, but for the gathers of zero = 3, which run across actions."""
    zero = changes.get("parallel.zero", table.get("parallel", {}).get("zero"))
    return "kernels" if finest or zero == 3 else "coarse"


def _gathered(at: Values, gpus: int, batch: int, layers: int) -> float:
    """Layers of a stage times micro-batches."""
    dp = gpus // _ranks(at)
    return float(at.get("batch.global", batch) / (at["batch.micro"] * dp) * layers / at["parallel.pp"])


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
    if changes.get("offload") and question.objective != "memory" and _fits_without(question, changes, memo):
        return Row(changes, REFUSED, "offload: the plan fits without it")
    resolved = shorten(ResolvedTrain(scenario, question.where, memo))
    for bound in (lambda: states + activation_bytes(resolved), lambda: floor_bytes(resolved)):  # the quick one first
        if (needed := bound()) > question.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, needed, None))
    seconds = floor_s(_with_copies(resolved) if scenario.parallel.zero == 3 else resolved)
    tokens, per_second = scenario.batch.global_ * scenario.batch.seq_len, rates(resolved.cluster).amount(1.0).cost_usd
    cost = None if per_second is None else per_second * seconds / tokens
    return Row(changes, LEFT, floor=Amounts(seconds / tokens, needed, cost))


def _fits_without(question: Question, changes: Changes, memo: Memo) -> bool:
    """Whether a plan fits without offloading; its memory is then known by formula."""
    plain = {**changes, "offload": {}}

    def fits() -> bool:
        try:
            scenario = question.scenario(plain)
            if _states_bytes(question, plain, memo) > question.memory_bytes:
                return False
            return floor_bytes(shorten(ResolvedTrain(scenario, question.where, memo))) <= question.memory_bytes
        except UserError:
            return False

    return memo.get("fits", repr(plain), fits)  # neighbours in the space ask the same


def _with_copies(resolved: ResolvedTrain) -> ResolvedTrain:
    """The step with whole weights on each rank, which gathers none: its actions take no longer."""
    parallel = resolved.scenario.parallel.model_copy(update={"zero": 1, "shard": None})
    scenario = resolved.scenario.model_copy(update={"parallel": parallel, "level": "coarse"})
    return shorten(ResolvedTrain(scenario, resolved.where, resolved.memo))


def _measure(question: Question, report: TrainReport) -> Measured:
    tokens, needed, cost = report.tokens, report.peak.peak_bytes, report.spending.cost_usd
    amounts = Amounts(report.step_time_s / tokens, needed, None if cost is None else cost / tokens)
    fits = needed <= question.memory_bytes and report.fits_hosts
    terms, interval = dict(report.split_s), (report.interval_low_s, report.interval_high_s)
    return Measured(
        amounts, report.step_time_s, tokens, fits, needed, cost, terms, report.budget, interval,
        report.fits_probability, report.mfu, report.not_in_interval,
    )  # fmt: skip


def _export(scenario: TrainScenario, target: str, where: str) -> object:
    return export_recipe(scenario, "megatron" if target == ANY else target, where)


STEPS = Subject(
    objectives=("tokens_per_s", "cost", "memory"), title="step", level=_level, speed_name="throughput",
    resolve=ResolvedTrain, space=_space, states_bytes=_states_bytes, screen=_screen, measure=_measure,
    complete=_complete, own=_own, export=_export,
)  # fmt: skip
