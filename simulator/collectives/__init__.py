"""Collectives and messages: their time, and the bytes that they put on each link.

An exchange is a `Collective`; a `Pricer` prices it: `Measured` by a profile's fitted curves, `Chosen` by algorithms
that a scenario names. `algorithms` has these, one file each. `machines` describes the ranks' nodes, `networks` the
network between nodes; `wires` and `rings` find the links that bytes cross. `relays` writes the broadcasts of a Program
as the messages of their trees.
"""

from typing import Final

from .chosen import CURVES, MEASURED, Choice, Chosen, choice_of
from .collective import Collective, Price, Pricer, Stages, longest
from .layout import Layout
from .machines import Machine, Machines, effective_capacity
from .measured import Measured
from .networks import Networks, networks_of
from .relays import EXECUTED, relay
from .rings import RingBroadcast, ring_broadcast


def pricer(choice: Choice, machines: Machines, layout: Layout) -> Pricer:
    """What prices exchanges of steps, by the algorithms that are named."""
    return Chosen(machines, layout, choice) if choice else Measured(machines, layout)


def price_slowest(exchanges: Pricer, machines: Machines, collective: Collective) -> Price:
    """The price of an exchange on the slowest kind of node of its ranks, for which all others wait.

    Raises:
        UserError: as `Pricer.price`, of any of these kinds.
    """
    firsts = machines.one_of_each(collective.group)
    return longest(exchanges.price(collective, rank) for rank in firsts)


STREAMS: Final = "streams"
"""How updates exchange: as streams round NCCL's ring, link by link (`costs.ring`)."""

__all__ = [
    "CURVES", "EXECUTED", "MEASURED", "STREAMS", "Choice", "Chosen", "Collective", "Layout", "Machine", "Machines",
    "Measured", "Networks", "Price", "Pricer", "RingBroadcast", "Stages", "choice_of", "effective_capacity",
    "longest", "networks_of", "price_slowest", "pricer", "relay", "ring_broadcast",
]  # fmt: skip
