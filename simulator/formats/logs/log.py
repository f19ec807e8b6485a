"""What formats of training logs share: a step as a line tells it, and a format as a value."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
"""A number whose thousands may be told apart by commas, as `number_of` reads it."""
SIGNED = rf"-?{NUMBER}"
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{1,6})")
_RATES = ("tokens_per_s_per_gpu", "flop_per_s_per_gpu")


class Line(NamedTuple):
    """A step as the log tells it: seconds, and what else its line says, in SI units."""

    seconds: float
    says: Mapping[str, float]


class Format(NamedTuple):
    """A format of logs: its name, whose it is, and how the steps of one run are found in its text, by number.

    `marks` matches the numbers of steps (a group), and without a group what is printed where a run starts: by them the
    runs of one file are told apart. `seconds_are` says of what the seconds are a mean, if not of the iterations since
    the line before. `facts` are found in other lines of the text. `allocated` is whether memory_bytes are what torch
    gave out at most, not what its allocator took from the device. `fault` says why what it tells is no time of a step;
    empty where it is one. `notes` are what was taken out of the seconds, and what the text cannot tell.
    """

    name: str
    software: str
    lines: Callable[[str], dict[int, Line]]
    marks: re.Pattern[str] | None = None
    seconds_are: str = ""
    facts: Callable[[str], dict[str, float]] = lambda text: {}
    allocated: bool = True
    fault: Callable[[str], str] = lambda text: ""
    notes: Callable[[str], Iterable[str]] = lambda text: ()


BY_CLOCK = "seconds of a step are those between the times of two lines over the steps between them"


def lines_by_clock(
    text: str,
    step: re.Pattern[str],
    says: Callable[[re.Match[str]], dict[str, float]],
    between: re.Pattern[str] | None = None,
    pause: re.Pattern[str] | None = None,
    halt: re.Pattern[str] | None = None,
) -> dict[int, Line]:
    """Steps between the clocks of two lines that `step` matches, with the number of the step as its first group.

    The first line has no step before it, nor has a line whose number is not above that of the last one. Where a line
    that `between` matches says that other work has ended after a step, the next steps start there. A line that `pause`
    matches says how many seconds other work took until then, or since the line before if it has no clock; where it does
    not, the work began at the last line that `halt` matches. They are no part of a step, and a rate that counts them is
    left out.
    """
    found: dict[int, Line] = {}
    since: _Start | None = None
    halted: datetime | None = None
    for line in text.splitlines():
        paused = pause.search(line) if pause else None
        other = between.search(line) if between else None
        match, now = paused or other or step.search(line), _clock(line)
        if halt and halt.search(line):
            halted = now
        if paused:
            since = since and since.pause(now, _length(paused, now, halted))
        if paused or not match or not now:
            continue
        number = int(match[1])
        if since and number > since.number and not other:
            found[number] = since.line(number, now, says(match))
        if since is None or number > since.number or (other and number == since.number):
            since = _Start(number, now, now)
    return found


def _length(pause: re.Match[str], now: datetime | None, halted: datetime | None) -> timedelta:
    """How long other work took: as its line says, else since it began; nothing where neither is known."""
    if pause[1]:
        return timedelta(seconds=number_of(pause[1]))
    return now - halted if now and halted else timedelta(0)


def _clock(line: str) -> datetime | None:
    clock = _CLOCK.search(line)
    return datetime.fromisoformat(f"{clock[1]} {clock[2]}.{clock[3]:0<6}") if clock else None


class _Start(NamedTuple):
    """Where the next steps start: behind a step by its number, at a time; other work paused them, last until a time."""

    number: int
    at: datetime
    paused_until: datetime
    paused: timedelta = timedelta(0)

    def pause(self, now: datetime | None, took: timedelta) -> "_Start":
        """Other work took so long until now; of ranks that pause at once each time counts once, where a clock tells."""
        if now is None:
            return self._replace(paused=self.paused + took)
        begin = max(now - took, self.paused_until)
        more = max(now - begin, timedelta(0))
        return self._replace(paused=self.paused + more, paused_until=max(now, self.paused_until))

    def line(self, number: int, now: datetime, says: Mapping[str, float]) -> Line:
        """The mean step from here to a line with this number."""
        seconds = (now - self.at - self.paused).total_seconds() / (number - self.number)
        return Line(seconds, {name: value for name, value in says.items() if name not in _RATES or not self.paused})


def number_of(text: str) -> float:
    """The value of a `NUMBER`, with a sign or without."""
    return float(text.replace(",", ""))


def quantities(pairs: Iterable[tuple[str, str | None, float]]) -> dict[str, float]:
    """Facts in SI units from (name, text or None, unit)."""
    return {name: number_of(text) * unit for name, text, unit in pairs if text}
