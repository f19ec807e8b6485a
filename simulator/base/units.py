"""Quantities at the boundary: text such as "400 Gb/s", "5.89 GiB" or "3 us" to SI floats, and back.

Inside the program every quantity is a plain float in SI units (seconds, bytes, bytes per second, FLOP/s); only this
module knows prefixes. `b` is a bit and `B` a byte; `k M G T P` are powers of 1000 and `Ki Mi Gi Ti` powers of 1024.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

Dimension = Literal["bytes", "bytes_per_s", "seconds", "flop_per_s", "watts"]

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_PREFIX = _DECIMAL | _BINARY
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}

_UNITS: dict[Dimension, dict[str, float]] = {
    "bytes": {f"{p}B": x for p, x in _PREFIX.items()},
    "bytes_per_s": {f"{p}B/s": x for p, x in _PREFIX.items()} | {f"{p}b/s": x / 8 for p, x in _PREFIX.items()},
    "seconds": _SECONDS,
    "flop_per_s": {f"{p}FLOP/s": x for p, x in _DECIMAL.items()} | {f"{p}FLOPS": x for p, x in _DECIMAL.items()},
    "watts": {"W": 1.0, "kW": 1e3},
}
_EXAMPLE: dict[Dimension, str] = {
    "bytes": '"8 GiB" or "6.3 GB"',
    "bytes_per_s": '"400 Gb/s" or "55 GB/s"',
    "seconds": '"3 us", "0.5 ms", "2 s" or "30 d"',
    "flop_per_s": '"989 TFLOP/s"',
    "watts": '"700 W"',
}
_MOST_DIGITS = 9
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ/]*)\s*")


def parse(text: Any, dimension: Dimension) -> float:
    """Read a quantity of the given dimension from text; a bare number is already in the SI unit.

    Raises:
        ValueError: not a finite number, or text with a unit of this dimension; the message says what is allowed.
    """
    allowed = f"expected a quantity such as {_EXAMPLE[dimension]}"
    number, unit = _split(text, allowed)
    if unit and unit not in _UNITS[dimension]:
        raise ValueError(f"unknown unit {unit!r}; {allowed}")
    return _finite(number * _UNITS[dimension].get(unit, 1.0), allowed)


def quantity(value: Any) -> tuple[float, Dimension | None]:
    """A number, or a quantity of any dimension, in SI units; and the dimension of its unit (None: it has no unit).

    Raises:
        ValueError: neither.
    """
    allowed = f"{value!r} is neither a number nor a quantity such as '80 GiB' or '2 s'"
    number, unit = _split(value, allowed)
    if not unit:
        return _finite(number, allowed), None
    for dimension, units in _UNITS.items():
        if unit in units:
            return _finite(number * units[unit], allowed), dimension
    raise ValueError(allowed)


def _split(value: Any, allowed: str) -> tuple[float, str]:
    """Number and unit, which is empty where there is none."""
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        return float(match[1]), match[2]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(allowed)
    try:
        return float(value), ""
    except OverflowError:
        raise ValueError("is too large") from None


def parse_share(text: str) -> float:
    """`5%` or `0.05` as a number; a ValueError if it is neither."""
    return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)


def times(quantity: Any, factor: float) -> str | int | float:
    """A quantity, as text with its unit or as a bare number, multiplied; a whole number stays one.

    Raises:
        ValueError: not a quantity, or a whole number that would become a fraction.
    """
    number, unit = _split(quantity, "is not a quantity")
    if isinstance(quantity, str):
        return f"{number * factor:.12g} {unit}".strip()
    product = quantity * factor
    if isinstance(quantity, int):
        if product != int(product):
            raise ValueError("is no whole number")
        return int(product)
    return product


def _finite(value: float, allowed: str) -> float:
    if not math.isfinite(value):
        raise ValueError(allowed)
    return value


def format_bytes(value: float) -> str:
    """Bytes as a reader sizes memory: `5.89 GiB`."""
    unit, size = memory_unit(value)
    number = value / size
    return f"{number:,.0f} {unit}" if size == 1 or abs(number) >= 999.5 else f"{number:.3g} {unit}"


def memory_unit(value: float) -> tuple[str, float]:
    """The largest unit that so many bytes reach, and its bytes: `("GiB", 2**30)`."""
    reached = (unit for unit in ("Ti", "Gi", "Mi", "Ki") if abs(value) >= _BINARY[unit])
    unit = next(reached, "")
    return f"{unit}B", _BINARY.get(unit, 1.0)


def format_rate(value: float) -> str:
    """Bytes per second in powers of 1000, as networks are quoted: `71.7 GB/s`."""
    return format_decimal(value, "B/s")


def format_decimal(value: float, unit: str) -> str:
    """An amount with three significant digits, in powers of 1000 of its unit: `424 GFLOP`."""
    for prefix in ("T", "G", "M", "k"):
        if abs(value) >= _DECIMAL[prefix]:
            return f"{value / _DECIMAL[prefix]:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def format_seconds(value: float, digits: int = 3) -> str:
    """A duration with three significant digits, or more, and a fitting unit: `1,260 s`, `14.4 s`, `310 ms`."""
    if abs(value) >= 1000:
        return f"{value:,.{max(digits - 4, 0)}f} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= scale:
            return f"{value / scale:.{digits}g} {unit}"
    return f"{value / 1e-9:.{digits}g} ns" if value else "0 s"


def format_long(value: float, digits: int = 3) -> str:
    """A duration that may be weeks: hours from two of them on, and days likewise, with three digits or more."""
    for unit, seconds in (("days", _SECONDS["d"]), ("h", _SECONDS["h"])):
        if abs(value) >= 2 * seconds:
            return f"{_some_digits(value / seconds, digits)} {unit}"
    return format_seconds(value, digits)


def _some_digits(value: float, digits: int) -> str:
    """The digits that count, or all before the point: `1.81`, `1,810`."""
    return f"{value:,.{max(digits - 4, 0)}f}" if abs(value) >= 999.5 else f"{value:.{digits}g}"


def digits_apart(value: float, others: Iterable[float], least: float = 5e-4) -> int:
    """The number of digits that show every difference to other durations above `least` of this one."""
    different = [other for other in others if abs(other - value) > least * abs(value)]
    for digits in range(3, _MOST_DIGITS):
        text = format_long(value, digits)
        if all(format_long(other, digits) != text for other in different):
            return digits
    return _MOST_DIGITS


def format_count(count: int, what: str) -> str:
    """`1 micro-batch`, `2,048 micro-batches`: a count of what has a plain plural."""
    ending = "" if count == 1 else "es" if what.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{count:,} {what}{ending}"


def format_usd(value: float) -> str:
    """US dollars, with cents below $1,000 and three digits that count below ten cents: `$1,234`, `$1.50`, `$0.0123`."""
    if abs(value) >= 1000:
        return f"${value:,.0f}"
    return f"${value:.2f}" if abs(value) >= 0.1 or not value else f"${value:.3g}"


def format_probability(value: float) -> str:
    """A probability in whole percent; above 99 % and below 1 % only that it is."""
    return f"{value:.0%}" if 0.01 <= value <= 0.99 else "over 99%" if value > 0.5 else "under 1%"


def format_named(name: str, value: float) -> str:
    """A number of a report as its name says: `mfu` as a share, `peak_memory_bytes` and `cost_usd` with a unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    for end, form in _NAMED.items():
        if name.endswith(end):
            return form(value)
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def format_energy(joules: float) -> str:
    """Energy as it is billed, with three significant digits: `12.3 kWh`, `845 Wh`, `1,230 MWh`."""
    if (mwh := joules / 3.6e9) >= 1000:
        return f"{mwh:,.0f} MWh"
    for scale, unit in ((3.6e9, "MWh"), (3.6e6, "kWh"), (3.6e3, "Wh")):
        if joules >= scale:
            return f"{joules / scale:.3g} {unit}"
    return f"{joules:.3g} J"


def _four_digits(value: float) -> str:
    """Four digits that count, or all before the point: `0.3673`, `1,234,567`."""
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:,.4g}"


_NAMED: Mapping[str, Callable[[float], str]] = {
    **dict.fromkeys(
        ("mfu", "mfu_full_attention", "bubble_fraction", "_share", "_idle", "slots_busy", "goodput"), "{:.1%}".format
    ),
    **dict.fromkeys(
        ("_usd", "_usd_per_million_tokens", "_usd_of_pause", "_usd_total"), lambda value: f"${_four_digits(value)}"
    ),
    **dict.fromkeys(("tokens_per_s", "requests_per_s", "tokens_per_s_per_gpu"), "{:,.1f}".format),
    "_probability": format_probability,
    "bytes_per_s": format_rate,
    "bytes": format_bytes,
    "_s": format_long,
    "_kwh": _four_digits,
}
"""How numbers are written, by how their names end."""
