"""Costs: from a Program, a Cluster and a Profile to seconds and demands on links."""

from .costs import Costs, by_kind
from .forms import cost
from .geometry import RingBroadcast, ring_broadcast
from .kernels import HEAD_MULTIPLE, PRODUCT_TYPE, UNALIGNED, misaligned
from .machines import effective_capacity
from .networks import Networks, networks_of
from .phases import BUSY, COMPUTE, EXCHANGES, OF_LAYERS, PHASES, WAITS, phase_of_lane, phase_of_op
from .pricing import Store
from .sheet import Price

__all__ = [
    "BUSY", "COMPUTE", "EXCHANGES", "HEAD_MULTIPLE", "OF_LAYERS", "PHASES", "PRODUCT_TYPE", "UNALIGNED", "WAITS",
    "Costs", "Networks", "Price", "RingBroadcast", "Store", "by_kind", "cost",
    "effective_capacity", "misaligned", "networks_of", "phase_of_lane", "phase_of_op", "ring_broadcast",
]  # fmt: skip
