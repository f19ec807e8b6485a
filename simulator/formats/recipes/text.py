"""From the text of a recipe to its arguments: a shell fragment, `key: value` lines, JSON or TOML; nothing is run.

In a shell fragment plain assignments (`TP=8`, `TP=${TP:-8}`) are put in for `$TP`; what only a shell could compute
(`$((A * B))`, `$(nproc)`) stays as it is written, and whoever needs its value says so.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base.errors import UserError
from .arguments import Argument, Names, names_of

_NAME = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^{}]*))?\})")
_PAIR = re.compile(r"""^\s*(?:-\s+)?["']?(?:\+\+?)?(?:--)?([A-Za-z](?:[\w.-]*\w)?)["']?\s*[:=]\s*(.*?)\s*,?\s*$""")
_WORDS = frozenset(["then", "else", "elif", "fi", "do", "done", "if", "for", "while", "case", "esac"])
_OPERATORS = set("();<>|&")


def read_arguments(text: str, where: str) -> list[Argument]:
    """All arguments in the order of the text; a UserError if the text is none of the three forms; one line."""
    if text.lstrip().startswith("{"):
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: is not JSON: {' '.join(str(error).split())[:100]}") from None
        return list(_leaves(table, names_of("megatron")))
    if re.search(r"(?:^|[\s\"'(=])--[A-Za-z][\w-]*(?![\w-]*:)", text, re.MULTILINE):
        return list(_flags(_tokens(text, where)))
    if found := list(_pairs(text)):
        return found
    wanted = "expected arguments (--num-layers 80), lines of key: value, or a JSON object"
    raise UserError(f"{where}: holds no arguments; {wanted}")


def read_keys(text: str) -> list[Argument] | None:
    """All keys of torchtitan's tables in TOML or JSON; None where it is neither."""
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    return list(_leaves(table, names_of("torchtitan"))) if isinstance(table, Mapping) else None


def _leaves(table: Mapping[str, Any], names: Names, section: str = "") -> Iterator[Argument]:
    """Leaves of nested tables by their own name, or with their section where that is known; null is what is not given.

    A key of a plain table of FSDP settings may say so: `fsdp_sharding_strategy`.
    """
    for key, value in table.items():
        place, plain = f"{section}.{key}" if section else key, _plain(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, names, place)
        elif value not in (None, "", []):
            known = (name for name in (place, plain, plain.removeprefix("fsdp_")) if name in names)
            yield Argument(next(known, plain), tuple(value) if isinstance(value, list) else (value,), place)


def _pairs(text: str) -> Iterator[Argument]:
    """Leaves of YAML-like lines, dotted keys by their last part; a key without a value heads a section."""
    for line in text.splitlines():
        bare = re.sub(r"(^|\s)#.*$", "", line)
        if match := _PAIR.match(bare):
            key, value = match[1], match[2]
            named = re.fullmatch(r"[A-Z][A-Z0-9_]+", key)  # a variable of the environment
            if value and not named and value.lower() not in ("null", "none", "~"):
                yield Argument(_plain(key.rpartition(".")[2]), _listed(value), key)


def _listed(value: str) -> tuple[str, ...]:
    quoted = re.fullmatch(r"""(["'])(.*)\1""", value)
    if quoted:
        return (quoted[2],)
    inner = re.fullmatch(r"\[([^\[\]]*)\]", value)
    parts = inner[1].split(",") if inner else [value]
    return tuple(part.strip().strip("\"'") for part in parts if part.strip())


def _tokens(text: str, where: str) -> list[str]:
    """The words of a shell fragment, comments and continued lines taken care of, operators as words of their own."""
    uncommented = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    joined = re.sub(r"\\\r?\n", " ", uncommented)
    quoted = re.sub(r"(?<=\s)(\(\[[^\s\"']*\))(?=\s|$)", r"'\1'", joined)  # ([0]*3+[1]*58), which a shell would refuse
    words = shlex.shlex(quoted, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    try:
        return list(words)
    except ValueError as error:
        raise UserError(f"{where}: is not a shell fragment: {str(error).lower()}") from None


def _flags(tokens: Iterable[str]) -> Iterator[Argument]:
    """Arguments of a fragment; those in assignments (`ARGS="--a 1"`, `ARGS=(--a 1)`) count where they are assigned."""
    variables: dict[str, str] = {}
    flag: str | None = None
    values: list[str] = []
    for token in [*tokens, ";"]:
        assigned = _NAME.fullmatch(token) if flag is None or values else None
        ends = set(token) <= _OPERATORS or token in _WORDS or assigned
        if flag is not None and (ends or _FLAG.match(token)):
            if flag.startswith("--"):  # those with one dash are of other commands
                yield Argument(_plain(flag), tuple(values), flag)
            flag, values = None, []
        if assigned and " --" in f" {assigned[2]}":
            yield from _flags(_substituted(assigned[2], variables).replace("\\\n", " ").split())
        elif assigned:
            variables[assigned[1]] = _substituted(assigned[2], variables)
        elif _FLAG.match(token):
            flag, equals, value = token.partition("=")
            values = [_substituted(value, variables)] if equals else []
        elif flag is not None and not re.fullmatch(r"\$\{?\w+\[@\]\}?", token):
            values.append(_substituted(token, variables))


def _substituted(value: str, variables: Mapping[str, str]) -> str:
    """The text with plain variables put in; one that is not assigned has its default, or stays."""
    return _REFERENCE.sub(lambda found: variables.get(found[1] or found[2], found[3] or found[0]), value)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()
