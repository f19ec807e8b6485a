"""Arguments of a recipe while a tool's own rules change them: by name, the last of several counts."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from .arguments import Argument, Names

_OFF = ("", "false", "none", "0", "null")


class Settings:
    """Arguments by the names that they go by, with lines on what was assumed.

    What a rule adds has no spelling, as the file does not write it; what it changes keeps what is written.
    """

    def __init__(self, arguments: Iterable[Argument], names: Names):
        self.assumed: list[str] = []
        self.not_modelled: list[str] = []
        self._found = {names.aliases.get(one.name, one.name): one for one in arguments}

    def __iter__(self) -> Iterator[Argument]:
        return iter(self._found.values())

    def has(self, name: str) -> bool:
        """Whether there is such an argument."""
        return name in self._found

    def text(self, name: str) -> str:
        """The value as text, empty where it is not given."""
        return self._found[name].first if name in self._found else ""

    def is_on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.text(name).lower() not in _OFF

    def whole(self, name: str, default: int = 1) -> int:
        """A whole number, or the default where it is none."""
        text = self.text(name)
        return int(text) if text.isdigit() else default

    def put(self, name: str, value: Any) -> None:
        """Set an argument, whether the file gives it or not."""
        self._found[name] = replace(self._found.get(name, Argument(name, (), "")), name=name).change(value)

    def drop(self, name: str) -> None:
        """Turn an argument off that the tool ignores."""
        if name in self._found:
            self.put(name, False)

    def rename(self, name: str, other: str) -> None:
        """Take one argument for another."""
        if name in self._found:
            self._found[other] = replace(self._found.pop(name), name=other)

    def is_of(self, name: str, *sections: str) -> bool:
        """Whether one of these sections gives an argument."""
        return name in self._found and any(part in sections for part in self._found[name].spelled.split("."))
