"""What one accelerator is: its data sheet, from the catalogue, from a user's own file, or as changes to either.

How close kernels come to these limits belongs to profiles.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from ..base.errors import UserError, fault
from ..base.files import find_beside, path_beside, read_toml
from ..base.schema import Section, count, number, one_of, quantity, validate
from . import files

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

Dtype = Annotated[str, one_of(lambda: DTYPES)]
Rate = Annotated[float, quantity("bytes_per_s")]
Bandwidth = Annotated[float, quantity("bytes_per_s", least="1 MB/s", example="3.35 TB/s")]
Peak = Annotated[float, quantity("flop_per_s", least="1 MFLOP/s", example="989 TFLOP/s")]
Memory = Annotated[float, quantity("bytes", least="1 MiB", example="141 GiB")]
Cache = Annotated[float, quantity("bytes", least="64 KiB", example="50 MiB")]


class Device(Section):
    """One GPU model; aliases of fields are the keys of its file.

    `peak_flop_per_s` is dense (no sparsity) FLOP/s by dtype; a missing dtype has no fast path on this device. `like` is
    the device with the same chip, or the one that this one was changed from, whose profile serves both. It lends its
    profile only, never its price or power. `power_w` is
    what its board draws at most, `price_usd_per_hour` what it costs with its share of a server; None: not known.
    """

    name: str
    aliases: tuple[str, ...] = ()
    peak_flop_per_s: dict[Dtype, Peak]
    memory_bytes: Memory = Field(alias="memory")
    memory_bytes_per_s: Bandwidth
    sms: Annotated[int, count(1)]
    l2_bytes: Cache = Field(alias="l2")
    copy_engines: Annotated[int, count(1)]
    power_w: Annotated[float, quantity("watts")] | None = Field(None, alias="power")
    price_usd_per_hour: Annotated[float, number(0, 1e6)] | None = None
    like: str | None = None

    @property
    def lineage(self) -> tuple[str, ...]:
        """Its name, that of the device that it is `like`, and so on: a profile of any of them serves it."""
        names, like = [self.name], self.like
        while like is not None and like not in names:
            names.append(like)
            like = device(like).like
        return tuple(names)


def device(name: str | Mapping[str, Any], where: str = "device", key: str = "") -> Device:
    """The device of this name or alias; case, spaces, dashes and underscores do not matter.

    `name` may also be a TOML file of the same form as those of the catalogue, or a table `{ base = "h200", ... }` that
    changes some of its keys. A change of what the GPU does makes another GPU, whose price and power are not known
    unless the table states them.

    Raises:
        UserError: no such device, or a value that is not allowed.
    """
    if isinstance(name, Mapping):
        return _build(device_keys(name, where, key), where, f"{key}." if key else "")
    if isinstance(name, str) and not name.endswith(".toml"):
        return _shipped(files.find("devices", name, where, key or "name")[0])
    return _build(device_keys(name, where, key), str(path_beside(name, where)), "")


def device_keys(name: str | Mapping[str, Any], where: str = "device", key: str = "device") -> dict[str, Any]:
    """Every key of a device as written, such as one may change.

    Raises:
        UserError: no such device.
    """
    if isinstance(name, Mapping):
        return _over_base(files.plain(name, where, f"{key}." if key else ""), where, key)
    if not isinstance(name, str):
        raise UserError(fault(where, key, name, "expected a device's name, a .toml file or a table"))
    if name.endswith(".toml"):
        path = find_beside(name, where, key)
        keys: dict[str, Any] = files.plain(read_toml(path), str(path))
        return keys
    return files.plain(files.find("devices", name, where, key)[1])


def device_names() -> list[str]:
    """File names of all devices, one per device."""
    return list(files.names("devices"))


_OF_ONE_GPU = {"price_usd_per_hour", "power"}
"""What a GPU does not hand on to another one."""
_LABELS = {"name", "aliases", "like"} | _OF_ONE_GPU
"""Keys that may change on the same GPU."""


@cache
def _shipped(entry: str) -> Device:
    return _build(files.plain(files.table("devices", entry)), f"{entry}.toml", "")


def _over_base(changes: dict[str, Any], where: str, key: str) -> dict[str, Any]:
    prefix = f"{key}." if key else ""
    if "base" not in changes:
        return changes
    base = changes.pop("base")
    if not isinstance(base, str):
        raise UserError(fault(where, f"{prefix}base", base, "expected a device's name"))
    entry, table = files.find("devices", base, where, f"{prefix}base")
    known = files.plain(table)
    peaks = changes.get("peak_flop_per_s", {})
    if isinstance(peaks, Mapping):
        changes["peak_flop_per_s"] = {**known["peak_flop_per_s"], **peaks}
    if any(changes[key] != known.get(key) for key in changes.keys() - _LABELS):
        known = {key: value for key, value in known.items() if key not in _OF_ONE_GPU}
        known |= {"name": f"{entry}, changed", "like": known["name"]}
    return {**known, **changes}


def _build(keys: dict[str, Any], where: str, prefix: str) -> Device:
    if isinstance(like := keys.get("like"), str):
        keys["like"] = files.find("devices", like, where, f"{prefix}like")[1]["name"]
    return validate(Device, keys, where, prefix)
