"""Recipes from and to disk: a scenario file, and the config beside it where no preset has the model's shape."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from ...base.errors import UserError, fault
from ...base.files import read_text, read_toml, write_atomic
from ...base.toml import to_toml
from ...hardware import cluster
from ...scenario import check_train
from ...systems.train_step.scenario import TrainScenario
from .config import holds_torchtitan
from .megatron import read_megatron
from .recipe import Machine, Notes, Recipe
from .torchtitan import read_torchtitan

Form = Literal["auto", "megatron", "torchtitan"]


def read_recipe(source: Path | str, cluster_name: str, nodes: int = 1, form: str = "auto") -> Recipe:
    """What the file of another tool says of a training step on these machines.

    Raises:
        UserError: the file cannot be read, says what does not go together, or does not fit the machines; a line each.
    """
    where = str(source)
    if form not in get_args(Form):
        raise UserError(fault("--format", "", form, f"expected one of {', '.join(get_args(Form))}"))
    machines = cluster(cluster_name, nodes, "--cluster")
    machine = Machine(cluster_name, nodes, machines.n_gpus // nodes)
    text = read_text(Path(source), "arguments or a config")
    titan = form == "torchtitan" or (form == "auto" and holds_torchtitan(text))
    found = (read_torchtitan if titan else read_megatron)(text, where, machine)
    if isinstance(found, Notes):
        raise UserError(*dict.fromkeys(found.faults))
    return found


def import_recipe(
    source: Path | str,
    out: Path | str,
    cluster_name: str,
    nodes: int = 1,
    form: str = "auto",
    replace: bool = False,
) -> tuple[Recipe, list[Path]]:
    """Read a recipe and write the scenario that it says; a model that is no preset goes into a config beside it.

    Raises:
        UserError: as `read_recipe`, or the files are there already or cannot be written; nothing is written then.
    """
    out = Path(out)
    if out.suffix != ".toml":
        raise UserError(fault("--out", "", str(out), "expected a name that ends in .toml"))
    recipe = read_recipe(source, cluster_name, nodes, form)
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
    """The recipe as the table of a scenario, checked; what is as by default is left out."""
    model = dict(recipe.table["model"]) or {"config": config}
    first = {"name": name, "kind": "train_step", "cluster": cluster_name, "nodes": nodes}
    table = first | dict(recipe.table) | {"model": model}
    scenario = check_train(table, name)
    said: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {key: value for key, value in (first | said).items() if value != {}}


def scenario_text(recipe: Recipe, source: str, table: Mapping[str, Any]) -> str:
    """The text of the scenario file; equal recipes give equal text."""
    comments = [
        f"Imported by `runcast plan import` from {json.dumps(Path(source).name)} ({recipe.form}).",
        *(f"Assumed: {line}" for line in recipe.assumed),
        *(f"Not modelled: {line}" for line in recipe.not_modelled),
        *(f"Unknown: {line}" for line in recipe.unknown),
    ]
    return to_toml(table, map(_comment, comments))


def _comment(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def load_training(path: Path | str) -> TrainScenario:
    """The training scenario in a file.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed; a line each.
    """
    table = read_toml(Path(path))
    if table.get("kind") != "train_step":
        raise UserError(fault(str(path), "kind", table.get("kind"), "expected 'train_step'"))
    return check_train(table, str(path))
