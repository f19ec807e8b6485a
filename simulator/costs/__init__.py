"""Costs: from a Program, a Cluster and a Profile to seconds and demands on links."""

from .collective import RingBroadcast, ring_broadcast
from .costs import Costs, by_kind
from .pricing import Store, effective_capacity
from .train import EXCHANGES, Price, cost_train
from .update import cost_update

__all__ = [
    "EXCHANGES", "Costs", "Price", "RingBroadcast", "Store", "by_kind", "cost_train", "cost_update",
    "effective_capacity", "ring_broadcast",
]  # fmt: skip
