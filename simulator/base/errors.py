"""The one error a user may cause.

Every mistake in a file, a flag or a value raises `UserError`: one clear line per fault, which the command line prints
before it leaves with exit code 2. Our own broken invariants are assertions, never `UserError`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

MOST = 580
"""Characters of a line at most, whatever stands in the file that it is about: with what is put before, below 600."""
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class UserError(ValueError):
    """One or more faults in what the user gave, one line each.

    Raised by everything that reads user input; `str()` holds the lines joined by newlines. None is longer than `MOST`,
    and what would act on a terminal stands in them as an escape.
    """

    def __init__(self, *faults: str):
        faults = tuple(map(tidy, faults))
        super().__init__("\n".join(faults))
        self.faults = faults

    def reasons(self, where: str) -> list[str]:
        """The lines without the file that they begin with, where something else says it."""
        return [line.removeprefix(f"{where}: ") for line in self.faults]


def faults_of(act: Callable[[], object]) -> tuple[str, ...]:
    """The lines of the UserError that `act` raises; none where it raises none."""
    try:
        act()
    except UserError as error:
        return error.faults
    return ()


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
    return Fault(f"{_place(where, key)} = {shorten(_text(value), 80)}: {allowed}", key, value, allowed)


def unknown_key(where: str, key: str, known: Iterable[str], most: int = 3) -> Fault:
    """The line for a key that is not among the known ones. Its value may be a secret of another program's file."""
    allowed = f"unknown key; {hint(key.rpartition('.')[2], known, most)}"
    return Fault(f"{_place(where, key)}: {allowed}", key, None, allowed)


def _place(where: str, key: str) -> str:
    return f"{where}: {shorten(repr(key)[1:-1], 120)}" if key else where


def _text(value: object) -> str:
    """A value as Python writes it, its lists as TOML has them: schemas hold tuples."""
    try:
        return repr(_with_lists(value))
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def _with_lists(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _with_lists(item) for key, item in value.items()}
    return list(map(_with_lists, value)) if isinstance(value, list | tuple) else value


def unknown(where: str, key: str, value: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in `known`; a near miss is suggested, otherwise all names are listed."""
    return UserError(fault(where, key, value, f"unknown; {hint(value, sorted(known))}"))


def hint(name: str, known: Iterable[str], most: int = 3) -> str:
    """The `most` nearest of the known names as a question, or all of them where none is near."""
    names = list(known)
    return did_you_mean(name, names, most) or f"known: {_listing(names)}"


def _listing(names: list[str], most: int = 470) -> str:
    text = ", ".join(names)
    return text if len(text) <= most else f"{text[:most].rpartition(', ')[0]}, ... ({len(names)} in all)"


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str:
    """`did you mean a or b?`, or nothing where no known name is near."""
    names = {one.lower(): one for one in known}
    near = [names[one] for one in get_close_matches(str(name).lower(), list(names), n=most, cutoff=0.6)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def shorten(text: str, most: int) -> str:
    """The text, or so much of it that it is `most` characters long with the dots behind it."""
    return text if len(text) <= most else text[: most - 3] + "..."


def printable(text: str) -> str:
    """The text with what would act on a terminal, or turn the writing round, as escapes such as `\\x1b`."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tidy(line: str) -> str:
    """A line that a terminal shows as it is; one that is too long lacks its middle. A drawing has several."""
    text = "\n".join(map(_cut, printable(line).split("\n")))
    if text == line:
        return line
    return Fault(text, line.key, line.value, line.allowed) if isinstance(line, Fault) else text


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST // 2 - 3]} ... {text[3 - MOST // 2 :]}"
