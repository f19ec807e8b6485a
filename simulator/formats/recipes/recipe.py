"""Recipes of other tools as scenarios: read from a file, and written as a scenario file.

Where no preset has the model's shape, its config goes into a file beside the scenario.
"""

import json
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
from .shell import Variables, include_sourced, missing_sources
from .torchtitan import MARKS, read_torchtitan
from .torchtitan_registry import Registry, is_registry
from .trainers import TRAINERS, Additions, read_trainer, recognize

FORMS = ("auto", "megatron", "torchtitan", *TRAINERS)
"""What `--format` can be."""


@dataclass(frozen=True)
class Recipe:
    """A scenario from the file of another tool.

    `table` is the scenario as plain values, without the model where that is `config`: keys of a Hugging Face config
    that go into a file of their own. Every argument of the file is in `read`, `untimed` (no part of a step's time),
    `not_modelled` (with a reason) or `unknown` (with near misses); `assumed` is what the file left open.
    """

    form: str
    table: Mapping[str, Any]
    config: Mapping[str, Any] | None
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    untimed: tuple[str, ...]
    not_modelled: tuple[str, ...]
    unknown: tuple[str, ...]


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
    form = recognize(text) or form if form == "auto" else form
    additions = additions or Additions()
    if form in TRAINERS:
        if additions.settings:
            raise UserError("--set: goes with recipes of megatron and torchtitan; change the file instead")
        found = read_trainer(form, text, where, machine, additions)
        return Recipe(form, found.table, found.config, **found.account)
    registry = _open_registry(form, text, where, additions)
    if flags := [flag for flag in additions.flags() if registry is None or flag != "--model"]:
        raise UserError(f"{flags[0]}: goes with recipes of {', '.join(TRAINERS)}, which leave it open")
    if registry is not None:
        return _read_registry(registry, machine, additions)
    keys = None if form == "megatron" else read_keys(text, where)
    if form == "auto":
        marked = any(MARKS.fullmatch(key.spelled.rpartition(".")[2]) for key in keys or ())
        form = "torchtitan" if marked else "megatron"
    if form == "torchtitan" and keys is None:
        raise UserError(f"{where}: is neither TOML nor JSON; expected a torchtitan config or a table of FSDP settings")
    args = _gather(text, where, keys if form == "torchtitan" else None, names_of(form), additions.settings)
    table, config = read_torchtitan(args, machine) if form == "torchtitan" else read_megatron(args, machine)
    args.check()
    return Recipe(form, table, config, **args.account())


def _open_registry(form: str, text: str, where: str, additions: Additions) -> Registry | None:
    """The recipe of a Python file; None for another file."""
    if not where.endswith(".py"):
        if additions.recipe:
            raise UserError("--recipe: goes with a Python file of recipes")
        return None
    if form not in ("auto", "torchtitan") or not is_registry(text):
        raise UserError(f"{where}: of Python files only torchtitan's config_registry.py are read")
    return Registry(text, where, additions.recipe)


def _read_registry(registry: Registry, machine: Machine, additions: Additions) -> Recipe:
    names = names_of("torchtitan")
    variables, given = sort_settings(additions.settings, names)
    if variables:
        raise UserError(f"--set {next(iter(variables))}: no key of torchtitan (in small letters)")
    args = Arguments([*read_sections(registry.table()), *given], names, registry.where)
    args.not_modelled += registry.notes
    table, config = read_torchtitan(args, machine, registry, additions.model)
    args.check()
    return Recipe("torchtitan", table, config, **args.account())


def _gather(text: str, where: str, keys: list[Argument] | None, names: Names, settings: Mapping[str, str]) -> Arguments:
    """The arguments of a text, or its `keys` where it is no script, with those that are set."""
    fixed, given = sort_settings(settings, names)
    variables = Variables(fixed)
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
    files = ([config] if recipe.config is not None else []) + [out]
    for file in files:
        if file.exists() and not replace:
            raise UserError(f"{file}: is there already; give another name with --out, or --force")
    text = scenario_text(recipe, str(source), scenario_table(recipe, out.stem, cluster_name, nodes, config.name))
    if recipe.config is not None:
        write_atomic(config, (json.dumps(recipe.config, indent=2) + "\n").encode())
    try:
        write_atomic(out, text.encode())
    except UserError:
        if recipe.config is not None:
            config.unlink(missing_ok=True)
        raise
    return recipe, files


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
