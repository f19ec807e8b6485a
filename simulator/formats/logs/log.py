"""What formats of training logs share: a step as a line tells it, and a format as a value."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

NUMBER = r"\d+(?:\.\d+)?"
SIGNED = rf"-?{NUMBER}"
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{1,6})")


class Line(NamedTuple):
    """A step as the log tells it: seconds, and what else its line says, in SI units."""

    seconds: float
    says: Mapping[str, float]


class Format(NamedTuple):
    """A format of logs: its name, whose it is, and how the steps of a text are found, by number.

    `seconds_are` says of what the seconds are a mean, if not of the iterations since the line before. `facts` are found
    in other lines of the text. `allocated` is whether memory_bytes are what torch gave out at most, not what its
    allocator took from the device. `fault` says why what it tells is no time of a step; empty where it is one, and
    `unsure` what it cannot tell.
    """

    name: str
    software: str
    lines: Callable[[str], dict[int, Line]]
    seconds_are: str = ""
    facts: Callable[[str], dict[str, float]] = lambda text: {}
    allocated: bool = True
    fault: Callable[[str], str] = lambda text: ""
    unsure: Callable[[str], str] = lambda text: ""


BY_CLOCK = "seconds of a step are those between the times of two lines over the steps between them"


def lines_by_clock(
    text: str,
    step: re.Pattern[str],
    says: Callable[[re.Match[str]], dict[str, float]],
    between: re.Pattern[str] | None = None,
) -> dict[int, Line]:
    """Steps between the clocks of two lines that `step` matches, with the number of the step as its first group.

    The first line has no step before it, nor has a line whose number is not above that of the last one. Where a line
    that `between` matches says that other work has ended after a step, the next steps start there.
    """
    found: dict[int, Line] = {}
    before: tuple[int, datetime] | None = None
    for line in text.splitlines():
        other = between.search(line) if between else None
        match, clock = other or step.search(line), _CLOCK.search(line)
        if not match or not clock:
            continue
        number, now = int(match[1]), datetime.fromisoformat(f"{clock[1]} {clock[2]}.{clock[3]:0<6}")
        if before and number > before[0] and not other:
            found[number] = Line((now - before[1]).total_seconds() / (number - before[0]), says(match))
        if before is None or number > before[0] or (other and number == before[0]):
            before = (number, now)
    return found


def quantities(pairs: Iterable[tuple[str, str | None, float]]) -> dict[str, float]:
    """Facts in SI units from (name, text or None, unit); thousands may be told apart by commas."""
    return {name: float(text.replace(",", "")) * unit for name, text, unit in pairs if text}
