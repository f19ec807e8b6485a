"""Devices from the catalogue, from a user's own file, or as changes to either."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..base.errors import UserError, fault
from ..base.files import beside, read_toml
from . import files
from .checks import Check, checked, count, names, number, quantity, table, text
from .device import DTYPES, Device

_CHECKS: dict[str, Check] = {
    "name": text,
    "aliases": names,
    "memory": quantity("bytes"),
    "memory_bytes_per_s": quantity("bytes_per_s"),
    "sms": count(1),
    "l2": quantity("bytes"),
    "copy_engines": count(1),
    "power": quantity("watts"),
    "price_usd_per_hour": number(0, 1e6),
    "like": text,
    "peak_flop_per_s": table,
}
_PEAKS: dict[str, Check] = {dtype: quantity("flop_per_s") for dtype in DTYPES}


def device(name: str | Mapping[str, Any], where: str = "device", key: str = "") -> Device:
    """The device of this name or alias; case, spaces, dashes and underscores do not matter.

    `name` may also be a TOML file of the same form as those of the catalogue, or a table `{ base = "h200", ... }` that
    changes some of its keys.

    Raises:
        UserError: no such device, or a value that is not allowed.
    """
    if isinstance(name, Mapping):
        return _changed(name, where, f"{key}." if key else "")
    if not isinstance(name, str):
        raise UserError(fault(where, key, name, "expected a device's name, a .toml file or a table"))
    if name.endswith(".toml"):
        path = beside(name, where)
        return _build(read_toml(path), str(path), "")
    return _shipped(files.find("devices", name, where, key or "name")[0])


def described_device(name: str | Mapping[str, Any], where: str = "device", key: str = "device") -> dict[str, Any]:
    """Every key of a device as written, such as one may change; peaks as a table.

    Raises:
        UserError: no such device.
    """
    if isinstance(name, str) and name.endswith(".toml"):
        table: Mapping[str, Any] = read_toml(beside(name, where))
    elif isinstance(name, Mapping):
        table = _over_base(name, where, f"{key}.")
    else:
        table = files.find("devices", name, where, key)[1]
    plain = files.plain(table)
    return {**plain, "peak_flop_per_s": files.plain(plain.get("peak_flop_per_s", {}))}


def device_names() -> list[str]:
    """File names of all devices, one per device."""
    return list(files.tables("devices"))


@cache
def _shipped(entry: str) -> Device:
    return _build(files.tables("devices")[entry], f"{entry}.toml", "")


def _changed(changes: Mapping[str, Any], where: str, prefix: str) -> Device:
    return _build(_over_base(changes, where, prefix), where, prefix)


def _over_base(changes: Mapping[str, Any], where: str, prefix: str) -> dict[str, Any]:
    own = dict(changes)
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str):
        raise UserError(fault(where, f"{prefix}base", base, "expected a device's name"))
    entry, known = files.find("devices", base, where, f"{prefix}base")
    merged = {**known, "name": f"{entry}, changed", "like": known.get("like", known["name"]), **own}
    if isinstance(own.get("peak_flop_per_s"), Mapping):
        merged["peak_flop_per_s"] = {**known["peak_flop_per_s"], **own["peak_flop_per_s"]}
    return merged


def _build(raw: Mapping[str, Any], where: str, prefix: str) -> Device:
    v = checked(files.plain(raw), _CHECKS, where, prefix, optional=("aliases", "price_usd_per_hour", "like"))
    like = files.find("devices", v["like"], where, f"{prefix}like")[1]["name"] if "like" in v else None
    peaks = checked(files.plain(v["peak_flop_per_s"]), _PEAKS, where, f"{prefix}peak_flop_per_s.", optional=DTYPES)
    return Device(
        name=v["name"],
        aliases=v.get("aliases", ()),
        peak_flop_per_s=peaks,
        memory_bytes=v["memory"],
        memory_bytes_per_s=v["memory_bytes_per_s"],
        sms=v["sms"],
        l2_bytes=v["l2"],
        copy_engines=v["copy_engines"],
        power_w=v["power"],
        price_usd_per_hour=v.get("price_usd_per_hour"),
        like=like,
    )
