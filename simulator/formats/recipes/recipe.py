"""What was found in a recipe: the scenario it says, and an account of every line of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Machine:
    """The cluster a scenario names, and what of it decides how a recipe is read."""

    cluster: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    def __str__(self) -> str:
        return f"the {self.gpus} GPUs ({self.nodes} x {self.gpus_per_node}, {self.cluster})"


@dataclass(frozen=True)
class Recipe:
    """A scenario from the file of another tool.

    `table` is the scenario as plain values, without the model where that is `config`: keys of a Hugging Face config
    that go into a file of their own. Every argument of the file is in `read`, `untimed` (no part of a step's time),
    `not_modelled` (with a reason) or `unknown` (with near misses); `assumed` is what the file left open.
    """

    form: str
    table: Mapping[str, Any]
    config: Mapping[str, Any] | None
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    untimed: tuple[str, ...]
    not_modelled: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass
class Notes:
    """The account while a recipe is read: lists that grow, faults among them."""

    faults: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
