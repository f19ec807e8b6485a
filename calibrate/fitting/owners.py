"""Whose a fitted parameter is: software's, a device's, a network's or an architecture's. Each rests on its like."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...simulator.answers.validate.steps import StepCase
from ...simulator.profile import (
    Profile,
    load_architecture,
    load_network,
    load_profile,
    load_stack,
    own_values,
)
from ...simulator.systems.train_step.terms import Chain, chain_of
from ...simulator.uncertainty import part_of


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
        """The owners whose factors multiply to a parameter of `of`: itself and its bases."""
        links = self.links(of)
        last = next((place for place, link in enumerate(links) if self.own and name in link.own), len(links))
        return [link.of for link in links[: last + 1]]

    def links(self, of: str) -> Chain:
        """One of them and those that it rests on, itself first."""
        return _links(self, of)

    def base_profile(self, of: str) -> Profile:
        """What its file and those below say, without what a fit has found."""
        return _unfitted(self, of)


@cache
def _links(owner: Owner, of: str) -> Chain:
    return chain_of(lambda name, _where: _unfitted(owner, name), of, "")


@cache
def _unfitted(owner: Owner, of: str) -> Profile:
    return owner.load(of, fitted=False)


SOFTWARE = Owner("stacks", lambda case: case.stack, load_stack, own=False)
DEVICE = Owner("profiles", lambda case: case.resolved.profile_name, load_profile)
NETWORK = Owner("networks", lambda case: case.resolved.cluster.fabric.network, load_network)
ARCHITECTURE = Owner("architectures", lambda case: case.resolved.spec.architecture, load_architecture)
OWNERS = (SOFTWARE, DEVICE, NETWORK, ARCHITECTURE)


def owner_of(name: str) -> Owner:
    """Whose a parameter of this name is."""
    return {"software": SOFTWARE, "device": DEVICE, "network": NETWORK, "architecture": ARCHITECTURE}[part_of(name)]


Entry = dict[str, Any]


def entry(value: float, spread: float, provenance: str, source: str) -> Entry:
    """A parameter as files have it: four digits of its value, three of its spread."""
    rounded = {"value": float(f"{value:.4g}"), "spread": float(f"{spread:.3g}")}
    return {**rounded, "provenance": provenance, "source": source}


Tables = Mapping[str, Mapping[str, Mapping[str, Entry]]]
"""Entries of fitted parameters, by table and owner."""


def statements(tables: Tables) -> dict[str, dict[str, dict[str, float]]]:
    """What the files of fitted owners state of parameters that a fit of their kind moves.

    Whoever loads them sees by it whether a file says something else since.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for table, fits in tables.items():
        moved = {name for entries in fits.values() for name in entries}
        own = {of: {name: value for name, value in own_values(table, of).items() if name in moved} for of in fits}
        if stating := {of: values for of, values in own.items() if values}:
            found[table] = stating
    return found
