"""Logs of training as runs on a base stack: the step that a log tells, and the scenario that it is a step of.

The scenario stands beside the log, or follows from arguments: of a recipe beside it, or those that the log prints.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...simulator.answers.validate.steps import TOKENS, flop_fault, full_name, level_of, time_fault, tokens_fault
from ...simulator.base.errors import UserError, fault
from ...simulator.base.files import MOST_SETTINGS, read_text, read_toml
from ...simulator.base.units import format_count, format_seconds
from ...simulator.formats.logs import Log, read_log
from ...simulator.formats.recipes import Recipe, parse_recipe
from ...simulator.hardware import cluster
from ...simulator.models import from_hf_config, preset
from ...simulator.scenario import check_train
from ...simulator.systems.train_step.resolve import ResolvedTrain

SUFFIXES = (".log", ".txt", ".out", ".err", ".json")
"""How names of logs end, packed with gzip or not."""
RECIPES = (".toml", ".sh", ".yaml", ".yml", ".json")
"""How the name of what stands beside a log ends, the first first: .toml is a scenario or a config of torchtitan."""


@dataclass(frozen=True)
class LoggedStep:
    """A log with the training step that it is of, and in words what it was read as, with a line for each doubt."""

    log: Log
    resolved: ResolvedTrain
    read: str

    @property
    def said(self) -> str:
        """The time, as a fault names it."""
        return f"a step takes {format_seconds(self.log.step_s)}"


def is_log(path: Path) -> bool:
    """Whether a file is read as a log, by its name; all others are tables."""
    return path.name.removesuffix(".gz").endswith(SUFFIXES)


def read_logged_step(path: Path, base: str, cluster_name: str | None) -> LoggedStep:
    """The typical step of a log on a base stack; `cluster_name` is where recipes ran.

    Raises:
        UserError: the log tells no time of a step, or nothing of how it ran; what it tells contradicts what stands
            beside it, or cannot be.
    """
    log = read_log(path, read_text(path, "a log of training"), or_else=", or runs as comma-separated CSV (NAME.csv)")
    resolved, source, doubts = _scenario_of(log, base, cluster_name)
    if faults := list(_faults(log, resolved)):
        raise UserError(*(f"{path}: {line}" for line in faults))
    step = f"{format_seconds(log.step_s)} a step (median)"
    read = f"{path}: {log.format.software}, {_extent(log)}: {step}; set up by {source}"
    return LoggedStep(log, resolved, "\n    ".join([read, *doubts]))


def _extent(log: Log) -> str:
    """How many steps of a log were read, and which were not, in words."""
    count, notes = len(log.steps_s), log.choice if log.warm_up else log.notes
    each = " of each run" if log.runs > 1 else ""
    skipped = f", the first {log.warm_up}{each} skipped as warm-up" if log.warm_up else ""
    return f"{format_count(count, 'step')}{skipped}" + f" ({'; '.join(notes)})" * bool(notes)


def _scenario_of(log: Log, base: str, cluster_name: str | None) -> tuple[ResolvedTrain, str, list[str]]:
    """The training step of a log, where it stands, and what of a recipe it lacks."""
    beside = _setup_file(log.path)
    if beside is not None and beside.suffix == ".toml" and "kind" in (table := read_toml(beside)):
        where = str(beside)
        if table["kind"] != "train_step":
            raise UserError(fault(where, "kind", table["kind"], "expected 'train_step'"))
        return _resolved(table, base, where), where, []
    if beside is not None:
        text, where = read_text(beside, "arguments or a config", MOST_SETTINGS), str(beside)
    elif log.arguments is not None:
        text, where = log.arguments, str(log.path)
    else:
        names = ", ".join(_stem(log.path) + suffix for suffix in RECIPES[:3])
        wanted = f"{names} beside it: a scenario, a config of torchtitan, or arguments of Megatron-LM"
        raise UserError(f"{log.path}: does not say how it was set up; expected {wanted}")
    table, recipe = _imported(log, text, where, cluster_name)
    doubts = [f"not modelled: {line}" for line in recipe.not_modelled]
    doubts += [f"unknown: {line}" for line in recipe.unknown]
    return _resolved(table, base, where), where if beside else "its own arguments", doubts


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[0]


def _setup_file(path: Path) -> Path | None:
    places = (path.with_name(_stem(path) + suffix) for suffix in RECIPES)
    return next((place for place in places if place.is_file() and place != path), None)


def _imported(log: Log, text: str, where: str, cluster_name: str | None) -> tuple[dict[str, Any], Recipe]:
    """(the scenario of a recipe on as many GPUs as the log says, the recipe)."""
    machines, nodes, gpus = _machines(log, where, cluster_name)
    recipe = parse_recipe(text, where, machines, nodes)
    model = dict(recipe.table["model"]) or {"config": dict(recipe.config or {})}
    spec = preset(model["preset"]) if "preset" in model else from_hf_config(model["config"], where)
    batch, parallel = recipe.table["batch"], recipe.table["parallel"]
    replicas = gpus / (parallel["tp"] * parallel["cp"] * parallel["pp"])
    level = level_of(batch["global"] / (batch["micro"] * replicas), spec.num_hidden_layers, parallel["zero"])
    first = {"name": log.path.name, "kind": "train_step", "cluster": machines, "nodes": nodes, "level": level}
    return first | dict(recipe.table) | {"model": model}, recipe


def _machines(log: Log, where: str, cluster_name: str | None) -> tuple[str | dict[str, Any], int, int]:
    """(the cluster, its nodes, its GPUs) of as many GPUs as the log says; some of a node's where these are fewer."""
    scenario = f"the scenario {_stem(log.path)}.toml (runcast plan import)"
    if cluster_name is None:
        raise UserError(f"{where}: does not say on which machines it ran; expected --cluster, or {scenario}")
    gpus, each = log.facts.get("world_size"), cluster(cluster_name, 1, "--cluster").n_gpus
    if gpus is None:
        raise UserError(f"{log.path}: does not say on how many GPUs it ran; expected {scenario}")
    if gpus < each:
        return {"base": cluster_name, "gpus_per_node": gpus}, 1, gpus
    if gpus % each:
        allowed = f"expected a multiple of the {each} GPUs of a node of {cluster_name}, or {scenario}"
        raise UserError(fault(str(log.path), "world_size", gpus, allowed))
    return cluster_name, gpus // each, gpus


