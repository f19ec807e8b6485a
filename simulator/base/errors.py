"""The one error a user may cause.

Every mistake in a file, a flag or a value raises `UserError`: one clear line per fault, which the command line prints
before it leaves with exit code 2. Our own broken invariants are assertions, never `UserError`.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """One or more faults in what the user gave, one line each.

    Raised by everything that reads user input; `str()` holds the lines joined by newlines.
    """

    def __init__(self, *faults: str):
        super().__init__("\n".join(faults))
        self.faults = faults

    def reasons(self, where: str) -> list[str]:
        """The lines without the file that they begin with, where something else says it."""
        return [line.removeprefix(f"{where}: ") for line in self.faults]


class Fault(str):
    """The line for one fault; the key, its value and what is allowed are known apart, too."""

    key: str
    value: object
    allowed: str

    def __new__(cls, line: str, key: str, value: object, allowed: str) -> "Fault":  # noqa: D102
        self = super().__new__(cls, line)
        self.key, self.value, self.allowed = key, value, allowed
        return self

    def __getnewargs__(self) -> tuple[str, str, object, str]:  # type: ignore[override]  # workers send them
        return str(self), self.key, self.value, self.allowed


def fault(where: str, key: str, value: object, allowed: str) -> Fault:
    """The line for one fault: file (or flag), key, value and what is allowed."""
    place = f"{where}: {key}" if key else where
    return Fault(f"{place} = {shorten(repr(value), 80)}: {allowed}", key, value, allowed)


def unknown(where: str, key: str, value: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in `known`; a near miss is suggested, otherwise all names are listed."""
    return UserError(fault(where, key, value, f"unknown; {hint(value, sorted(known))}"))


def hint(name: str, known: Iterable[str], most: int = 3) -> str:
    """The `most` nearest of the known names as a question, or all of them where none is near."""
    names = list(known)
    return did_you_mean(name, names, most) or f"known: {', '.join(names)}"


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str:
    """`did you mean a or b?`, or nothing where no known name is near."""
    near = get_close_matches(str(name), list(known), n=most, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


def shorten(text: str, most: int) -> str:
    """The text, or so much of it that it is `most` characters long with the dots behind it."""
    return text if len(text) <= most else text[: most - 3] + "..."
