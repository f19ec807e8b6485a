"""Arguments: found in the text of a recipe, read with their types, and an account of every one of them.

What the names of a tool mean to a training step is in data/recipes.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.errors import UserError, did_you_mean, fault, shorten
from ...base.files import read_toml

_LARGEST = 2**40
_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_COMPUTED = "its value is computed by a shell, which is not run; write the value"


@dataclass(frozen=True)
class Argument:
    """One argument: its name in snake_case, its values as texts (or as JSON and TOML hold them), and its spelling.

    `values` is empty for a switch alone.
    """

    name: str
    values: tuple[Any, ...]
    spelled: str

    @property
    def first(self) -> str:
        """The first value as text, empty where there is none."""
        return str(self.values[0]).strip() if self.values else ""

    @property
    def is_flag(self) -> bool:
        """Whether it is of a command line, where what follows a switch is no value of it."""
        return self.spelled.startswith("--")


@dataclass(frozen=True)
class Machine:
    """The cluster a scenario names, and what of it decides how a recipe is read."""

    cluster: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    def __str__(self) -> str:
        return f"the {self.gpus} GPUs ({self.nodes} x {self.gpus_per_node}, {self.cluster})"


@dataclass(frozen=True)
class Names:
    """The names of a tool's arguments by what they mean; the reason why something is not modelled by its name."""

    switches: frozenset[str]
    valued: frozenset[str]
    untimed: frozenset[str]
    not_modelled: Mapping[str, str]
    aliases: Mapping[str, str]
    negated: Mapping[str, str] = field(default_factory=dict)
    as_assumed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    other_models: frozenset[str] = frozenset()
    untimed_sections: frozenset[str] = frozenset()

    def is_untimed(self, name: str) -> bool:
        """Whether nothing of a step's time is in it, or in other keys of the section that it is named with."""
        known = name in self.switches or name in self.valued or name in self.not_modelled
        return name in self.untimed or (name.partition(".")[0] in self.untimed_sections and not known)

    def __contains__(self, name: str) -> bool:
        kinds = (self.switches, self.valued, self.not_modelled, self.aliases, self.negated, self.other_models)
        return self.is_untimed(name) or any(name in kind for kind in kinds)


@cache
def names_of(tool: str) -> Names:
    """The names of a form of recipes, such as `megatron`."""
    table = read_toml(files("runcast.data") / "recipes" / f"{tool}.toml")
    reasons = {name: reason for reason, names in table.pop("not_modelled").items() for name in names}
    sets: dict[str, Any] = {key: frozenset(value) if isinstance(value, list) else value for key, value in table.items()}
    return Names(**sets, not_modelled=reasons)


