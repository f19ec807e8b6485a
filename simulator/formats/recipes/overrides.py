"""Overrides of Hydra, `section.key=value`, on the command line of a script, or the config that they override."""

import re
from collections.abc import Iterator

from ...base.errors import UserError
from .arguments import Argument, read_leaves
from .commands import ASSIGNMENT, unseal
from .references import resolve
from .shell import Variables, read_words
from .tables import read_table

_OVERRIDE = re.compile(r"[+]{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{?\w+\}?")
_CONFIG = re.compile(r"--config-name(?:=(.*))?", re.DOTALL)
_NOTHING = ("", "null", "None", "~")


def read_overrides(text: str, where: str, variables: Variables, prefix: str) -> list[Argument]:
    """The overrides of a script, or the keys of a YAML file; those of the section `prefix` go without it.

    The config that a script names is the argument `config_name`. A UserError if there are none.
    """
    if re.search(rf"^[ \t]*[\"']?{prefix}[\"']?[ \t]*:", text, re.MULTILINE):
        leaves = read_leaves(resolve(read_table(text, where)), lambda place, _: place.removeprefix(f"{prefix}."))
        return [leaf for leaf in leaves if leaf.first not in _NOTHING]
    found = list(_overrides(text, where, variables, prefix))
    if not found:
        raise UserError(f"{where}: holds no overrides; expected a script with {prefix}.key=value, or a YAML file")
    return found


def _overrides(text: str, where: str, variables: Variables, prefix: str) -> Iterator[Argument]:
    named = False
    for word in read_words(text, where, variables):
        assigned = ASSIGNMENT.fullmatch(word)
        if assigned and not word.startswith("model_engine="):
            variables.assign(assigned[1], variables.substitute(assigned[3]), more=bool(assigned[2]))
            continue
        value = variables.substitute(word)
        for part in value.split() if _REFERENCE.fullmatch(word) else [value]:
            if named:
                yield Argument("config_name", (part.strip("\"'"),), "--config-name")
            config = _CONFIG.fullmatch(part)
            named = config is not None and config[1] is None
            if config and config[1]:
                yield Argument("config_name", (config[1].strip("\"'"),), "--config-name")
            elif (override := _OVERRIDE.fullmatch(part)) and _value(override[2]) not in _NOTHING:
                key = override[1]
                yield Argument(key.removeprefix(f"{prefix}."), (_value(override[2]),), key)


def _value(text: str) -> str:
    return unseal(text).strip().strip("\"'")
