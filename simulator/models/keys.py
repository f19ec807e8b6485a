"""Keys: typed reading of a config; faults are collected, so that the user sees all of them at once."""

from collections.abc import Collection, Iterable, Mapping
from types import UnionType
from typing import Any

from ..base.errors import UserError, did_you_mean, fault

_MAX_DIM = 2**31


class Keys:
    """A config and the faults found in it so far.

    A method that meets a fault notes it and returns a harmless value; `check` raises if there was any. `None` counts as
    missing, as in Hugging Face configs. `own` maps keys to other names in this config (`a.b`: key b in table a).
    """

    def __init__(self, config: Mapping[str, Any], where: str, own: Mapping[str, str] | None = None):
        self.config = config
        self.where = where
        self.own = own or {}
        self.faults: list[str] = []
        self.asked: set[str] = set()
        for outer in sorted({name.partition(".")[0] for name in self.own.values() if "." in name}):
            if not isinstance(config.get(outer, {}), Mapping | None):
                self.fault(outer, "an object")

    def get(self, key: str) -> Any:
        """The raw value, None where the key is missing."""
        name = self._name(key)
        self.asked |= {key, name.partition(".")[0]}
        return self._at(name)

    def _name(self, key: str) -> str:
        return key if self.config.get(key) is not None else self.own.get(key, key)

    def _at(self, name: str) -> Any:
        outer, _, inner = name.partition(".")
        value = self.config.get(outer)
        if not inner:
            return value
        return value.get(inner) if isinstance(value, Mapping) else None

    def has(self, key: str) -> bool:
        """Whether the key is present with a value."""
        return self.get(key) is not None

    def fault(self, key: str, allowed: str) -> None:
        """Note a fault of this key's value."""
        name = self._name(key)
        self.faults.append(fault(self.where, name, self._at(name), allowed))

    def expect(self, ok: bool, key: str, allowed: str) -> None:
        """Note that this key does not fit others, unless an earlier fault may be the cause."""
        if not ok and not self.faults:
            self.fault(key, allowed)

    def whole(self, key: str, default: int | None = None, minimum: int = 1, maximum: int = _MAX_DIM) -> int:
        """A whole number in a range; required when there is no default."""
        if not self.has(key) and default is not None:
            return default
        value = self.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
            return value
        missing = "" if self.has(key) else "missing; "
        self.fault(key, f"{missing}a whole number from {minimum} to {maximum}")
        return 1

    def optional(self, key: str) -> int | None:
        """A positive whole number, or None where the key is missing."""
        return self.whole(key) if self.has(key) else None

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return bool(self._typed(key, bool, "true or false", default))

    def text(self, key: str, default: str) -> str:
        """A text."""
        return str(self._typed(key, str, "a text", default))

    def one_of(self, key: str, known: Collection[str], default: str) -> str:
        """One of the known texts."""
        value = self.text(key, default)
        if value not in known:
            self.fault(key, f"one of {', '.join(known)}")
        return value

    def sequence(self, key: str) -> list[Any]:
        """A list, empty where the key is missing."""
        return list(self._typed(key, list | tuple, "a list", ()))

    def _typed(self, key: str, kind: type | UnionType, allowed: str, default: Any) -> Any:
        value = self.get(key)
        if value is not None and not isinstance(value, kind):
            self.fault(key, allowed)
        return value if isinstance(value, kind) else default

    def refuse_unread(self, names: Iterable[str]) -> None:
        """Note a fault for each of these keys that was not read; a near miss is suggested."""
        for key in sorted(set(names) - self.asked):
            near = did_you_mean(key, sorted(self.asked), most=1)
            self.fault(key, "means nothing for this model" + (f"; {near}" if near else ""))

    def check(self) -> None:
        """Raise UserError if any fault was noted."""
        if self.faults:
            raise UserError(*self.faults)