class Arguments:
    """A tool's arguments by name, with what was noted when they were read.

    The last of several values counts, as it does for argparse. A method that meets a fault notes it and returns a
    harmless value.
    """

    def __init__(self, arguments: Iterable[Argument], names: Names, where: str):
        self.where = where
        self.names = names
        self.faults: list[str] = []
        self.assumed: list[str] = []
        self.not_modelled: list[str] = []
        self._arguments: dict[str, Argument] = {}
        self._off: set[str] = set()
        for argument in arguments:
            self._take(argument)

    def _take(self, argument: Argument) -> None:
        off = argument.name in self.names.negated
        name = self.names.negated.get(argument.name) or self.names.aliases.get(argument.name, argument.name)
        before = self._arguments.get(name)
        if before and before.values != argument.values and name in self.names.valued:
            first, last = (" ".join(map(str, one.values)) or "nothing" for one in (before, argument))
            self.assumed.append(f"{argument.spelled} is given as {first} and then {last}: the last one counts")
        self._arguments[name] = argument
        self._off = self._off | {name} if off else self._off - {name}

    def check(self) -> None:
        """Raise UserError with a line for each fault that was noted."""
        if self.faults:
            raise UserError(*dict.fromkeys(self.faults))

    def has(self, name: str) -> bool:
        """Whether the file gives it."""
        return name in self._arguments

    def spelling(self, name: str) -> str:
        """The name of an argument as the file writes it, or as it would write it."""
        if name in self._arguments:
            return self._arguments[name].spelled
        return name if self.names.untimed_sections else "--" + name.replace("_", "-")

    def fault(self, name: str, allowed: str, value: object = None) -> None:
        """Note a fault of this argument's value."""
        if value is None:
            values = self._arguments[name].values if name in self._arguments else ()
            value = values[0] if len(values) == 1 else " ".join(map(str, values))
        self.faults.append(fault(self.where, self.spelling(name), value, allowed))

    def note_missing(self, name: str, wanted: str) -> None:
        """Note that an argument has to be given."""
        self.faults.append(f"{self.where}: {self.spelling(name)}: is missing; expected {wanted}")

    def switch(self, name: str, default: bool = False) -> bool:
        """Whether a switch is on."""
        if name not in self._arguments:
            return default
        argument = self._arguments[name]
        word = argument.first.lower() if argument.values else "true"
        on = word not in _OFF if word in _ON + _OFF or argument.is_flag else None
        if on is None:
            self.fault(name, "expected true or false")
        return bool(on) != (name in self._off)

    def whole(self, name: str, default: int = 1, minimum: int = 1) -> int:
        """A whole number."""
        found = self.optional(name, minimum)
        return default if found is None else found

    def optional(self, name: str, minimum: int = 1) -> int | None:
        """A whole number, None where it is not given."""
        wanted = f"a whole number from {minimum} on"
        text = self._one(name, r"-?\d{1,12}", wanted)
        if text is not None and not minimum <= int(text) <= _LARGEST:
            self.fault(name, f"expected {wanted}")
            return minimum
        return None if text is None else int(text)

    def require(self, name: str, wanted: str) -> int:
        """A whole number that has to be given."""
        if not self.has(name):
            self.note_missing(name, wanted)
        return self.whole(name)

    def number(self, name: str) -> float | None:
        """A number, None where it is not given."""
        text = self._one(name, r"-?\d{1,12}(\.\d*)?", "a number")
        return None if text is None else float(text)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        return self._one(name, ".*", "a text") or default

    def choice(self, name: str, default: str, known: Iterable[str]) -> str:
        """One of these texts, whatever its case."""
        words = {word.lower(): word for word in known}
        found = words.get(self.text(name, default).lower())
        if found is None:
            self.fault(name, f"expected one of {', '.join(word for word in words.values() if word)}")
        return default if found is None else found

    def texts(self, name: str) -> tuple[str, ...]:
        """Several texts, however they are listed."""
        values = self._arguments[name].values if name in self._arguments else ()
        return tuple(part for value in values for part in re.split(r"[,\s]+", str(value).strip("[]")) if part)

    def account(self) -> dict[str, tuple[str, ...]]:
        """Every argument as the file writes it: those that are `read`, `untimed` (no part of a step's time, or off),
        `not_modelled` with the reason, and `unknown` with what they may have been meant to be; and what was `assumed`.
        """
        names, given = self.names, self._arguments
        reasons, assumed = names.not_modelled, names.as_assumed
        without = [name for name in given if name in reasons and not self._is_off(name)]
        without = [name for name in without if given[name].first not in assumed.get(name, ())]
        known = sorted({*names.switches, *names.valued, *names.aliases, *names.negated})
        untimed = {name for name in given if names.is_untimed(name) or (name in reasons and name not in without)}
        near = {name: self._near(name, known) for name in given if name not in names}
        return {
            "read": tuple(self._line(name) for name in given if name in names.switches | names.valued),
            "assumed": tuple(self.assumed),
            "untimed": tuple(argument.spelled for name, argument in given.items() if name in untimed),
            "not_modelled": (*(f"{self._line(name)}: {reasons[name]}" for name in without), *self.not_modelled),
            "unknown": tuple(": ".join(filter(None, (self._line(name), hint))) for name, hint in near.items()),
        }

    def other_models(self) -> list[str]:
        """Names of arguments that build a model we cannot size."""
        return [name for name in self._arguments if name in self.names.other_models and not self._is_off(name)]

    def _one(self, name: str, form: str, wanted: str) -> str | None:
        if (argument := self._arguments.get(name)) is None:
            return None
        if "$" in argument.first or "`" in argument.first:
            self.fault(name, _COMPUTED)
        elif not argument.values or not re.fullmatch(form, argument.first, re.DOTALL):
            self.fault(name, f"expected {wanted}")
        else:
            return argument.first
        return None

    def _near(self, name: str, known: Sequence[str]) -> str:
        """The known names that an unknown one may mean, as the file would write them."""
        hint = did_you_mean(name, known, most=2)
        return hint.replace("_", "-") if self._arguments[name].is_flag else hint

    def _is_off(self, name: str) -> bool:
        return self._arguments[name].first.lower() in (*_OFF, "none", "null", "-1")

    def _line(self, name: str) -> str:
        argument = self._arguments[name]
        if argument.is_flag:
            values = () if name in self.names.switches else argument.values[:1]
            return " ".join([argument.spelled, *map(_short, values)])
        texts = (value if isinstance(value, str) else json.dumps(value, default=str) for value in argument.values)
        return f"{argument.spelled} = {_short(', '.join(texts))}"


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), 40)


def loose(text: str) -> str:
    """The form in which names of models are compared: letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


# From the text of a recipe to its arguments: a shell fragment, `key: value` lines, JSON or TOML; nothing is run. In a
# shell fragment plain assignments (`TP=8`, `TP=${TP:-8}`) are put in for `$TP`; what only a shell could compute
# (`$((A * B))`, `$(nproc)`) stays as it is written, and whoever needs its value says so.

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
