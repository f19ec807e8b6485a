"""From the text of a recipe to its arguments: a shell script, `key: value` lines, JSON or TOML. Nothing is run."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ...base.errors import UserError
from ...base.files import parse_toml
from .arguments import LEFT_BLANK, Argument, Names, names_of, read_leaves
from .commands import ASSIGNMENT, seal, unseal
from .shell import Variables, read_words

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?$", re.DOTALL)
_ARRAY = re.compile(r"\$\{?\w+\[[@*]\]\}?")
_PROGRAM = re.compile(r"(?:.*/)?([\w-]+\.py)")
_BLOCK = re.compile(r"(?m)^( *)[\w.-]+:[ \t]*[|>][-+\d]*[ \t]*\n(?:(?:\1[ \t]+\S.*|[ \t]*)(?:\n|\Z))*")
_PAIR = re.compile(r"""^\s*(?:-\s+)?["']?(?:\+\+?)?(?:--)?([A-Za-z](?:[\w.-]*\w)?)["']?\s*[:=]\s*(.*?)\s*,?\s*$""")
_WORDS = frozenset(["then", "else", "elif", "fi", "do", "done", "if", "for", "while", "case", "esac"])
_OPERATORS = set("();<>|&")


def read_arguments(text: str, where: str, variables: Variables | None = None) -> list[Argument]:
    """All arguments in the order of the text; a UserError if the text is none of the three forms; one line.

    `variables` are those that are known from outside; the text assigns more.
    """
    if is_json(text):
        return _leaves(_load_json(text, where), names_of("megatron"))
    variables = variables or Variables()
    bare = re.sub(r"(?m)(^|\s)#.*$", "", text)
    is_script = re.search(r"(?:^|[\s\"'(=])--[A-Za-z][\w-]*(?![\w-]*:)", bare, re.MULTILINE)
    if is_script and not re.search(r"(?m)^\s*--[A-Za-z][\w-]*:(\s|$)", bare):
        return _read_script(text, where, variables)
    if found := list(_pairs(bare, variables)):
        return found
    wanted = "expected arguments (--num-layers 80), lines of key: value, or a JSON object"
    raise UserError(f"{where}: holds no arguments; {wanted}")


def read_keys(text: str, where: str) -> list[Argument] | None:
    """All keys of torchtitan's tables in TOML or JSON; None for another text.

    A UserError of one line for JSON that is broken, and for TOML by the file's name.
    """
    try:
        table = _load_json(text, where) if is_json(text) else parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        if where.endswith(".toml"):
            raise UserError(f"{where}: is not TOML: {' '.join(str(error).split())[:100]}") from None
        return None
    return read_sections(table)


def read_sections(table: Mapping[str, Any]) -> list[Argument]:
    """All keys of torchtitan's sections."""
    return _leaves(table, names_of("torchtitan"))


def is_json(text: str) -> bool:
    """Whether a text, if it holds a table at all, is JSON."""
    return text.lstrip().startswith("{")


def _load_json(text: str, where: str) -> dict[str, Any]:
    try:
        table: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON: {' '.join(str(error).split())[:100]}") from None
    return table


def _leaves(table: Mapping[str, Any], names: Names) -> list[Argument]:
    """Leaves by their own name, or with their section where that is known.

    A key of a plain table of FSDP settings may say so: `fsdp_sharding_strategy`.
    """

    def name_of(place: str, key: str) -> str:
        plain = _plain(key)
        return next((name for name in (place, plain, plain.removeprefix("fsdp_")) if name in names), plain)

    return list(read_leaves(table, name_of))


def _pairs(text: str, variables: Variables) -> Iterator[Argument]:
    """Leaves of YAML-like lines, dotted keys by their last part.

    A key without a value heads a section, unless it is an argument's name. A key in capitals is a variable of the
    environment. Lines of a text (`BEFORE_SCRIPT: |`) are none.
    """
    arguments = names_of("megatron").switches | names_of("megatron").valued
    for line in _BLOCK.sub("", text).splitlines():
        if match := _PAIR.match(line):
            key, value = match[1], variables.substitute(seal(match[2]))
            if re.fullmatch(r"[A-Z][A-Z0-9_]+", key):
                variables.assign(key, unseal(value).strip("\"'"))
            elif value not in ("", "null", "Null", "NULL", "~"):
                yield Argument(_plain(key.rpartition(".")[2]), _listed(unseal(value)), key)
            elif not value and _plain(key) in arguments:
                yield Argument(_plain(key), LEFT_BLANK, key)


def _listed(value: str) -> tuple[str, ...]:
    quoted = re.fullmatch(r"""(["'])(.*)\1""", value)
    if quoted:
        return (quoted[2],)
    inner = re.fullmatch(r"\[([^\[\]]*)\]", value)
    parts = inner[1].split(",") if inner else [value]
    return tuple(part.strip().strip("\"'") for part in parts if part.strip())


def _read_script(text: str, where: str, variables: Variables) -> list[Argument]:
    """Arguments of a script. One that hands TOKENIZER_MODEL on to another script names its tokenizer by it."""
    found = list(_flags(read_words(text, where, variables), variables))
    tokenizer = variables.get("TOKENIZER_MODEL")
    if tokenizer and all(argument.name != "tokenizer_model" for argument in found):
        found.append(Argument("tokenizer_model", (tokenizer,), "TOKENIZER_MODEL"))
    return found


def _flags(words: Iterable[str], variables: Variables) -> Iterator[Argument]:
    """Arguments of a script; those in assignments (`ARGS="--a 1"`, `ARGS=(--a 1)`) count where they are assigned.

    The Python program that the arguments are for counts as an argument `program`.
    """
    flag: str | None = None
    values: list[str] = []
    for word in chain(words, ";"):
        may_end = flag is None or values != []
        assigned = ASSIGNMENT.fullmatch(word) if may_end else None
        value = variables.substitute(assigned[3] if assigned else word)
        program = _PROGRAM.fullmatch(value) if may_end and not assigned else None
        ends = set(word) <= _OPERATORS or word in _WORDS or assigned or program
        if flag is not None and (ends or _FLAG.match(value)):
            if flag.startswith("--"):  # those with one dash are of other commands
                yield Argument(_plain(flag), tuple(map(unseal, values)), flag)
            flag, values = None, []
        if assigned and " --" in f" {value}":
            variables.assign(assigned[1], "")
            yield from _flags([part.strip("\"'") for part in value.replace("\\\n", " ").split()], variables)
        elif assigned:
            variables.assign(assigned[1], value, more=bool(assigned[2]))
        elif _FLAG.match(value):
            flag, equals, rest = value.partition("=")
            values = [rest] if equals else []
        elif program:
            yield Argument("program", (program[1],), "program")
        elif flag is not None and not _ARRAY.fullmatch(word) and (value or not word):
            values.append(value)


def sort_settings(settings: Mapping[str, str], names: Names) -> tuple[dict[str, str], list[Argument]]:
    """What a user sets, as variables of a script (`TP`) and as arguments (`seq-length`), which are in small letters."""
    variables: dict[str, str] = {}
    arguments: list[Argument] = []
    for name, value in settings.items():
        plain = next((known for known in (name, _plain(name)) if known in names), None)
        if plain is None or not name.islower():
            variables[name] = value
        else:
            arguments.append(Argument(plain, (value,), f"--set {name}"))
    return variables, arguments


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()
