"""Leaf switches under one ideal spine: `rail`, `leaf`, and `single`, no network at all.

All spine switches, and any tier above them, are one vertex; a leaf's uplinks are one wide link each way. So no two
flows collide but by number. Leaves are alike: one that has few nodes has the uplinks of the fullest.
"""

from collections import defaultdict
from functools import partial

from .plan import Cabling, Fabric, Hop, Kind, Plan, Rates, leaves_of, uplinks


def _single(fabric: Fabric, rates: Rates) -> Plan:
    return Plan(tuple(() for _ in rates))


def _rail(fabric: Fabric, rates: Rates) -> Plan:
    return _under_one_spine(fabric, rates, "rail")


def _leaf(fabric: Fabric, rates: Rates) -> Plan:
    return _under_one_spine(fabric, rates, "leaf")


def _under_one_spine(fabric: Fabric, rates: Rates, cabling: Cabling) -> Plan:
    leaves = leaves_of(fabric, cabling, [len(each) for each in rates])
    load: dict[str, float] = defaultdict(float)
    for names, each in zip(leaves, rates, strict=True):
        for leaf, rate in zip(names, each, strict=True):
            load[leaf] += rate
    if len(load) < 2:  # a lone leaf needs no spine
        return Plan(leaves)
    up = dict.fromkeys(load, max(load.values()) / fabric.oversubscription)
    hops = [Hop(leaf, "spine", "leaf", rate, fabric.switch_latency_s) for leaf, rate in up.items()]
    hops += [Hop("spine", leaf, "spine", rate, fabric.switch_latency_s) for leaf, rate in up.items()]
    return Plan(leaves, tuple(hops), up, partial(tuple, [uplinks(up)]))


def _is_even(fabric: Fabric) -> bool:
    return fabric.oversubscription == 1


RAIL = Kind(_rail, frozenset(("oversubscription", "leaf_radix", "sharp")), _is_even)
"""NIC k of every node in a pod ends in the pod's leaf k."""

LEAF = Kind(_leaf, frozenset(("oversubscription", "leaf_radix", "sharp")), _is_even)
"""All NICs of a node end in one leaf."""

SINGLE = Kind(_single, frozenset(("oversubscription", "leaf_radix")), _is_even)
"""No network."""
