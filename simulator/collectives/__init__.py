"""Collectives and messages: their time, and the bytes that they put on each link.

An exchange is a `Collective`. An `Algorithm` prices it; a new algorithm is a file and a line of ALGORITHMS. `machines`
describes the ranks' nodes, `networks` the network between nodes; `wires` and `rings` find the links that bytes cross.
"""

from collections.abc import Mapping

from .collective import Algorithm, Collective, Price, Stages
from .machines import Machine, Machines, effective_capacity
from .measured import Measured
from .networks import Networks, networks_of
from .rings import RingBroadcast, ring_broadcast

ALGORITHMS: Mapping[str, type[Algorithm]] = {"measured": Measured}
"""The algorithms by name."""

DEFAULT_ALGORITHM = "measured"
"""The algorithm of exchanges in training steps."""

STREAMS = "streams"
"""How updates exchange, beside ALGORITHMS: as streams round NCCL's ring, link by link (`costs.ring`)."""

__all__ = [
    "ALGORITHMS", "DEFAULT_ALGORITHM", "STREAMS", "Algorithm", "Collective", "Machine", "Machines", "Networks", "Price",
    "RingBroadcast", "Stages", "effective_capacity", "networks_of", "ring_broadcast",
]  # fmt: skip
