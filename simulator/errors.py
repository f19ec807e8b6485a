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


def fault(where: str, key: str, value: object, allowed: str) -> str:
    """The line for one fault: file (or flag), key, value and what is allowed."""
    place = f"{where}: {key}" if key else where
    return f"{place} = {value!r}: {allowed}"


def unknown(where: str, key: str, value: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in `known`; a near miss is suggested, otherwise all names are listed."""
    names = sorted(known)
    near = get_close_matches(str(value), names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return UserError(fault(where, key, value, f"unknown; {hint}"))
