"""Nodes on a grid, each joined to its neighbours alone: `torus`, whose lines are closed to rings, and `mesh`.

A node's NICs are the ports of its router. Their rate is split evenly over all directions: two for each dimension of
more than one node, so a link has R / 2D. On a ring of two nodes both directions lead to the same neighbour, over one
link of both rates; a router at the edge of a mesh leaves a direction unused. Nodes are numbered along x first.

Routes go along one dimension after the other, x before y (dimension-order routing); on a ring both ways are equal where
they are equally long.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from math import prod

from .plan import Fabric, FabricError, Hop, Kind, Level, Plan, Rates, across

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
    beyond = dict.fromkeys((f"router{node}" for node in range(len(rates))), _bisection_share(hops, sizes, closed))
    return Plan(leaves, tuple(hops), beyond, partial(_cuts, number, sizes, _narrowest(hops), closed))


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
    most, cut = max(sizes), 2 if closed else 1
    return cut * _narrowest(hops) / (most - most // 2)  # lines of `most` nodes, of which the larger half sends across


def _narrowest(hops: list[Hop]) -> float:
    """Bytes/s of the slowest cable."""
    return min(hop.bytes_per_s / hop.ports for hop in hops)


def _cuts(number: Mapping[Place, int], sizes: tuple[int, ...], cable: float, closed: bool) -> Iterator[Level]:
    """Each way to cut all lines along a dimension in two: a ring in halves, at two places; an open line at one."""
    for d, size in enumerate(sizes):
        rate = (2 if closed else 1) * cable * len(number) / size
        for first in range(size if size > 1 else 0):
            ahead, half = (first, size // 2) if closed else (0, first)
            part = {f"router{node}": str((at[d] - ahead) % size < half) for at, node in number.items()}
            yield Level(part, dict.fromkeys(part.values(), rate))


TORUS = Kind(_torus, frozenset(("sizes",)))
MESH = Kind(_mesh, frozenset(("sizes",)))
