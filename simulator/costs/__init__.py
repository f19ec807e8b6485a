"""Costs: from a Program, a Cluster and a Profile to seconds and demands on links."""

from .collective import RingBroadcast, ring_broadcast
from .costs import Costs, by_kind
from .update import cost_update, effective_capacity

__all__ = ["Costs", "RingBroadcast", "by_kind", "cost_update", "effective_capacity", "ring_broadcast"]
