"""Logs of perftest, text and JSON: bandwidth and latency of RDMA verbs over one NIC.

Text is a title, settings, a header that begins with `#bytes`, rows, and dashes; warnings anywhere, and several tests
may follow one another. The header names the unit, and which columns there are: those of releases, of `--report_gbits`,
of durations (`-D`, which know t_avg only) and of CPU use differ. The file of `--out_json` has `test_info` with the
settings and `results` with one row or several; it does not say the unit of BW_average, so it is the one in which the
rate agrees with MsgSize x MsgRate.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .log import Found, Line, Place, Printed, from_json, parse_number

RATES = {"MiB": float(1 << 20), "MB": float(1 << 20), "Gb": 1e9 / 8}
"""Bytes per second in the unit of a header, by its first letters."""

_TITLE = re.compile(r"\b(RDMA_Write|RDMA_Read|Send)\s+(Bidirectional\s+)?(?:Post List\s+)?(BW|Latency) Test", re.I)
_SLACK = 0.01
"""Relative; the rate of messages is measured beside the bandwidth."""


@dataclass(frozen=True)
class Test:
    """Which verb was tested, how, and on what; `gpus` are names where GPU memory was used.

    Its cost class is called `nic.write`, `nic.write_latency`, `nic.write.bidirectional`.
    """

    verb: str
    latency: bool
    both_ways: bool = False
    qps: int = 1
    mtu: str = ""
    gpus: frozenset[str] = frozenset()


def _test_of(title: str) -> Test | None:
    """The test of a title such as `RDMA_Write BW Test`; None for one that has no cost class."""
    match = _TITLE.search(title)
    if match is None:
        return None
    return Test(match[1].lower().removeprefix("rdma_"), match[3].lower() == "latency", bool(match[2]))


def _add_rate(
    test: Test, place: Place, size: int, bytes_per_s: Printed, messages_per_s: Printed | None, found: Found
) -> None:
    """A row of a bandwidth test; left out where its two rates contradict each other."""
    if bytes_per_s.value <= 0 or size <= 0:
        return found.leave(place, "rate is zero")
    if messages_per_s is not None and messages_per_s.value > 0:
        low, high = size * messages_per_s.low * (1 - _SLACK), size * messages_per_s.high * (1 + _SLACK)
        if bytes_per_s.high < low or bytes_per_s.low > high:
            return found.leave(place, "average rate is not bytes x MsgRate")
    _add(test, place, size, (2 if test.both_ways else 1) * size / bytes_per_s.value, found)


def _add_latency(
    test: Test, place: Place, size: int, typical: Printed | None, mean: Printed | None, found: Found
) -> None:
    """A row of a latency test; tests of a duration (-D) know the mean alone."""
    time = typical or mean
    if time is None:
        return found.leave(place, "no t_typical")
    if typical is None:
        found.note("t_typical is not given (-D): t_avg is used")
    _add(test, place, size, time.value * 1e-6, found)


def _add(test: Test, place: Place, size: int, seconds: float, found: Found) -> None:
    """A sample of one message."""
    if seconds <= 0 or size <= 0:
        return found.leave(place, "time is zero")
    network = found.options.network
    link = network.nic_bytes_per_s or network.node_bytes_per_s if network else None
    features = {"bytes": float(size), **({"link_bytes_per_s": link} if link else {})}
    kind = f"nic.{test.verb}{'_latency' if test.latency else ''}{'.bidirectional' if test.both_ways else ''}"
    group = f"{kind}{f' mtu {test.mtu}' if test.mtu else ''}"
    library = found.options.library or f"perftest qps={test.qps}"
    found.add(place, kind, seconds, found.device(test.gpus), library, group, features)


_HEADER = re.compile(r"#bytes\s+#")
_COLUMN = re.compile(r"#\w+|(?:BW |MsgRate |\S+% )?[^\s\[\]]+\[[^\]]*\]")
_UNIT = re.compile(r"\[(\w+)/sec\]")
_QPS = re.compile(r"Number of qps\s*:\s*(\d{1,9})")
_MTU = re.compile(r"\bMtu\s*:\s*(\d+)")
_GPU = re.compile(r"device name = \[([^\]]+)\]")


MARKS = (_HEADER,)
"""What shows that a log holds a table of perftest."""


def read_text(lines: Sequence[Line], found: Found) -> None:
    """All tests of a log."""
    test: Test | None = None
    columns: list[str] = []
    gpus: frozenset[str] = frozenset()
    for number, text in lines:
        if re.search(r"\b(?:BW|Latency) Test\b", text):
            test, columns = _test_of(text), []
            test = replace(test, gpus=gpus) if test else None
        elif match := _GPU.search(text):
            gpus |= {match[1]}
        elif _HEADER.search(text):
            columns = _COLUMN.findall(text)
        elif columns and re.match(r"\s*#?\s*\d+\s+\d+\s", text):
            _add_row(test, number, text.replace("#", " ").split(), columns, found)
        elif text.lstrip("# ").startswith("-----"):
            columns = []
        elif test is not None and (match := _QPS.search(text)):
            test = replace(test, qps=int(match[1]))
        elif test is not None and (match := _MTU.search(text)):
            test = replace(test, mtu=match[1])


def _add_row(test: Test | None, number: int, tokens: list[str], columns: list[str], found: Found) -> None:
    if test is None:
        return found.leave(number, "the test has no cost class, or its title is missing")
    values = [parse_number(token) for token in tokens]
    if len(values) != len(columns) or None in values:
        return found.leave(number, f"row has {len(tokens)} values; expected {len(columns)} numbers")
    row = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
    size = int(row["#bytes"].value)
    if test.latency:
        return _add_latency(test, number, size, row.get("t_typical[usec]"), row.get("t_avg[usec]"), found)
    name = next((column for column in row if column.lower().startswith("bw average[")), "")
    unit = _UNIT.search(name)
    if unit is None or unit[1] not in RATES:
        return found.leave(number, "no average rate in MiB/sec, MB/sec or Gb/sec")
    messages = row.get("MsgRate[Mpps]")
    messages_per_s = _scaled(messages, 1e6) if messages else None
    _add_rate(test, number, size, _scaled(row[name], RATES[unit[1]]), messages_per_s, found)


def _scaled(number: Printed, unit: float) -> Printed:
    return Printed(number.value * unit, number.step * unit)


_AGREE = 0.02
"""Relative; the units are 8 % and more apart."""


def read_json(info: Mapping[str, Any], results: Mapping[str, Any] | list[Any], found: Found, at: str = "") -> None:
    """All rows of a run; `at` is put before their places."""
    qps, mtu = info.get("Number_of_qps"), info.get("Mtu")
    test = _test_of(str(info.get("test", "")))
    test = replace(test, qps=qps if isinstance(qps, int) else 1, mtu=str(mtu or "")) if test else None
    rows = results if isinstance(results, list) else [results]
    for index, row in enumerate(rows):
        place = f"{at}results[{index}]" if isinstance(results, list) else f"{at}results"
        if test is None or not isinstance(row, Mapping):
            found.leave(place, "the test has no cost class" if test is None else "not a table")
        else:
            _add_json(test, place, row, found)


def _add_json(test: Test, place: str, row: Mapping[str, Any], found: Found) -> None:
    size = from_json(row.get("MsgSize"))
    if size is None:
        return found.leave(place, "no MsgSize")
    if test.latency:
        times = from_json(row.get("t_typical")), from_json(row.get("t_avg"))
        return _add_latency(test, place, int(size.value), *times, found)
    rate, messages = from_json(row.get("BW_average")), from_json(row.get("MsgRate"))
    if rate is None or messages is None:
        return found.leave(place, "no BW_average or MsgRate")
    expected = size.value * messages.value * 1e6
    bytes_per_s = min((rate.value * unit for unit in RATES.values()), key=lambda value: abs(value - expected))
    if expected <= 0 or abs(bytes_per_s / expected - 1) > _AGREE:
        return found.leave(place, "BW_average in no unit is MsgSize x MsgRate")
    _add_rate(test, place, int(size.value), Printed(bytes_per_s, 0.0), None, found)
