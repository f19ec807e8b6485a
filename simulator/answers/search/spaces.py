"""Which space a scenario opens: plans of a training step on its GPUs, or ways of a weight update."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import UserError, fault, unknown
from ...hardware import Cluster
from ...models import ModelSpec
from ...scenario import changed, check_values, parsed
from ...schedules import SCHEDULES
from ...systems.tables import FOR_PEOPLE
from ...systems.train_step.scenario import TrainScenario
from ...systems.weight_update.methods import FROM_TRAINERS
from ...systems.weight_update.scenario import Scenario
from ..sweep.keys import check_key
from .space import Axis, Rule, Space, Values

MEGATRON = ("1f1b", "interleaved")
"""Schedules that are searched by default: those that Megatron-LM has arguments for, for any model."""
_FROM_TRAINERS = (
    "single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard", "chain",
)  # fmt: skip
NO_ZERO_3 = (
    "plans are compared action by action, and zero = 3 gathers weights across those: --set parallel.zero=1, or the "
    "whole table where other keys go with 3"
)
_NAMED: Mapping[str, Values] = {"schedule": {"name": "1f1b"}, "recompute": {"mode": "none"}}
"""What tables of a user say by default, as plans are told by it."""
_SMALLEST_BUCKET = 2**28
_QUESTION = (*FOR_PEOPLE, "kind", "cluster", "nodes", "model", "level", "profile", "stack")


@dataclass(frozen=True)
class Wanted:
    """What a user adds to the space: schedules by name (default: MEGATRON and the scenario's own), axes of their own,
    axes that are fixed, and stages of unequal numbers of layers.
    """

    schedules: tuple[str, ...] = ()
    vary: Mapping[str, Sequence[Any]] | None = None
    fix: Mapping[str, Any] | None = None
    uneven: bool = False


def read_wanted(schedules: str | None, vary: Sequence[str], fix: Sequence[str], uneven: bool = False) -> Wanted:
    """From flags: names split by commas, `key=[value, …]` and `key=value` lines.

    Raises:
        UserError: a line without `=`, or an axis that is no list of values.
    """
    axes = _given("--vary", vary, "parallel.zero=[0, 1, 2]")
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise UserError(fault("--vary", key, values, "expected a list of values, such as [0, 1, 2]"))
    names = tuple(name.strip() for name in (schedules or "").split(",") if name.strip())
    return Wanted(names, axes, _given("--fix", fix, "parallel.tp=8"), uneven)


def _given(flag: str, lines: Sequence[str], such_as: str) -> dict[str, Any]:
    for line in lines:
        if "=" not in line or not line.partition("=")[0].strip():
            raise UserError(f"{flag} {line}: expected key=value, such as {such_as}")
    return parsed(lines)


def share(text: str) -> float:
    """`5%` or `0.05`.

    Raises:
        UserError: neither.
    """
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UserError(fault("--memory-headroom", "", text, "expected a share, such as 5%")) from None


def training_space(
    table: Mapping[str, Any], scenario: TrainScenario, spec: ModelSpec, machines: Cluster, wanted: Wanted
) -> Space:
    """Every plan that divides on these GPUs: tp, cp, pp, ep and etp, micro-batch, schedule, recomputation.

    tp goes up to the GPUs of a node; dp is what is left. What the scenario says otherwise stays. Its own recomputation
    is tried beside none and full, its own schedule beside those of `wanted`.

    Raises:
        UserError: `wanted` says what there is not, or what no plan says.
    """
    gpus, layers = machines.n_gpus, spec.num_hidden_layers + 2 * scenario.parallel.embedding_as_layer
    batch = scenario.batch.global_
    names = tuple(dict.fromkeys(wanted.schedules or (*MEGATRON, scenario.schedule.name)))
    if unknown := [name for name in names if name not in SCHEDULES]:
        raise UserError(fault("--schedules", "", unknown[0], f"known: {', '.join(SCHEDULES)}"))
    uneven = wanted.uneven or layers % scenario.parallel.pp > 0
    axes = [
        Axis("parallel.tp", divisors(min(machines.gpus_per_node))),
        Axis("parallel.pp", tuple(pp for pp in divisors(gpus) if pp <= layers)),
        Axis("parallel.cp", divisors(gpus)),
        *([Axis("parallel.ep", _shared(spec.moe.n_routed_experts, gpus)),
           Axis("parallel.etp", divisors(min(machines.gpus_per_node)))] if spec.moe else []),
        Axis("batch.micro", divisors(batch)),
        Axis("schedule", tuple(_schedules(scenario, names, layers, uneven))),
        Axis("recompute", tuple(_recomputations(scenario))),
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
    return _as_wanted(Space(tuple(axes), tuple(rule for rule in rules if set(rule.keys) <= keys)), wanted, table)


def update_space(table: Mapping[str, Any], scenario: Scenario, machines: Cluster, wanted: Wanted) -> Space:
    """Ways of a weight update: bucket size, and the pipeline, or the method and how many GPUs are trainers.

    Raises:
        UserError: `wanted` says what there is not, or what no update says.
    """
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
        if update.inference.gpus is None and update.method != "colocated":
            steps = range(each, gpus, each) if gpus > each else divisors(gpus)[:-1]
            own = {update.trainer.gpus} if update.trainer is not None and update.trainer.gpus is not None else set()
            axes.append(Axis("update.trainer.gpus", tuple(sorted({*steps, *own}))))
    return _as_wanted(Space(tuple(axes)), wanted, table)


def divisors(number: int) -> tuple[int, ...]:
    """Ascending."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def _shared(one: int, other: int) -> tuple[int, ...]:
    return tuple(i for i in divisors(one) if other % i == 0)


def _ranks(at: Values, cp: int | None = None) -> int:
    """GPUs of one copy of the model."""
    return int(at["parallel.tp"] * at["parallel.pp"] * (cp or at["parallel.cp"]))


def _schedules(scenario: TrainScenario, names: Sequence[str], layers: int, uneven: bool) -> Iterable[dict[str, Any]]:
    """Tables of `schedule`: by name, and by chunks per rank where a schedule takes any."""
    own = scenario.schedule.model_dump(exclude_unset=True)
    several = {chunks for chunks in divisors(layers) if chunks > 1} | _powers(layers // 2 if uneven else 1)
    for name in names:
        given = {"group": own["group"]} if own.get("name") == name and "group" in own else {}
        if SCHEDULES[name].chunks is None:
            mine = {scenario.schedule.vpp or 1} if scenario.schedule.name == name else set()
            chunks = sorted(several | mine)
            yield from ({"name": name, "vpp": vpp, **given} for vpp in chunks)
        else:
            yield {"name": name, **given}


def _powers(most: int) -> set[int]:
    return {2**i for i in range(1, most.bit_length()) if 2**i <= most}


def _stages_fit(pp: int, schedule: Mapping[str, Any], layers: int, uneven: bool) -> bool:
    """Whether every stage has a layer, and all as many, unless they need not."""
    stages = SCHEDULES[schedule["name"]].stages(pp, schedule.get("vpp", 1))
    return stages <= layers and (uneven or layers % max(stages, 1) == 0)


def _recomputations(scenario: TrainScenario) -> Iterable[dict[str, Any]]:
    """None, the scenario's own, all."""
    own = scenario.recompute.model_dump(exclude_unset=True, mode="json")
    found = [{"mode": "none"}, own or {"mode": "none"}, {"mode": "full"}]
    return [one for i, one in enumerate(found) if one not in found[:i]]


def _as_wanted(space: Space, wanted: Wanted, table: Mapping[str, Any]) -> Space:
    """The space with a user's values in place of its own, and a user's axes before its own, so that rules see them.

    Values are checked by the schema first, as rules compute with them.
    """
    counted = {key for rule in space.rules for key in rule.keys} - {"schedule"}
    given: dict[str, tuple[Any, ...]] = {}
    for flag, axes in (("--vary", wanted.vary or {}), ("--fix", {k: (v,) for k, v in (wanted.fix or {}).items()})):
        for key, values in axes.items():
            _check_key(flag, key, [*given, *(axis.key for axis in space.axes)], table)
            if key in given:
                raise UserError(f"--fix {key}: --vary has it too")
            for value in values:
                _check_value(flag, key, value, table, counts=key in counted)
            given[key] = tuple({**_NAMED.get(key, {}), **value} if key in _NAMED else value for value in values)
    own = tuple(Axis(axis.key, given.pop(axis.key, axis.values)) for axis in space.axes)
    return replace(space, axes=(*(Axis(key, values) for key, values in given.items()), *own))


def _check_key(flag: str, key: str, others: Iterable[str], table: Mapping[str, Any]) -> None:
    """Raises a UserError for a key that is no part of a plan, that there is not, or that meets another axis."""
    if key.partition(".")[0] in _QUESTION:
        raise UserError(fault(flag, "", key, "is what is asked, not part of a plan: --set or --gpus"))
    check_key(table.get("kind", "weight_update"), key, flag, "")
    for other in others:
        if other.startswith(f"{key}.") or key.startswith(f"{other}."):
            allowed = f"meets the axis {other}, and one would undo the other: --vary or --fix {other} itself"
            raise UserError(fault(flag, "", key, allowed))


def _check_value(flag: str, key: str, value: Any, table: Mapping[str, Any], counts: bool) -> None:
    """Raises a UserError where the schema has no such value; what does not go with other keys, plans say themselves."""
    if counts and type(value) is not int:  # the schema would read "8", too
        raise UserError(fault(flag, key, value, "expected a whole number, such as 8"))
    if key == "schedule" and isinstance(value, Mapping) and value.get("name", "1f1b") not in SCHEDULES:
        raise unknown(flag, "schedule.name", str(value["name"]), SCHEDULES)
    if key == "parallel.zero" and value == 3:
        raise UserError(fault(flag, key, value, NO_ZERO_3))
    try:
        check_values(changed(table, {key: value}, flag), flag)
    except UserError as error:
        own = [
            line for line in error.faults if line.startswith((f"{flag}: {key} ", f"{flag}: {key}.", f"{flag}: {key}:"))
        ]
        if own:
            raise UserError(*own) from None
