"""The file that perftest writes with `--out_json`: `test_info` with the settings, `results` with one row or several.

The file does not say the unit of BW_average, so it is the one in which the rate agrees with MsgSize x MsgRate.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .found import Found
from .options import Options
from .perftest import RATES, Test, add, add_rate, titled
from .printed import Printed, from_json, table

_AGREE = 0.02
"""Relative; the units are 8 % and more apart."""


def recognises(root: object) -> bool:
    """Whether a JSON file is one of perftest."""
    return isinstance(root, Mapping) and "test_info" in root and isinstance(root.get("results"), Mapping | list)


def read(root: Mapping[str, Any], found: Found, options: Options) -> None:
    """All rows of a file.

    Raises:
        UserError: no --device.
    """
    test = _test(table(root["test_info"]))
    results = root["results"]
    rows = results if isinstance(results, list) else [results]
    for index, row in enumerate(rows):
        place = f"results[{index}]" if isinstance(results, list) else "results"
        if test is None or not isinstance(row, Mapping):
            found.leave(place, "the test has no cost class" if test is None else "not a table")
        else:
            _add(test, place, row, found, options)


def _test(info: Mapping[str, Any]) -> Test | None:
    test = titled(str(info.get("test", "")))
    qps, mtu = info.get("Number_of_qps"), info.get("Mtu")
    return replace(test, qps=qps if isinstance(qps, int) else 1, mtu=str(mtu or "")) if test else None


def _add(test: Test, place: str, row: Mapping[str, Any], found: Found, options: Options) -> None:
    size = from_json(row.get("MsgSize"))
    if size is None:
        return found.leave(place, "no MsgSize")
    if test.latency:
        return _add_latency(test, place, int(size.value), row, found, options)
    rate, messages = from_json(row.get("BW_average")), from_json(row.get("MsgRate"))
    if rate is None or messages is None:
        return found.leave(place, "no BW_average or MsgRate")
    bytes_per_s = _agreeing(rate.value, size.value * messages.value * 1e6)
    if bytes_per_s is None:
        return found.leave(place, "BW_average in no unit is MsgSize x MsgRate")
    add_rate(test, place, int(size.value), Printed(bytes_per_s, 0.0), None, found, options)


def _add_latency(test: Test, place: str, size: int, row: Mapping[str, Any], found: Found, options: Options) -> None:
    time = from_json(row.get("t_typical")) or from_json(row.get("t_avg"))
    if time is None:
        return found.leave(place, "no t_typical")
    if "t_typical" not in row:
        found.note("t_typical is not given (-D): t_avg is used")
    add(test, place, size, time.value * 1e-6, found, options)


def _agreeing(rate: float, bytes_per_s: float) -> float | None:
    """The rate in bytes/s, in the unit that comes nearest to bytes/s; None where none is near."""
    best = min((rate * unit for unit in RATES.values()), key=lambda value: abs(value - bytes_per_s))
    return best if bytes_per_s > 0 and abs(best / bytes_per_s - 1) <= _AGREE else None
