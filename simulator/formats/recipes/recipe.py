"""Recipes of other tools as scenarios: read from a file, and written as a scenario file.

Where no preset has the model's shape, its config goes into a file beside the scenario.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import UserError, did_you_mean, fault
from ...base.files import read_text, read_toml, to_toml, write_atomic
from ...hardware import Spec, cluster
from ...scenario import check_train
from ...systems.train_step.scenario import TrainScenario
from .arguments import Argument, Arguments, Machine, Names, names_of
from .forms import read_arguments, read_keys, read_sections, sort_settings
from .megatron import read_megatron
from .overrides import read_overrides
from .reinforcement import check_update
from .shell import Variables
from .slime import read_slime
from .sources import include_sourced, missing_sources
from .torchtitan import MARKS, read_torchtitan
from .torchtitan_registry import Registry, is_registry
from .trainers import TRAINERS, Additions, read_trainer, recognize
from .verl import PREFIX, read_verl

_REINFORCED = {"verl": read_verl, "slime": read_slime}
FORMS = ("auto", "megatron", "torchtitan", *TRAINERS, *_REINFORCED)
"""What `--format` can be."""


@dataclass(frozen=True)
class Recipe:
    """A scenario from the file of another tool.

    `table` is the scenario as plain values, without the model where that is `config`: keys of a Hugging Face config
    that go into a file of their own. Every argument of the file is in `read`, `untimed` (no part of a step's time),
    `not_modelled` (with a reason) or `unknown` (with near misses); `assumed` is what the file left open. `update` is
    the scenario of a weight update that a recipe of reinforcement learning says beside the step, without its model.
    """

    form: str
    table: Mapping[str, Any]
    config: Mapping[str, Any] | None
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    untimed: tuple[str, ...]
    not_modelled: tuple[str, ...]
    unknown: tuple[str, ...]
    update: Mapping[str, Any] | None = None


def read_recipe(
    source: Path | str, cluster_name: str, nodes: int = 1, form: str = "auto", additions: Additions | None = None
) -> Recipe:
    """Read another tool's file as a training step on these machines.

    A UserError if the file cannot be read, says what does not go together, or does not fit the machines; a line each.
    """
    text = include_sourced(read_text(Path(source), "arguments or a config"), Path(source).parent)
    return parse_recipe(text, str(source), cluster_name, nodes, form, additions)


def parse_recipe(
    text: str, where: str, machines: Spec, nodes: int = 1, form: str = "auto", additions: Additions | None = None
) -> Recipe:
    """Read the text of another tool's file, which stands in `where`, as `read_recipe` does."""
    if form not in FORMS:
        raise UserError(fault("--format", "", form, f"expected one of {', '.join(FORMS)}"))
    name = machines if isinstance(machines, str) else str(machines.get("base", "a cluster"))
    machine = Machine(name, nodes, cluster(machines, nodes, "--cluster").n_gpus // nodes)
    additions = additions or Additions()
    if where.endswith(".py"):
        return _read_python(form, text, where, machine, additions)
    if additions.recipe:
        raise UserError("--recipe: goes with a Python file of recipes")
    if form == "auto":
        form = recognize(text) or _recognize_reinforced(text) or form
    if form in TRAINERS:
        if additions.settings:
            raise UserError("--set: goes with recipes of megatron, torchtitan, verl and slime; change the file instead")
        found = read_trainer(form, text, where, machine, additions)
        return _recipe(form, found.table, found.config, found.account)
    if form in _REINFORCED:
        return _read_reinforced(form, text, where, machine, additions)
    return _read_arguments(form, text, where, machine, additions)


def _read_arguments(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """Arguments of Megatron-LM, or a config of torchtitan."""
    if flags := additions.flags():
        raise UserError(f"{flags[0]}: goes with recipes of {', '.join(TRAINERS)}, which leave it open")
    keys = None if form == "megatron" else read_keys(text, where)
    if form == "auto":
        marked = any(MARKS.fullmatch(key.spelled.rpartition(".")[2]) for key in keys or ())
        form = "torchtitan" if marked else "megatron"
    if form == "torchtitan" and keys is None:
        raise UserError(f"{where}: is neither TOML nor JSON; expected a torchtitan config or a table of FSDP settings")
    args = _gather(text, where, keys if form == "torchtitan" else None, names_of(form), additions.settings)
    table, config = read_torchtitan(args, machine) if form == "torchtitan" else read_megatron(args, machine)
    args.check()
    return _recipe(form, table, config, args.account())


def _read_python(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A recipe that is a function of a Python file."""
    if form not in ("auto", "torchtitan") or not is_registry(text):
        raise UserError(f"{where}: of Python files only torchtitan's config_registry.py are read")
    if flags := [flag for flag in additions.flags() if flag != "--model"]:
        raise UserError(f"{flags[0]}: goes with recipes of {', '.join(TRAINERS)}, which leave it open")
    registry, names = Registry(text, where, additions.recipe), names_of("torchtitan")
    variables, given = sort_settings(additions.settings, names)
    if variables:
        raise UserError(f"--set {next(iter(variables))}: no key of torchtitan (in small letters)")
    args = Arguments([*read_sections(registry.table()), *given], names, where)
    args.not_modelled += registry.notes
    table, config = read_torchtitan(args, machine, registry, additions.model)
    args.check()
    return _recipe("torchtitan", table, config, args.account())


_OF_SLIME = re.compile(r"--(actor-num-gpus-per-node|rollout-num-gpus(-per-engine)?|rollout-max-response-len)\b")


def _recognize_reinforced(text: str) -> str:
    """The form of a recipe of reinforcement learning by keys that it cannot do without; empty where it is none."""
    return "verl" if re.search(rf"\b{PREFIX}[.:]", text) else "slime" if _OF_SLIME.search(text) else ""


def _read_reinforced(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A recipe of reinforcement learning: the step of the actor, and the update of the engines' weights."""
    if additions.accelerate:
        raise UserError(f"--accelerate: goes with recipes of llamafactory, not with {form}")
    args = _gather(text, where, None, names_of(form), additions.settings, PREFIX if form == "verl" else "")
    table, config, update = _REINFORCED[form](args, machine, additions)
    args.check()
    if update is not None:
        try:
            check_update(update, "update", machine.cluster, table["model"] or {"config": dict(config or {})})
        except UserError as error:
            args.assumed.append(f"no weight update: {str(error).splitlines()[0].removeprefix('update: ')}")
            update = None
    return _recipe(form, table, config, args.account(), update)


def _recipe(
    form: str,
    table: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    account: Mapping[str, tuple[str, ...]],
    update: Mapping[str, Any] | None = None,
) -> Recipe:
    kinds: dict[str, Any] = dict(account)
    return Recipe(form, table, config, update=update, **kinds)


def _gather(
    text: str, where: str, keys: list[Argument] | None, names: Names, settings: Mapping[str, str], prefix: str = ""
) -> Arguments:
    """The arguments of a text, or its `keys` where it is no script, with those that are set.

    With a `prefix` they are overrides of keys, of which those of that section go without its name.
    """
    fixed, given = sort_settings(settings, names)
    variables = Variables(fixed)
    if prefix:
        found = read_overrides(text, where, variables, prefix)
    else:
        found = read_arguments(text, where, variables) if keys is None else keys
    _check_variables(fixed, variables, where)
    args = Arguments([*found, *given], names, where)
    args.assumed += [f"{name} = {value}: from --set" for name, value in fixed.items()]
    args.assumed += [f"{name} is not beside the file: what it says is not read" for name in missing_sources(text)]
    if undecided := ", ".join(f'"{head}"' for head in variables.undecided):
        args.assumed.append(f"all branches of {undecided} are read, as only a shell can tell")
    return args


def parse_settings(lines: Sequence[str]) -> dict[str, str]:
    """The settings of `--set NAME=VALUE` by name; a UserError for a line without one."""
    pairs = [line.partition("=") for line in lines]
    if wrong := [name for name, equals, _ in pairs if not (name.strip() and equals)]:
        raise UserError(fault("--set", "", wrong[0], "expected NAME=VALUE, such as TP=8 or seq-length=4096"))
    return {name.strip().removeprefix("--"): value for name, _, value in pairs}


def _check_variables(fixed: Mapping[str, str], variables: Variables, where: str) -> None:
    """Raise UserError for a variable that the file never mentions; one line."""
    if unused := [name for name in fixed if name not in variables.mentioned]:
        known = did_you_mean(unused[0], sorted({*variables.mentioned, *names_of("megatron").valued}))
        wrong = f"--set {unused[0]}: neither a variable of {where} nor an argument (in small letters)"
        raise UserError("; ".join(filter(None, (wrong, known))))


def import_recipe(
    source: Path | str,
    out: Path | str,
    cluster_name: str,
    nodes: int = 1,
    form: str = "auto",
    replace: bool = False,
    additions: Additions | None = None,
) -> tuple[Recipe, list[Path]]:
    """Read a recipe and write the scenario that it says; a model that is no preset goes into a config beside it.

    A UserError as `read_recipe`, or if the files are there already or cannot be written; nothing is written then.
    """
    out = Path(out)
    if out.suffix != ".toml":
        raise UserError(fault("--out", "", str(out), "expected a name that ends in .toml"))
    recipe = read_recipe(source, cluster_name, nodes, form, additions)
    config = out.with_name(f"{out.stem}-model.json")
    update = out.with_name(f"{out.stem}-update.toml")
    files = ([config] if recipe.config is not None else []) + [out] + ([update] if recipe.update is not None else [])
    for file in files:
        if file.exists() and not replace:
            raise UserError(f"{file}: is there already; give another name with --out, or --force")
    table = scenario_table(recipe, out.stem, cluster_name, nodes, config.name)
    texts = {out: scenario_text(recipe, str(source), table)}
    if recipe.update is not None:
        texts[update] = _update_text(recipe, str(source), update.stem, cluster_name, table["model"])
    if recipe.config is not None:
        texts = {config: json.dumps(recipe.config, indent=2) + "\n"} | texts
    _write(texts)
    return recipe, files


def _write(texts: Mapping[Path, str]) -> None:
    """Write all of them, or none."""
    written: list[Path] = []
    try:
        for file, text in texts.items():
            write_atomic(file, text.encode())
            written.append(file)
    except UserError:
        for file in written:
            file.unlink(missing_ok=True)
        raise


def _update_text(recipe: Recipe, source: str, name: str, cluster_name: str, model: Mapping[str, Any]) -> str:
    """The text of the scenario of a weight update, of the same model as the step."""
    table = check_update(recipe.update or {}, name, cluster_name, recipe.table["model"] or {"config": recipe.config})
    comment = (
        f"Imported by `runcast plan import` from {json.dumps(Path(source).name)} ({recipe.form}): its weight update."
    )
    return to_toml(table | {"model": dict(model)}, [comment])


def scenario_table(
    recipe: Recipe, name: str, cluster_name: str, nodes: int, config: str = "config.json"
) -> dict[str, Any]:
    """The recipe as the table of a scenario, checked; what is as by default is left out.

    An empty table stays where there is none by default, such as that of adapters.
    """
    model = dict(recipe.table["model"]) or {"config": config}
    first = {"name": name, "kind": "train_step", "cluster": cluster_name, "nodes": nodes}
    table = first | dict(recipe.table) | {"model": model}
    scenario = check_train(table, name)
    said: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    optional = {key for key, field in TrainScenario.model_fields.items() if field.default is None}
    return {key: value for key, value in (first | said).items() if value != {} or key in optional}


def scenario_text(recipe: Recipe, source: str, table: Mapping[str, Any]) -> str:
    """The text of the scenario file; equal recipes give equal text."""
    comments = [
        f"Imported by `runcast plan import` from {json.dumps(Path(source).name)} ({recipe.form}).",
        *(f"Assumed: {line}" for line in recipe.assumed),
        *(f"Not modelled: {line}" for line in recipe.not_modelled),
        *(f"Unknown: {line}" for line in recipe.unknown),
    ]
    printable = ("".join(letter if letter.isprintable() else " " for letter in line) for line in comments)
    return to_toml(table, (" ".join(line.split()) for line in printable))


def load_training(path: Path | str) -> TrainScenario:
    """The training scenario in a file.

    A UserError if the file cannot be read, is not TOML, or says something that is not allowed; a line each.
    """
    table = read_toml(Path(path))
    if table.get("kind") != "train_step":
        raise UserError(fault(str(path), "kind", table.get("kind"), "expected 'train_step'"))
    return check_train(table, str(path))
