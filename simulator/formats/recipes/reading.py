"""Files of other tools as recipes: which tool's a file is, and who reads it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...base.errors import UserError, did_you_mean, fault
from ...base.files import MOST_SETTINGS, read_text
from ...hardware import Spec, cluster
from . import nemo, trainers
from .additions import Additions
from .arguments import Arguments, Machine, Names, names_of
from .beside import read_beside, slurm_nodes
from .forms import read_arguments, read_keys, read_sections, sort_settings
from .launchers import check_launcher
from .megatron import read_megatron
from .overrides import read_overrides
from .python_files import Modules
from .python_tools import is_python, recognize_python
from .recipe import Recipe
from .reinforcement import check_update
from .shell import Variables
from .slime import read_slime
from .sources import include_sourced, missing_sources
from .tables import read_table
from .torchtitan import MARKS, read_torchtitan
from .torchtitan_registry import Registry
from .verl import PREFIX, read_verl

_Reader = Callable[[str, str, str, Machine, Additions], Recipe]
_REINFORCED = {"verl": read_verl, "slime": read_slime}
_IN_PYTHON = ("torchtitan", *nemo.FORMS)
FORMS = ("auto", "megatron", "torchtitan", *nemo.FORMS, *trainers.TRAINERS, *_REINFORCED)
"""What `--format` can be."""
_OF_SLIME = re.compile(r"--(actor-num-gpus-per-node|rollout-num-gpus(-per-engine)?|rollout-max-response-len)\b")


def read_recipe(
    source: Path | str,
    cluster_name: str | None,
    nodes: int | None = None,
    form: str = "auto",
    additions: Additions | None = None,
) -> Recipe:
    """Read another tool's file as a training step on these machines, or on those that its comments name.

    A UserError if the file cannot be read, says what does not go together, or does not fit the machines; a line each.
    """
    settings = additions.settings if additions else {}
    text = read_text(Path(source), "arguments or a config", MOST_SETTINGS)
    text = include_sourced(text, Path(source).parent, settings)
    return parse_recipe(text, str(source), cluster_name, nodes, form, additions)


def parse_recipe(
    text: str,
    where: str,
    machines: Spec | None,
    nodes: int | None = None,
    form: str = "auto",
    additions: Additions | None = None,
) -> Recipe:
    """Read the text of another tool's file, which stands in `where`, as `read_recipe` does."""
    if form not in FORMS:
        raise UserError(fault("--format", "", form, f"expected one of {', '.join(FORMS)}"))
    beside = read_beside(text, where)
    machines = machines if machines is not None else beside.get("cluster")
    if machines is None:
        raise UserError(f"{where}: does not say on which machines; give --cluster")
    asked = slurm_nodes(text) if nodes is None and "nodes" not in beside else None
    nodes = nodes if nodes is not None else beside.get("nodes", asked or 1)
    if not isinstance(nodes, int):
        raise UserError(fault(where, "# runcast: nodes", nodes, "expected a whole number"))
    beside |= {"cluster": machines, "nodes": nodes}
    name = machines if isinstance(machines, str) else str(machines.get("base", "a cluster"))
    machine = Machine(name, nodes, cluster(machines, nodes, "--cluster").n_gpus // nodes)
    additions = additions or Additions()
    form = _recognize(text, where) if form == "auto" else form
    if is_python(where) and form not in _IN_PYTHON:
        raise UserError(f"{where}: of Python files those of {', '.join(_IN_PYTHON)} are read")
    additions.check(form, where)
    recipe = _reader(form, where)(form, text, where, machine, additions)
    assumed = tuple(line for line in recipe.assumed if line.partition(" ")[0] not in beside)
    by_slurm = (f"nodes = {nodes}: as the script asks Slurm",) * (asked is not None)
    return replace(recipe, beside=beside, assumed=(*assumed, *by_slurm))


_NANOTRON = {"parallelism", "tokens"}
_NEOX = re.compile(r"""^[\s{]*["']?(pipe[-_]parallel[-_]size|gpt[-_]j[-_]residual)["']?\s*:""", re.MULTILINE)
_OF_MEGATRON = re.compile(
    r"num[-_]layers|model[-_]parallel[-_]size|(micro|global)[-_]batch[-_]size|seq[-_]length|pretrain_\w+\.py"
)
"""Keys of which each file of Megatron-LM's arguments has some."""
_IN_TABLES = (".yaml", ".yml", ".json")


def _recognize(text: str, where: str) -> str:
    """The form of a file by what that tool alone has; Megatron-LM's arguments have no mark."""
    if is_python(where):
        return recognize_python(Modules().parse(text, Path(where), where)) or ""
    if _NEOX.search(text):
        raise UserError(f"{where}: is a config of GPT-NeoX, which is not read")
    if Path(where).suffix in (".yaml", ".yml"):
        table = read_table(text, where)  # a fault of its syntax is told, not taken for arguments
        if table.keys() >= _NANOTRON:
            raise UserError(f"{where}: is a config of nanotron, which is not read")
        if "compute_environment" in table or table.keys() >= {"distributed_type", "num_processes"}:
            what = "is accelerate's config, which says how a trainer is started"
            raise UserError(f"{where}: {what}; give the trainer's own file, and this one by --accelerate")
    known = trainers.recognize_trainer(text) or nemo.recognize(text) or _recognize_reinforced(text)
    return known or _plain_form(text, where)


def _recognize_reinforced(text: str) -> str:
    """The form of a recipe of reinforcement learning by keys that it cannot do without; empty where it is none."""
    return "verl" if re.search(rf"\b{PREFIX}[.:]", text) else "slime" if _OF_SLIME.search(text) else ""


def _plain_form(text: str, where: str) -> str:
    check_launcher(text, where)
    names = [key.spelled for key in read_keys(text, where) or ()]
    is_known = any(MARKS.fullmatch(name) or MARKS.fullmatch(name.rpartition(".")[2]) for name in names)
    if not is_known and Path(where).suffix in _IN_TABLES and not _OF_MEGATRON.search(re.sub(r"(?m)#.*$", "", text)):
        raise UserError(f"{where}: is of no form that is read: known are {', '.join(FORMS[1:])} (--format)")
    return "torchtitan" if is_known else "megatron"


def _reader(form: str, where: str) -> _Reader:
    if form in nemo.FORMS:
        return nemo.read_nemo
    if form in trainers.TRAINERS:
        return trainers.read_trainer
    if form in _REINFORCED:
        return _read_reinforced
    return _read_registry if is_python(where) else _read_torchtitan if form == "torchtitan" else _read_arguments


def _read_arguments(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """Arguments of Megatron-LM."""
    args = _gather(text, where, names_of(form), additions.settings)
    table, config = read_megatron(args, machine)
    args.check()
    return Recipe.of(form, table, config, args.account())


def _read_torchtitan(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A config of torchtitan in TOML or JSON."""
    keys, (unknown, given) = read_keys(text, where), sort_settings(additions.settings, names_of(form))
    if keys is None:
        raise UserError(f"{where}: is neither TOML nor JSON; expected a torchtitan config or a table of FSDP settings")
    if unknown:
        raise UserError(f"--set {next(iter(unknown))}: no key of torchtitan (in small letters)")
    args = Arguments([*keys, *given], names_of(form), where)
    table, config = read_torchtitan(args, machine, None, additions.model)
    args.check()
    return Recipe.of(form, table, config, args.account())


def _read_registry(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A recipe of torchtitan that is a function of a Python file."""
    parameters, given = sort_settings(additions.settings, names_of(form))
    registry = Registry(text, where, additions.recipe, parameters)
    args = Arguments([*read_sections(registry.table()), *given], names_of(form), where)
    args.assumed += registry.python.notes
    args.not_modelled += registry.notes
    table, config = read_torchtitan(args, machine, registry, additions.model)
    args.check()
    return Recipe.of(form, table, config, args.account())


def _read_reinforced(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A recipe of reinforcement learning: the step of the actor, and the update of the engines' weights."""
    args = _gather(text, where, names_of(form), additions.settings, PREFIX if form == "verl" else "")
    table, config, update = _REINFORCED[form](args, machine, additions)
    args.check()
    if update is not None:
        try:
            check_update(update, "update", machine.cluster, table["model"] or {"config": dict(config or {})})
        except UserError as error:
            args.assumed.append(f"no weight update: {str(error).splitlines()[0].removeprefix('update: ')}")
            update = None
    return Recipe.of(form, table, config, args.account(), update)


def _gather(text: str, where: str, names: Names, settings: Mapping[str, str], prefix: str = "") -> Arguments:
    """The arguments of a text, with those that are set.

    With a `prefix` they are overrides of keys, of which those of that section go without its name.
    """
    fixed, given = sort_settings(settings, names)
    variables = Variables(fixed)
    found = read_overrides(text, where, variables, prefix) if prefix else read_arguments(text, where, variables)
    _check_variables(fixed, variables, where)
    args = Arguments([*found, *given], names, where)
    args.assumed += [f"{name} = {value}: from --set" for name, value in fixed.items()]
    if not prefix:
        _read_environment(args, variables)
    args.absent = missing_sources(text)
    args.assumed += [f"{name} is not beside the file: what it says is not read" for name in args.absent]
    if undecided := ", ".join(f'"{head}"' for head in variables.undecided):
        args.assumed.append(f"all branches of {undecided} are read, as only a shell can tell")
    for name, loop in variables.grown.items():
        args.assumed.append(f'"{loop}" adds to {name} in each turn, and is read once: give --set {name}=...')
    return args


def _read_environment(args: Arguments, variables: Variables) -> None:
    """Take what variables of the environment say of kernels and exchanges (Transformer Engine's, NCCL's)."""
    off = [name for name in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN") if variables.get(name) == "0"]
    if len(off) == 2 and not args.has("attention_backend"):
        args.imply("attention_backend", "unfused", " and ".join(off))
        args.assumed.append(f"attention = unfused: {' and '.join(off)} are 0")
    if chosen := variables.get("NCCL_ALGO"):
        why = "exchanges take what was measured, whatever NCCL chose there; [collectives] names an algorithm"
        args.not_modelled.append(f"NCCL_ALGO = {chosen}: {why}")


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