def _resolved(table: Mapping[str, Any], base: str, where: str) -> ResolvedTrain:
    """The table of a scenario on the base stack; a UserError if it is none, or cannot be."""
    resolved = ResolvedTrain(check_train({**table, "stack": full_name(base)}, where), where)
    _ = resolved.plan
    return resolved


def _faults(log: Log, resolved: ResolvedTrain) -> Iterator[str]:
    """What a log tells that is not of this step, or cannot be."""
    dims, batch = resolved.dims, resolved.scenario.batch
    sizes = {
        "world_size": dims.world_size, "tp": dims.tp, "cp": dims.cp, "pp": dims.pp, "ep": dims.ep,
        "vpp": resolved.derived["schedule.vpp"], "layers": resolved.spec.num_hidden_layers,
        "global_batch": batch.global_, "micro_batch": batch.micro, "seq_len": batch.seq_len,
        "accumulation": batch.global_ // (batch.micro * dims.dp), "precision": resolved.gemm_type,
    }  # fmt: skip
    differing = {name: size for name, size in sizes.items() if log.facts.get(name, size) != size}
    yield from (
        f"{name} = {_text_of(log.facts[name])}: {resolved.where} says {size}" for name, size in differing.items()
    )
    if differing:
        return
    if wrong := time_fault(resolved, log.step_s):
        yield f"a step of {format_seconds(log.step_s)} {wrong}"
        return
    tokens = log.facts.get(TOKENS)
    if tokens is not None and (wrong := tokens_fault(resolved, log.step_s, tokens)):
        yield f"{TOKENS} = {tokens:g}: {wrong}"
    rate = log.facts.get("flop_per_s_per_gpu")
    if rate is not None and (wrong := flop_fault(resolved, log.step_s, rate)):
        yield f"{rate / 1e12:g} TFLOP/s per GPU: {wrong}"


def _text_of(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
