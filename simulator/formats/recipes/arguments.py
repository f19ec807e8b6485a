"""Arguments of a recipe: read with their types, and an account of every one of them.

What the names of a tool mean to a training step is in data/recipes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from ...base.errors import UserError, did_you_mean, fault, shorten
from ...base.files import read_toml

_LARGEST = 2**40
_TO_RUN = "only running the file tells"
LEFT_BLANK = ("",)
"""The values of an argument whose name stands in a file, and nothing behind it."""
_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Computed:
    """A value that only running the file would tell, by its text there; or the name of something imported.

    `call` is what is called, as a table, where it is the result of a function.
    """

    text: str
    is_name: bool = False
    call: Mapping[str, Any] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Argument:
    """One argument: its name in snake_case, its values as texts (or as JSON and TOML hold them), and its spelling.

    `values` is empty for a switch alone. `written` is what the file has where a rule of the tool changed it; what such
    a rule added has no spelling.
    """

    name: str
    values: tuple[Any, ...]
    spelled: str
    written: tuple[Any, ...] | None = None

    def change(self, value: Any) -> "Argument":
        """The argument with another value, by a rule of the tool."""
        return replace(self, values=(value,), written=self.values if self.written is None else self.written)

    @property
    def first(self) -> str:
        """The first value as text, empty where there is none."""
        return str(self.values[0]).strip() if self.values else ""

    @property
    def is_flag(self) -> bool:
        """Whether it is of a command line, where what follows a switch is no value of it."""
        return self.spelled.startswith("--")


def read_leaves(table: Mapping[str, Any], name_of: Callable[[str, str], str], section: str = "") -> Iterator[Argument]:
    """Leaves of nested tables as arguments; null and nothing are what is not given.

    `name_of` has the name of an argument by its key with all sections (`a.b.key`) and by the key alone.
    """
    for key, value in table.items():
        place = f"{section}.{key}" if section else str(key)
        if isinstance(value, Mapping):
            yield from read_leaves(value, name_of, place)
        elif value not in (None, "", []):
            yield Argument(name_of(place, str(key)), tuple(value) if isinstance(value, list) else (value,), place)


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
    """The names of a tool's arguments by what they mean.

    `not_modelled`, `refused` and `refused_values` (`name=value`) have reasons by name. A name that ends in `*` stands
    for all that begin so.
    """

    switches: frozenset[str]
    valued: frozenset[str]
    untimed: frozenset[str]
    not_modelled: Mapping[str, str]
    aliases: Mapping[str, str]
    negated: Mapping[str, str] = field(default_factory=dict)
    as_assumed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_values: Mapping[str, str] = field(default_factory=dict)
    untimed_sections: frozenset[str] = frozenset()

    def extend(self, more: Mapping[str, Any]) -> "Names":
        """These names with those of a form that has them and others; what it says of a name counts."""
        own = {key for kind, names in more.items() if kind != "as_assumed" for key in names}
        kept = {one.name: _drop_names(getattr(self, one.name), own) for one in fields(self)}
        return Names(**{kind: names | more.get(kind, type(names)()) for kind, names in kept.items()})

    def is_untimed(self, name: str) -> bool:
        """Whether nothing of a step's time is in it, or in other keys of the section that it is named with."""
        known = name in self.switches or name in self.valued or name in self.not_modelled
        listed = name.startswith(self._starts) or name.partition(".")[0] in self.untimed_sections
        return name in self.untimed or (listed and not known)

    @cached_property
    def _starts(self) -> tuple[str, ...]:
        """How names begin that nothing of a step's time is in."""
        return tuple(key[:-1] for key in self.untimed if key.endswith("*"))

    def reason(self, name: str) -> str | None:
        """Why the argument is not modelled; None where it is, or is not known."""
        return _look_up(self.not_modelled, name)

    def refusal(self, argument: "Argument") -> str | None:
        """Why no recipe with this argument, or with this value of it, can be read; None where it can."""
        by_value = _look_up(self.refused_values, f"{argument.name}={argument.first}")
        return by_value or _look_up(self.refused, argument.name)

    def __contains__(self, name: str) -> bool:
        kinds = (self.switches, self.valued, self.aliases, self.negated)
        listed = self.is_untimed(name) or any(name in kind for kind in kinds)
        return listed or any(_look_up(table, name) is not None for table in (self.not_modelled, self.refused))


