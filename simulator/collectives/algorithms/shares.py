"""What algorithms reach between islands of what their bytes allow, and what their steps wait.

A profile says it (`algorithm.<op>.<name>.share` and `.steps`, which `runcast calibrate fit` writes); where it does not,
data/algorithms.toml has shares of NCCL's algorithms.
"""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ...base.files import read_toml
from ...profile import Profile
from .messages import Algorithm


class Share(NamedTuple):
    """A share of the rate of hops between islands, and a factor of each hop's latency; with relative deviations."""

    value: float = 1.0
    spread: float = 0.0
    steps: float = 1.0
    steps_spread: float = 0.0


def share_of(algorithm: Algorithm, device: str, profile: Profile) -> Share:
    """What a profile says of an algorithm, else what is shipped for the device; 1 if nothing is known of it."""
    share, steps = (profile.parameters.get(name) for name in names_of(algorithm))
    found = _shares().get((algorithm.op, algorithm.name, device), Share())
    found = found if share is None else found._replace(value=share.value, spread=share.spread)
    return found if steps is None else found._replace(steps=steps.value, steps_spread=steps.spread)


def names_of(algorithm: Algorithm) -> tuple[str, str]:
    """The names of its parameters in a profile: of its share, and of its steps."""
    own = f"algorithm.{algorithm.op}.{algorithm.name}"
    return f"{own}.share", f"{own}.steps"


@cache
def _shares() -> dict[tuple[str, str, str], Share]:
    table = read_toml(files("runcast.data") / "algorithms.toml")
    return {
        (op, name, device): Share(float(one["share"]), float(one["spread"]))
        for op, named in table.items()
        for name, devices in named.items()
        for device, one in devices.items()
    }
