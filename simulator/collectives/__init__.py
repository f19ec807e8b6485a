"""Collectives and messages: what they take, and the bytes that they put on each link. One place for all of them.

An exchange is a `Collective`; how ranks do it is an `Algorithm`, a file and a line of ALGORITHMS. `machines` says what
is known of the ranks' nodes, `networks` what is between nodes, `wires`, `rings` and `uplinks` which links bytes cross.
"""

from collections.abc import Mapping

from .collective import Algorithm, Collective, Price, Stages
from .machines import Machine, Machines, effective_capacity
from .measured import Measured
from .networks import Networks, networks_of
from .rings import RingBroadcast, ring_broadcast

ALGORITHMS: Mapping[str, type[Algorithm]] = {"measured": Measured}
"""By name."""

DEFAULT_ALGORITHM = "measured"
"""The one that training steps exchange by."""

__all__ = [
    "ALGORITHMS", "DEFAULT_ALGORITHM", "Algorithm", "Collective", "Machine", "Machines", "Networks", "Price",
    "RingBroadcast", "Stages", "effective_capacity", "networks_of", "ring_broadcast",
]  # fmt: skip
