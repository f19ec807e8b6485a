"""What NCCL's algorithms reach between islands, as a share of what their bytes allow: data/algorithms.toml."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ...base.files import read_toml
from .messages import Algorithm


class Share(NamedTuple):
    """A share of the rate of hops between islands, and its relative standard deviation."""

    value: float = 1.0
    spread: float = 0.0


def share_of(algorithm: Algorithm, device: str) -> Share:
    """The share fitted to an algorithm on a device; 1 if nothing says that it reaches less than its bytes allow."""
    return _shares().get((algorithm.op, algorithm.name, device), Share())


@cache
def _shares() -> dict[tuple[str, str, str], Share]:
    table = read_toml(files("runcast.data") / "algorithms.toml")
    return {
        (op, name, device): Share(float(one["share"]), float(one["spread"]))
        for op, named in table.items()
        for name, devices in named.items()
        for device, one in devices.items()
    }
