"""Whose a fitted parameter is: software's, a device's, a network's or an architecture's. Each rests on its like."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...simulator.answers.validate.steps import StepCase
from ...simulator.profile import (
    SIBLING_WIDER,
    Parameter,
    Profile,
    load_architecture,
    load_network,
    load_profile,
    load_stack,
    stated_by,
)


@dataclass(frozen=True)
class Owner:
    """A kind of owner: its table in a file of fitted parameters, which one a row has, and how one is read by name.

    With `own` the factor of a base counts only as far as the first file that states a number; else all of them do.
    """

    table: str
    of_case: Callable[[StepCase], str]
    load: Callable[..., Profile]
    own: bool = True

    def chain(self, of: str, name: str) -> list[str]:
        """Those whose factors make a parameter of one of them: itself and what it rests on."""
        every = self.bases(of)
        stating = [place for place, one in enumerate(every) if self.states(one, name)] if self.own else []
        return every[: stating[0] + 1] if stating else every

    def bases(self, of: str) -> list[str]:
        """One of them and those that it rests on, itself first."""
        base = self.about(of).get("base")
        return [of, *(self.bases(base) if base else [])]

    def about(self, of: str) -> Mapping[str, Any]:
        """What its file tells of itself, such as its base."""
        return _unfitted(self, of).about

    def stated(self, of: str) -> Mapping[str, Parameter]:
        """What its file and those below say, without what a fit has found."""
        return _unfitted(self, of).parameters

    def states(self, of: str, name: str) -> bool:
        """Whether its own file has this parameter, not only what it rests on."""
        below = self.bases(of)[1:2]
        own, theirs = self.stated(of).get(name), self.stated(below[0]).get(name) if below else None
        return own is not None and (theirs is None or (own.value, own.source) != (theirs.value, theirs.source))


@cache
def _unfitted(owner: Owner, of: str) -> Profile:
    return owner.load(of, fitted=False)


SOFTWARE = Owner("stacks", lambda case: case.stack, load_stack, own=False)
DEVICE = Owner("profiles", lambda case: case.resolved.profile_name, load_profile)
NETWORK = Owner("networks", lambda case: case.resolved.cluster.fabric.network, load_network)
ARCHITECTURE = Owner("architectures", lambda case: case.resolved.spec.architecture, load_architecture)
OWNERS = (SOFTWARE, DEVICE, NETWORK, ARCHITECTURE)


def siblings(device: str) -> list[str]:
    """Of a device and those that it rests on, the ones of the generation of what they rest on."""
    return [of for of in DEVICE.bases(device) if DEVICE.about(of).get("wider", 1.0) <= SIBLING_WIDER]


def owner_of(name: str) -> Owner:
    """Whose a parameter of this name is."""
    if name.startswith(("gemm.", "grouped_gemm.", "attention.")):
        return DEVICE
    heads = {"network": NETWORK, "architecture": ARCHITECTURE}
    return heads.get(name.partition(".")[0], SOFTWARE)


def statements(tables: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, dict[str, float]]]:
    """What the files of fitted owners state of parameters that a fit of their kind moves.

    Whoever loads them sees by it whether a file says something else since.
    """
    return {table: found for table, fits in tables.items() if (found := _stated(table, fits))}


def _stated(table: str, fits: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    moved = {name for entries in fits.values() for name in entries}
    own = {of: {name: value for name, value in stated_by(table, of).items() if name in moved} for of in fits}
    return {of: values for of, values in own.items() if values}
