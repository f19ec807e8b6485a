"""What an exchange between ranks is, and what its price is; how ranks do it is an algorithm, each a file beside this.

Bytes are those of nccl-tests: of all that is gathered, scattered or reduced, of what one rank sends in an all-to-all or
to its peer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .machines import Machines

Stages = Mapping[int, tuple[int, ...]]
"""For a rank those that do the same at the same time, itself included; ranks that are not there are alone."""


class Collective(NamedTuple):
    """An exchange: `op` is all_reduce, all_gather, …, or send_recv from the first rank of a group to the last.

    `beyond` are the bytes of an all-to-all that a rank sends to other islands once, to be passed on inside them; None
    if each copy goes by itself.
    """

    op: str
    group: tuple[int, ...]
    size: float
    beyond: float | None = None


@dataclass(frozen=True)
class Price:
    """What one rank's part takes alone: seconds, all of it shared work, and what it asks of links meanwhile.

    `spread` is relative, `provenance` indexes PROVENANCE, `demand` has bytes/s by link. `least_s` is what the wires
    that it crosses take at their line rates, with any software.
    """

    seconds: float
    spread: float
    provenance: int
    demand: Mapping[int, float] = field(default_factory=dict)
    least_s: float = 0.0


class Algorithm(Protocol):
    """How ranks of some machines exchange."""

    def __init__(self, machines: Machines, stages: Stages): ...

    def price(self, collective: Collective, rank: int) -> Price:
        """Of an exchange as one of its ranks takes part in it.

        Raises:
            UserError: the profile has no model for it, or the cluster no route.
        """
        ...
