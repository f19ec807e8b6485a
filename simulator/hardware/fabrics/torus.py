"""Nodes on a grid, each joined to its neighbours alone: `torus`, whose lines are closed to rings, and `mesh`.

A node's NICs are the ports of its router. Their rate is split evenly over all directions: two for each dimension of
more than one node, so a link has R / 2D. On a ring of two nodes both directions lead to the same neighbour, over one
link of both rates; a router at the edge of a mesh leaves a direction unused. Nodes are numbered along x first.

Routes go along one dimension after the other, x before y (dimension-order routing); on a ring both ways are equal where
they are equally long.
"""

from collections.abc import Iterator
from itertools import product
from math import prod

from .plan import Fabric, FabricError, Hop, Kind, Plan, Rates, across

Place = tuple[int, ...]


def _torus(fabric: Fabric, rates: Rates) -> Plan:
    return _plan(fabric, rates, closed=True)


def _mesh(fabric: Fabric, rates: Rates) -> Plan:
    return _plan(fabric, rates, closed=False)


def _plan(fabric: Fabric, rates: Rates, closed: bool) -> Plan:
    leaves = tuple((f"router{node}",) * len(each) for node, each in enumerate(rates))
    if len(rates) == 1:
        return Plan(leaves)
    sizes = fabric.sizes
    if not sizes or prod(sizes) != len(rates):
        nodes = f"{len(rates)} nodes" + " of a site" * (fabric.sites > 1)
        raise FabricError("sizes", list(sizes), f"expected sizes whose product is the {nodes}")
    long = [d for d, size in enumerate(sizes) if size > 1]
    number = {place[::-1]: node for node, place in enumerate(product(*map(range, reversed(sizes))))}
    hops = []
    for place, node in number.items():
        each = sum(rates[node]) / (2 * len(long))
        for d in long:
            for near, ports in _neighbours(place, d, sizes[d], closed):
                there = number[near]
                rate = ports * min(each, sum(rates[there]) / (2 * len(long)))
                hops.append(across(f"router{node}", f"router{there}", rate, fabric, ports, order=d))
    beyond = _bisection_share(hops, sizes, closed)
    return Plan(leaves, tuple(hops), dict.fromkeys((f"router{node}" for node in range(len(rates))), beyond))


def _neighbours(place: Place, d: int, size: int, closed: bool) -> Iterator[tuple[Place, int]]:
    """The places next to one along a dimension, with the number of cables to each."""
    steps = [place[d] + 1, place[d] - 1]
    inside = [at % size for at in steps if closed or 0 <= at < size]
    for at in dict.fromkeys(inside):
        yield (*place[:d], at, *place[d + 1 :]), inside.count(at)


def _bisection_share(hops: list[Hop], sizes: tuple[int, ...], closed: bool) -> float:
    """A node's share of the links that cross from one half of the longest dimension to the other.

    A torus is cut twice, a mesh once (Dally and Towles, Principles and Practices of Interconnection Networks, 2004).
    """
    most = max(sizes)
    narrowest = min(hop.bytes_per_s / hop.ports for hop in hops)
    cut = 2 if closed else 1
    return cut * narrowest / (most - most // 2)  # lines of `most` nodes, of which the larger half sends across


TORUS = Kind(_torus, frozenset(("sizes",)))
MESH = Kind(_mesh, frozenset(("sizes",)))
