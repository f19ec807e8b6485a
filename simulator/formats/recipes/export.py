"""From a training scenario to the recipe of another tool, which imports again as the same step.

Whatever is written is read again. What then differs and is part of the plan is refused, or is what the nearest plan
leaves out; machines, software and data stand in comments that `runcast plan import` reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import BaseModel

from ...base.errors import UserError, fault
from ...base.files import path_beside, toml_value
from ...models import ModelSpec
from ...scenario import check_train
from ...systems.keys import Values, unmet_needs
from ...systems.train_step.keys import NEEDS
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from . import to_fsdp, to_megatron, to_torchtitan
from .beside import KEYS, put_beside, write_beside
from .reading import parse_recipe
from .scenarios import flat, table_of
from .shapes import outline


@dataclass(frozen=True)
class Target:
    """A tool for which a plan is written: its name, that of its recipes' form, and a name that such a file has.

    `write` gives the lines of a recipe; a UserError with a line for each thing for which there is no nearest plan.
    `reasons` say by key why the tool does not do what a scenario says.
    """

    title: str
    form: str
    file: str
    write: Callable[[ResolvedTrain, ModelSpec], Sequence[str]]
    reasons: Mapping[str, str]


TARGETS: Mapping[str, Target] = {
    "megatron": Target("Megatron-LM", "megatron", "arguments.sh", to_megatron.write, to_megatron.REASONS),
    "torchtitan": Target("torchtitan", "torchtitan", "config.toml", to_torchtitan.write, to_torchtitan.REASONS),
    "fsdp": Target("Hugging Face's trainer", "trl", "config.yaml", to_fsdp.write, to_fsdp.REASONS),
}
"""By the name that `--to` takes."""


@dataclass(frozen=True)
class Exported:
    """Lines of a recipe, comments that stand before them, and a line for each key that they do not say.

    Only the nearest recipe leaves something unsaid: it is of another plan.
    """

    lines: tuple[str, ...]
    beside: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()

    def __str__(self) -> str:
        comments = [f"# another plan than asked for: {line}" for line in self.unsaid]
        return "\n".join([*comments, *self.beside, *self.lines])


def export_recipe(
    scenario: TrainScenario, to: str = "megatron", where: str = "scenario", *, nearest: bool = False
) -> Exported:
    """The recipe with which a tool trains as the scenario says; imported again it gives the same step.

    With `nearest`, that of the nearest plan that it can be told, where it has one: `unsaid` then names what is left
    out. A UserError if the scenario cannot be simulated, or if the tool cannot be told what it says; one line each.
    """
    check_target(to)
    target, asked = TARGETS[to], ResolvedTrain(scenario, where)
    lines = tuple(target.write(asked, _trained(asked)))
    beside = _machines(scenario)
    again = _read_again(target, lines, beside, asked)
    more = {key: value for key, value in _differ(scenario, again).items() if key in KEYS and value is not None}
    if more:
        with suppress(UserError):  # they may go with what is not said
            again = _read_again(target, lines, beside | more, asked)
    unsaid = tuple(_unsaid(target, asked, ResolvedTrain(again, where)))
    if unsaid and not nearest:
        raise UserError(
            *(f"{where}: {line}" for line in unsaid[:-1]), f"{where}: {unsaid[-1]} (--nearest leaves it out)"
        )
    return Exported(lines, tuple(write_beside(beside | more)), unsaid)


def check_step(scenario: TrainScenario, where: str = "scenario") -> None:
    """Raise UserError if the scenario cannot be predicted: of some, only the prices of their ops tell."""
    _ = ResolvedTrain(scenario, where).costs


def check_target(name: str) -> None:
    """Raise UserError if no plan is written for a tool of this name; one line."""
    if name not in TARGETS:
        raise UserError(fault("--to", "", name, f"expected one of {', '.join(TARGETS)}"))


def _trained(asked: ResolvedTrain) -> ModelSpec:
    """The model with the layers of multi-token prediction that are trained."""
    asked.check()  # whose faults come first
    return asked.spec if asked.scenario.model.mtp else replace(asked.spec, num_nextn_predict_layers=0)


def _machines(scenario: TrainScenario) -> dict[str, Any]:
    """What decides how a recipe is read: how many nodes, and the software stack, whose defaults fill blanks."""
    by_name = isinstance(scenario.cluster, str)
    return {
        **({} if by_name else {"cluster": scenario.cluster}),
        **({"nodes": scenario.nodes} if scenario.nodes > 1 else {}),
        **({"stack": scenario.stack} if scenario.stack != "generic" else {}),
    }


def _read_again(target: Target, lines: Sequence[str], beside: Mapping[str, Any], asked: ResolvedTrain) -> TrainScenario:
    """The scenario that a recipe says; a UserError where its reader refuses what no such tool runs."""
    scenario = asked.scenario
    text, machines = "\n".join([*write_beside(beside), *lines]), scenario.cluster
    if isinstance(machines, str) and (file := path_beside(machines, asked.where)).exists():
        machines = str(file)
    try:
        recipe = parse_recipe(text, target.file, machines, scenario.nodes, target.form)
        return check_train(table_of(recipe, scenario.cluster, scenario.nodes), asked.where)
    except UserError as error:
        reasons = (line.partition(": ")[2] for line in error.faults)
        raise UserError(*(f"{asked.where}: {target.title} refuses {line}" for line in reasons)) from None


def _differ(asked: TrainScenario, again: TrainScenario) -> dict[str, Any]:
    """The keys in which two scenarios differ, with what the first one says."""
    there = flat(again)
    return {
        key: value
        for key, value in flat(asked).items()
        if value != there.get(key) and not key.startswith(("name", "notes"))
    }


def _unsaid(target: Target, asked: ResolvedTrain, again: ResolvedTrain) -> Iterator[str]:
    """A line for each key that makes the step another one than the recipe's."""
    if _essence(asked) == _essence(again):
        return
    if outline(asked.spec) != outline(again.spec) or asked.spec.vocab_size != again.spec.vocab_size:
        yield f"model: {asked.spec.name} is not what {target.title} makes of it"
    values = {key: value for key, value in _differ(asked.scenario, again.scenario).items() if key not in KEYS}
    idle = {need.key for need in unmet_needs(Values(_nested(flat(asked.scenario)), TrainScenario), NEEDS)}
    found = [key for key in values if key not in (*idle, "model.preset", "model.config", "model.overrides")]
    for key in [key for key in found if _matters(key, asked, again)] or found:
        told = "" if values[key] is None else f" = {toml_value(values[key])}"
        silent = "" if _is_given(asked.scenario, key) else " by default"
        yield f"{key}{told}{silent}: {target.reasons.get(key, f'{target.title} has nothing that says it')}"


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    return put_beside({}, {key: value for key, value in values.items() if value is not None})


