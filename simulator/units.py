"""Quantities at the boundary: text such as "400 Gb/s", "5.89 GiB" or "3 us" to SI floats, and back.

Inside the program every quantity is a plain float in SI units (seconds, bytes, bytes per second, FLOP/s); only this
module knows prefixes. `b` is a bit and `B` a byte; `k M G T P` are powers of 1000 and `Ki Mi Gi Ti` powers of 1024.
"""

import math
import re
from typing import Literal

Dimension = Literal["bytes", "bytes_per_s", "seconds", "flop_per_s", "watts"]

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_PREFIX = _DECIMAL | _BINARY
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

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
    "seconds": '"3 us", "0.5 ms" or "2 s"',
    "flop_per_s": '"989 TFLOP/s"',
    "watts": '"700 W"',
}
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ/]*)\s*")


def parse(text: str | int | float, dimension: Dimension) -> float:
    """Read a quantity of the given dimension; a bare number is already in the SI unit.

    Raises:
        ValueError: not a finite number with a unit of this dimension; the message says what is allowed.
    """
    allowed = f"expected a quantity such as {_EXAMPLE[dimension]}"
    if isinstance(text, bool):
        raise ValueError(allowed)
    if isinstance(text, int | float):
        return _finite(float(text), allowed)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(allowed)
    number, unit = match.groups()
    scale = 1.0 if unit == "" else _UNITS[dimension].get(unit)
    if scale is None:
        raise ValueError(f"unknown unit {unit!r}; {allowed}")
    return _finite(float(number) * scale, allowed)


def _finite(value: float, allowed: str) -> float:
    if not math.isfinite(value):
        raise ValueError(allowed)
    return value


def format_bytes(value: float) -> str:
    """Bytes as a reader sizes memory: `5.89 GiB`."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if abs(value) >= _BINARY[unit]:
            return f"{value / _BINARY[unit]:.3g} {unit}B"
    return f"{value:.0f} B"


def format_rate(value: float) -> str:
    """Bytes per second in powers of 1000, as networks are quoted: `71.7 GB/s`."""
    for unit in ("T", "G", "M", "k"):
        if abs(value) >= _DECIMAL[unit]:
            return f"{value / _DECIMAL[unit]:.3g} {unit}B/s"
    return f"{value:.3g} B/s"


def format_seconds(value: float) -> str:
    """A duration with three significant digits and a fitting unit: `1,260 s`, `14.4 s`, `310 ms`."""
    if abs(value) >= 1000:
        return f"{value:,.0f} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"
