"""Given: typed reading of a recipe's values, every fault collected so that the user sees them all at once."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...base.errors import did_you_mean, fault
from .arguments import Argument, is_computed
from .names import ALIASES, AS_ASSUMED, KNOWN, NEGATED, NOT_MODELLED, OTHER_MODELS, SWITCHES, UNTIMED, VALUED
from .recipe import Notes

_LARGEST = 2**40
_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_COMPUTED = "its value is computed by a shell, which is not run; write the value"


class Given:
    """Megatron-LM's arguments by name, and the notes of reading them.

    The last of several values counts, as it does for argparse. A method that meets a fault notes it and returns a
    harmless value.
    """

    def __init__(self, arguments: Iterable[Argument], where: str, notes: Notes):
        self.where = where
        self.notes = notes
        self._arguments: dict[str, Argument] = {}
        self._off: set[str] = set()
        for argument in arguments:
            self._take(argument)

    def _take(self, argument: Argument) -> None:
        off = argument.name in NEGATED
        name = NEGATED.get(argument.name) or ALIASES.get(argument.name, argument.name)
        before = self._arguments.get(name)
        if before and before.values != argument.values and name in VALUED:
            values = f"{_text(before.values)} and then {_text(argument.values)}"
            self.notes.assumed.append(f"{argument.spelled} is given as {values}: the last one counts")
        self._arguments[name] = argument
        self._off = self._off | {name} if off else self._off - {name}

    def has(self, name: str) -> bool:
        """Whether the file gives it."""
        return name in self._arguments

    def spelled(self, name: str) -> str:
        """As the file writes it, or as a command line would."""
        return self._arguments[name].spelled if name in self._arguments else "--" + name.replace("_", "-")

    def fault(self, name: str, allowed: str, value: object = None) -> None:
        """Note a fault of this argument's value."""
        shown = self._shown(name) if value is None else value
        self.notes.faults.append(fault(self.where, self.spelled(name), shown, allowed))

    def missing(self, name: str, wanted: str) -> None:
        """Note that an argument has to be given."""
        self.notes.faults.append(f"{self.where}: {self.spelled(name)}: is missing; expected {wanted}")

    def switch(self, name: str, default: bool = False) -> bool:
        """Whether a switch is on."""
        if name not in self._arguments:
            return default
        values = self._arguments[name].values
        word = str(values[0]).lower() if values else "true"
        on = word not in _OFF if word in _ON + _OFF or self._stands_alone(name) else None
        if on is None:
            self.fault(name, "true or false")
        return bool(on) != (name in self._off)

    def whole(self, name: str, default: int = 1, minimum: int = 1) -> int:
        """A whole number."""
        found = self.optional(name, minimum)
        return default if found is None else found

    def optional(self, name: str, minimum: int = 1) -> int | None:
        """A whole number, None where it is not given."""
        wanted = f"a whole number from {minimum} on"
        found: int | None = self._one(name, re.compile(r"\d{1,12}"), int, wanted)
        if found is not None and not minimum <= found <= _LARGEST:
            self.fault(name, f"expected {wanted}")
            return minimum
        return found

    def needed(self, name: str, wanted: str) -> int:
        """A whole number that has to be given."""
        if not self.has(name):
            self.missing(name, wanted)
        return self.whole(name)

    def number(self, name: str) -> float | None:
        """A number, None where it is not given."""
        found: float | None = self._one(name, re.compile(r"-?\d{1,12}(\.\d*)?"), float, "a number")
        return found

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        return str(self._one(name, re.compile(".*", re.DOTALL), str, "a text") or default)

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """One of these texts, in lower case."""
        found = self.text(name, default).lower()
        if found not in known:
            self.fault(name, f"expected one of {', '.join(word for word in known if word)}")
        return found if found in known else default

    def texts(self, name: str) -> tuple[str, ...]:
        """Several texts, however they are listed."""
        values = self._arguments[name].values if name in self._arguments else ()
        return tuple(part for value in values for part in re.split(r"[,\s]+", str(value).strip("[]")) if part)

    def read(self) -> tuple[str, ...]:
        """What is read and means something, as the file writes it."""
        known = SWITCHES | VALUED
        return tuple(self._line(name) for name in self._arguments if name in known)

    def untimed(self) -> tuple[str, ...]:
        """What has no part in a step's time."""
        return tuple(argument.spelled for name, argument in self._arguments.items() if name in UNTIMED)

    def not_modelled(self) -> tuple[str, ...]:
        """What takes or saves time that no scenario speaks of."""
        return tuple(
            f"{self._line(name)}: {NOT_MODELLED[name]}"
            for name in self._arguments
            if name in NOT_MODELLED and not self._is_off(name) and not self._is_assumed(name)
        )

    def unknown(self) -> tuple[str, ...]:
        """What nobody here has heard of, and what it may have been meant to be."""
        names = [name for name in self._arguments if name not in KNOWN]
        return tuple(self._line(name) + (f": {near}" if (near := _near(name)) else "") for name in names)

    def other_models(self) -> tuple[str, ...]:
        """Names of arguments that build a model we cannot size."""
        return tuple(name for name in self._arguments if name in OTHER_MODELS and not self._is_off(name))

    def _one(self, name: str, form: re.Pattern[str], convert: Callable[[str], Any], wanted: str) -> Any:
        if name not in self._arguments:
            return None
        values = self._arguments[name].values
        first = str(values[0]).strip() if values else ""
        if is_computed(first):
            self.fault(name, _COMPUTED)
        elif not values or not form.fullmatch(first):
            self.fault(name, f"expected {wanted}")
        else:
            return convert(first)
        return None

    def _stands_alone(self, name: str) -> bool:
        """Whether what follows a switch on a command line is no value of it."""
        return self._arguments[name].spelled.startswith("--")

    def _is_off(self, name: str) -> bool:
        values = self._arguments[name].values
        return bool(values) and str(values[0]).lower() in (*_OFF, "none", "null")

    def _is_assumed(self, name: str) -> bool:
        return tuple(map(str, self._arguments[name].values[:1])) in [(value,) for value in AS_ASSUMED.get(name, ())]

    def _shown(self, name: str) -> object:
        values = self._arguments[name].values if name in self._arguments else ()
        return values[0] if len(values) == 1 else " ".join(map(str, values))

    def _line(self, name: str) -> str:
        argument = self._arguments[name]
        values = () if name in SWITCHES and self._stands_alone(name) else argument.values[:1]
        return " ".join([argument.spelled, *map(_short, values)])


def _near(name: str) -> str:
    return did_you_mean(name, sorted(SWITCHES | VALUED | set(ALIASES) | set(NEGATED)), most=2).replace("_", "-")


def _text(values: Sequence[Any]) -> str:
    return " ".join(map(str, values)) or "nothing"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else text[:37] + "..."
