"""Recipes of other tools as scenario files.

Where no preset has the model's shape, its config goes into a file beside the scenario.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import to_toml, write_atomic
from ...hardware import Spec
from ...scenario import check_train, open_table
from ...systems.train_step.scenario import TrainScenario
from .additions import Additions
from .beside import put_beside
from .reading import read_recipe
from .recipe import Recipe
from .reinforcement import check_update, model_that_travels


def import_recipe(
    source: Path | str,
    out: Path | str,
    cluster_name: str | None = None,
    nodes: int | None = None,
    form: str = "auto",
    replace: bool = False,
    additions: Additions | None = None,
) -> tuple[Recipe, list[Path]]:
    """Read a recipe and write the scenario that it says; a model that is no preset goes into a config beside it.

    Without a cluster and a number of nodes they are what comments of the recipe say, or one node.
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
    machines, nodes = recipe.beside["cluster"], recipe.beside["nodes"]
    table = scenario_table(recipe, out.stem, machines, nodes, config.name)
    texts = {out: scenario_text(recipe, str(source), table)}
    if recipe.update is not None:
        texts[update] = _update_text(recipe, str(source), update.stem, machines, table["model"])
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


def _update_text(recipe: Recipe, source: str, name: str, cluster_name: Spec, model: Mapping[str, Any]) -> str:
    """The text of the scenario of a weight update, of the same model as the step."""
    table = check_update(recipe.update or {}, name, cluster_name, recipe.table["model"] or {"config": recipe.config})
    comment = (
        f"Imported by `runcast plan import` from {json.dumps(Path(source).name)} ({recipe.form}): its weight update."
    )
    return to_toml(table | {"model": model_that_travels(model, table["update"])}, [comment])


def scenario_table(
    recipe: Recipe, name: str, cluster_name: Spec, nodes: int, config: str = "config.json"
) -> dict[str, Any]:
    """The recipe as the table of a scenario, checked; what is as by default, also its stack's, is left out.

    An empty table stays where there is none by default, such as that of adapters.
    """
    table = table_of(recipe, cluster_name, nodes, {"config": config})
    scenario = check_train(table | {"name": name}, name)
    first = {"name": name, "kind": "train_step", "cluster": cluster_name, "nodes": nodes}
    said: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    said["memory"] = table.get("memory", {})  # all else is the stack's
    optional = {key for key, field in TrainScenario.model_fields.items() if field.default is None}
    found = {key: value for key, value in (first | said).items() if value != {} or key in optional}
    asked, filled = flat(scenario), flat(check_train(found, name))
    return put_beside(found, {key: value for key, value in asked.items() if value not in (filled[key], None)})


def table_of(recipe: Recipe, cluster_name: Spec, nodes: int, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The recipe as the table of a scenario on these machines; `config` takes the place of the model's keys."""
    model = dict(recipe.table["model"]) or config or {"config": dict(recipe.config or {})}
    table = {"kind": "train_step"} | dict(recipe.table) | {"model": model}
    return put_beside(table, {**recipe.beside, "cluster": cluster_name, "nodes": nodes})


def flat(scenario: TrainScenario) -> dict[str, Any]:
    """Every key of a scenario and of its tables with its value as plain data."""
    found: dict[str, Any] = {}
    for key, value in scenario.model_dump(mode="json", by_alias=True).items():
        whole = key in _WHOLE or not isinstance(value, Mapping)
        found |= {key: value} if whole else {f"{key}.{inner}": item for inner, item in value.items()}
    return found


_WHOLE = ("cluster", "towers", "run", "lora", "collectives", "memory")
"""Tables that count as one value: they are there or not."""


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


def load_training(path: Path | str, changes: Sequence[str] = ()) -> TrainScenario:
    """The training scenario in a file, or the shipped one of this name, with `key=value` changes.

    A UserError if the file cannot be read, is not TOML, or says something that is not allowed; a line each.
    """
    table, where = open_table(path, changes)
    if table.get("kind") != "train_step":
        raise UserError(fault(where, "kind", table.get("kind"), "expected 'train_step'"))
    return check_train(table, where)