def _is_given(scenario: TrainScenario, key: str) -> bool:
    """Whether the scenario, or its stack, gives a key."""
    record: Any = scenario
    for part in key.split("."):
        if _field(record, part) not in record.model_fields_set:
            return False
        record = getattr(record, _field(record, part))
    return True


_SPLIT = ("parallel.layers", "parallel.embedding_as_layer")
"""Keys that say one thing in two ways."""


def _matters(key: str, asked: ResolvedTrain, again: ResolvedTrain) -> bool:
    """Whether the step is another one with the other scenario's value of a key, or none."""
    changed = asked.scenario
    for one in _SPLIT if key in _SPLIT else (key,):
        changed = _take(one, changed, again.scenario)
    try:
        return _essence(ResolvedTrain(changed, asked.where, asked.memo)) != _essence(asked)
    except UserError:
        return True


def _take(key: str, scenario: TrainScenario, other: TrainScenario) -> TrainScenario:
    """The scenario with the other one's value of a key."""
    name, _, inner = key.partition(".")
    value: Any = getattr(other, name)
    if inner:
        own: BaseModel = getattr(scenario, name)
        value = own.model_copy(update={_field(own, inner): getattr(value, _field(own, inner))})
    return scenario.model_copy(update={name: value})


def _field(record: BaseModel, key: str) -> str:
    return key if key in type(record).model_fields else f"{key}_"


def _essence(resolved: ResolvedTrain) -> tuple[object, ...]:
    """All on which a step's time and memory depend, beside the machines: equal ones have equal predictions."""
    scenario = resolved.scenario
    kept = [field.name for field in fields(resolved.plan) if field.name not in ("spec", "dims")]
    plans = [[getattr(plan, name) for name in kept] for plan in resolved.plans]
    dims = replace(resolved.dims, shard=resolved.dims.size("dp_shard"))
    model = outline(resolved.padded_spec), resolved.padded_spec.vocab_size
    types = scenario.precision.model_copy(update={"reduce": None})  # plans have it
    software = scenario.stack, resolved.profile_names, scenario.attention, scenario.memory, resolved.choice
    return (model, dims, plans, types, software, scenario.slow, resolved.packing, scenario.overlap.fusion)