def _drop_names(names: Any, others: set[str]) -> Any:
    """A set or a table of names without others."""
    return names - others if isinstance(names, frozenset) else {k: v for k, v in names.items() if k not in others}


def _look_up(table: Mapping[str, str], name: str) -> str | None:
    """The entry of the name, or of the pattern with `*` that it begins like."""
    return table.get(name) or next(
        (entry for key, entry in table.items() if key.endswith("*") and name.startswith(key[:-1])), None
    )


@cache
def names_of(tool: str) -> Names:
    """The names of a form of recipes, such as `megatron`, with those of the form that it is based on."""
    table = read_toml(files("runcast.data") / "recipes" / f"{tool}.toml")
    base = table.pop("base", None)
    found: dict[str, Any] = {
        kind: {name: reason for reason, names in table.pop(kind, {}).items() for name in names}
        for kind in ("not_modelled", "refused", "refused_values")
    }
    found |= {key: frozenset(value) if isinstance(value, list) else value for key, value in table.items()}
    return names_of(base).extend(found) if base else Names(**found)


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
        self.absent: Sequence[str] = ()  # files that it reads, and that are not at hand
        self._arguments: dict[str, Argument] = {}
        self._off: set[str] = set()
        self._sources: dict[str, str] = {}
        for argument in arguments:
            self._take(argument)

    def _take(self, argument: Argument) -> None:
        off = argument.name in self.names.negated
        name = self.names.negated.get(argument.name) or self.names.aliases.get(argument.name, argument.name)
        if argument.values == LEFT_BLANK:
            self.assumed.append(f"{argument.spelled} has no value: it is read as if it were not there")
            return
        before = self._arguments.get(name)
        if before and before.values != argument.values and name in self.names.valued:
            first, last = (" ".join(map(str, one.values)) or "nothing" for one in (before, argument))
            self.assumed.append(f"{argument.spelled} is given as {first} and then {last}: the last one counts")
        self._arguments[name] = argument
        self._off = self._off | {name} if off else self._off - {name}

    def imply(self, name: str, value: object, source: str = "") -> None:
        """Set an argument by a rule of the tool; faults name the `source`, where there is one."""
        self._arguments[name] = self._arguments.get(name, Argument(name, (), "")).change(value)
        self._sources[name] = source
        self._off.discard(name)

    def check(self) -> None:
        """Raise UserError with a line for each fault that was noted."""
        if self.faults:
            absent = [f"{self.where}: {name}: is not beside it, and may say what is missing" for name in self.absent]
            raise UserError(*dict.fromkeys(self.faults), *absent)

    def has(self, name: str) -> bool:
        """Whether the file gives it."""
        return name in self._arguments

    def is_computed(self, name: str) -> bool:
        """Whether only running the file would tell its value."""
        return self.has(name) and any(isinstance(value, Computed) for value in self._arguments[name].values[:1])

    def has_section(self, section: str) -> bool:
        """Whether the file gives any key of a section."""
        return any(one.spelled.lower().startswith(f"{section}.") for one in self._arguments.values())

    def gives(self, name: str) -> bool:
        """Whether the file gives it, and not as what is off."""
        return self.has(name) and not self._is_off(name)

    def spelling(self, name: str) -> str:
        """The name of an argument as the file writes it, or as it would write it."""
        spelled = self._arguments[name].spelled if name in self._arguments else ""
        plain = name if self.names.untimed_sections else "--" + name.replace("_", "-")
        return self._sources.get(name) or spelled or plain

    def fault(self, name: str, allowed: str, value: object = None) -> None:
        """Note a fault of this argument's value."""
        value = self._value(name) if value is None else value
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
        text = self._one(name, r"-?\d{1,12}(\.\d*)?(e[+-]?\d{1,2})?", "a number")
        return None if text is None else float(text)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        return self._one(name, ".*", "a text") or default

    def hint(self, name: str) -> str:
        """A text that need not be whole: `$DATA/tokenizer.model` is one, empty where it is not given."""
        return self._arguments[name].first if name in self._arguments else ""

    def choice(self, name: str, default: str, known: Iterable[str]) -> str:
        """One of these texts, whatever its case."""
        words = {word.lower(): word for word in known}
        found = words.get(self.text(name, default).lower())
        if found is None:
            self.fault(name, f"expected one of {', '.join(word for word in words.values() if word)}")
        return default if found is None else found

    def lists(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Several lists of texts; a fault is noted where one is none."""
        values = self._arguments[name].values if name in self._arguments else ()
        if any(not isinstance(value, list | tuple) for value in values):
            self.fault(name, "expected a list of lists")
            return ()
        return tuple(tuple(map(str, value)) for value in values)

    def texts(self, name: str) -> tuple[str, ...]:
        """Several texts, however they are listed."""
        values = self._arguments[name].values if name in self._arguments else ()
        return tuple(part for value in values for part in re.split(r"[,\s]+", str(value).strip("[]")) if part)

    def account(self) -> dict[str, tuple[str, ...]]:
        """Every argument as the file writes it: those that are `read`, `untimed` (no part of a step's time, or off),
        `not_modelled` with the reason, and `unknown` with what they may have been meant to be, but without their
        values, which may be secrets; and what was `assumed`.
        """
        names = self.names
        given = {name: one for name, one in self._arguments.items() if one.spelled}
        without = [
            name for name in given if names.reason(name) and not self._is_idle(name) and name not in names.untimed
        ]
        known = sorted({*names.switches, *names.valued, *names.aliases, *names.negated})
        untimed = {name for name in given if names.is_untimed(name) or (names.reason(name) and name not in without)}
        near = {name: self._near(name, known) for name in given if name not in names}
        return {
            "read": tuple(self._line(name) for name in given if name in names.switches | names.valued),
            "assumed": tuple(self.assumed),
            "untimed": tuple(argument.spelled for name, argument in given.items() if name in untimed),
            "not_modelled": (*(f"{self._line(name)}: {names.reason(name)}" for name in without), *self.not_modelled),
            "unknown": tuple(": ".join(filter(None, (given[name].spelled, hint))) for name, hint in near.items()),
        }

    def check_readable(self) -> None:
        """Raise UserError with one line if no such recipe can be read: for the reason that is listed first."""
        found = {name: reason for name, argument in self._arguments.items()
                 if (reason := self.names.refusal(argument)) and not self._is_off(name)}  # fmt: skip
        reasons = [*self.names.refused.values(), *self.names.refused_values.values()]
        for name in sorted(found, key=lambda name: reasons.index(found[name])):
            raise UserError(f"{self.where}: {self._line(name)}: {found[name]}")

    def _one(self, name: str, form: str, wanted: str) -> str | None:
        if (argument := self._arguments.get(name)) is None:
            return None
        if self.is_computed(name):
            self.fault(name, f"{_TO_RUN}; give --set {name.replace('_', '-')}=VALUE, or the config that the run writes")
        elif "$" in argument.first or "`" in argument.first:
            self.fault(name, _ask_for(argument))
        elif not argument.values or not re.fullmatch(form, argument.first, re.DOTALL):
            self.fault(name, f"expected {wanted}")
        else:
            return argument.first
        return None

    def _near(self, name: str, known: Sequence[str]) -> str:
        """The known names that an unknown one may mean, as the file would write them."""
        hint = did_you_mean(name, known, most=2)
        return hint.replace("_", "-") if self._arguments[name].is_flag else hint

    def _value(self, name: str) -> object:
        values = self._arguments[name].values if name in self._arguments else ()
        return values[0] if len(values) == 1 and not isinstance(values[0], Computed) else " ".join(map(str, values))

    def _is_off(self, name: str) -> bool:
        return self._arguments[name].first.lower() in (*_OFF, "none", "null", "-1")

    def _is_idle(self, name: str) -> bool:
        """Whether what is not modelled is as assumed; where nothing says what is assumed, it is off."""
        if (assumed := self.names.as_assumed.get(name)) is None:
            return self._is_off(name)
        return self._arguments[name].first.lower() in map(str.lower, assumed)

    def _line(self, name: str) -> str:
        argument = self._arguments[name]
        values = argument.values if argument.written is None else argument.written
        if argument.is_flag:
            shown = () if name in self.names.switches else values[:1]
            return " ".join([argument.spelled, *map(_short, shown)])
        return f"{argument.spelled} = {_short(', '.join(map(_text, values)))}"


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | Computed) else json.dumps(value, default=str)


def _ask_for(argument: Argument) -> str:
    """What a user can give for a value that the file does not have."""
    if missing := re.fullmatch(r"[^$`]*\$\{?(\w+)\}?[^$`]*", argument.first):
        return f"the file assigns no {missing[1]}; give --set {missing[1]}=VALUE"
    return f"a shell computes it, and none is run; give --set {argument.name.replace('_', '-')}=VALUE"


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), 40)


def loose(text: str) -> str:
    """The form in which names of models are compared: letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
