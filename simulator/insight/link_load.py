"""How busy the links of a cluster are during a prediction."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from ..base.arrays import Floats
from ..costs import Costs
from ..hardware import Cluster
from ..program import Program
from ..timeline import Timeline


def link_load(machine: Cluster, costs: Costs, timeline: Timeline) -> Floats:
    """The share of the makespan that each link needs for its bytes at its full rate, shape `[links]`.

    Ranks that act like others are not simulated: links of their nodes have the load of the nodes that stand for them,
    and each link of the network has the largest load of its kind.
    """
    own = costs.link_bytes / (costs.capacity_bytes_per_s * (timeline.makespan_s or 1.0))
    others = _stand_ins(machine, timeline.program)
    if all(nodes == {node} for node, nodes in others.items()):
        return own
    found = own.copy()
    ends = np.searchsorted(machine.node_of_link[: machine.node_links], np.arange(machine.n_nodes + 1))
    for node, nodes in others.items():
        mine = slice(ends[node], ends[node + 1])
        for other in nodes:
            theirs = own[ends[other] : ends[other + 1]]
            if len(theirs) == len(found[mine]):
                found[mine] = np.maximum(found[mine], theirs)
    kinds = np.array([link.kind for link in machine.network.links])
    for kind in set(kinds.tolist()):
        between = machine.node_links + np.flatnonzero(kinds == kind)
        found[between] = own[between].max()
    return found


def _stand_ins(machine: Cluster, program: Program) -> Mapping[int, set[int]]:
    """For each node, those whose first ranks are simulated for ranks of it."""
    found: dict[int, set[int]] = defaultdict(set)
    for place in program.places:
        first = machine.node_of(place.ranks[0])
        for rank in place.ranks:
            found[machine.node_of(rank)].add(first)
    return found
