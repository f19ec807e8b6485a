"""The devices of the catalogue, read from `data/hardware/devices`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..units import parse
from . import files
from .device import DTYPES, Device


def device(name: str, where: str = "device", key: str = "") -> Device:
    """The device of this name or alias; case, spaces, dashes and underscores do not matter.

    Raises:
        UserError: no such device.
    """
    return _load(files.find("devices", name, where, key or "name")[0])


def device_names() -> list[str]:
    """File names of all devices, one per device."""
    return list(files.tables("devices"))


@cache
def _load(entry: str) -> Device:
    table = files.tables("devices")[entry]
    v = files.plain(table)
    peaks = files.plain(table["peak_flop_per_s"])
    return Device(
        name=v["name"],
        aliases=tuple(v["aliases"]),
        peak_flop_per_s={dtype: parse(peaks[dtype], "flop_per_s") for dtype in DTYPES if dtype in peaks},
        memory_bytes=parse(v["memory"], "bytes"),
        memory_bytes_per_s=parse(v["memory_bytes_per_s"], "bytes_per_s"),
        sms=v["sms"],
        l2_bytes=parse(v["l2"], "bytes"),
        copy_engines=v["copy_engines"],
        power_w=parse(v["power"], "watts"),
        price_usd_per_hour=_price(v),
    )


def _price(values: Mapping[str, Any]) -> float | None:
    price = values.get("price_usd_per_hour")
    return None if price is None else float(price)
