"""What perftest prints: a title, settings, a header that begins with `#bytes`, rows, and dashes; warnings anywhere.

Several tests may follow one another. The header names the unit, and which columns there are: those of releases, of
`--report_gbits`, of durations (`-D`, which know t_avg only) and of CPU use differ.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from .found import Found
from .lines import Line
from .options import Options
from .perftest import RATES, Test, add, add_rate, titled
from .printed import Printed, printed

_HEADER = re.compile(r"#bytes\s+#")
_COLUMN = re.compile(r"#\w+|(?:BW |MsgRate |\S+% )?[^\s\[\]]+\[[^\]]*\]")
_UNIT = re.compile(r"\[(\w+)/sec\]")
_QPS = re.compile(r"Number of qps\s*:\s*(\d{1,9})")
_MTU = re.compile(r"\bMtu\s*:\s*(\d+)")
_GPU = re.compile(r"device name = \[([^\]]+)\]")


def recognises(lines: Sequence[Line]) -> bool:
    """Whether the log holds a table of perftest."""
    return any(_HEADER.search(text) for _, text in lines)


def read(lines: Sequence[Line], found: Found, options: Options) -> None:
    """All tests of a log.

    Raises:
        UserError: what the log does not say and the options neither.
    """
    test: Test | None = None
    columns: list[str] = []
    gpus: frozenset[str] = frozenset()
    for number, text in lines:
        if re.search(r"\b(?:BW|Latency) Test\b", text):
            test, columns = titled(text), []
            test = replace(test, gpus=gpus) if test else None
        elif match := _GPU.search(text):
            gpus |= {match[1]}
        elif _HEADER.search(text):
            columns = _COLUMN.findall(text)
        elif columns and re.match(r"\s*#?\s*\d+\s+\d+\s", text):
            _add_row(test, number, text.replace("#", " ").split(), columns, found, options)
        elif text.lstrip("# ").startswith("-----"):
            columns = []
        elif test is not None:
            test = _setting(test, text)


def _setting(test: Test, text: str) -> Test:
    if match := _QPS.search(text):
        return replace(test, qps=int(match[1]))
    if match := _MTU.search(text):
        return replace(test, mtu=match[1])
    return test


def _add_row(
    test: Test | None, number: int, tokens: list[str], columns: list[str], found: Found, options: Options
) -> None:
    if test is None:
        return found.leave(number, "the test has no cost class, or its title is missing")
    values = [printed(token) for token in tokens]
    if len(values) != len(columns) or None in values:
        return found.leave(number, f"row has {len(tokens)} values; expected {len(columns)} numbers")
    row = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
    (_add_latency if test.latency else _add_bandwidth)(test, number, row, found, options)


def _add_latency(test: Test, number: int, row: dict[str, Printed], found: Found, options: Options) -> None:
    time = row.get("t_typical[usec]", row.get("t_avg[usec]"))
    if time is None:
        return found.leave(number, "no t_typical")
    if "t_typical[usec]" not in row:
        found.note("t_typical is not given (-D): t_avg is used")
    add(test, number, int(row["#bytes"].value), time.value * 1e-6, found, options)


def _add_bandwidth(test: Test, number: int, row: dict[str, Printed], found: Found, options: Options) -> None:
    name = next((column for column in row if column.lower().startswith("bw average[")), "")
    unit = _UNIT.search(name)
    if unit is None or unit[1] not in RATES:
        return found.leave(number, "no average rate in MiB/sec, MB/sec or Gb/sec")
    rate = _scaled(row[name], RATES[unit[1]])
    messages = row.get("MsgRate[Mpps]")
    add_rate(test, number, int(row["#bytes"].value), rate, _scaled(messages, 1e6) if messages else None, found, options)


def _scaled(number: Printed, unit: float) -> Printed:
    return Printed(number.value * unit, number.step * unit)
