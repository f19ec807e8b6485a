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

    Ranks that act like others are not simulated. Where there are such, links of a node have the largest load that one
    of their kind and rate has in the nodes that stand for it, and those of the network the largest of their kind.
    """
    own: Floats = costs.link_bytes / (costs.capacity_bytes_per_s * (timeline.makespan_s or 1.0))
    if all(len(place.ranks) == 1 for place in timeline.program.places):
        return own
    columns = machine.links.columns
    group = np.unique([f"{kind} {rate}" for kind, rate in zip(columns["kind"], columns["bytes_per_s"], strict=True)],
                      return_inverse=True)[1]  # fmt: skip
    most = np.zeros((machine.n_nodes + 1, int(group.max()) + 1))  # of each node, and last of the network
    np.maximum.at(most, (machine.node_of_link, group), own)
    others = _stand_ins(machine, timeline.program)
    alike = np.array([most[sorted(others.get(node, {node}))].max(axis=0) for node in range(machine.n_nodes)])
    found: Floats = np.vstack([alike, most[-1:]])[machine.node_of_link, group]
    return found


def _stand_ins(machine: Cluster, program: Program) -> Mapping[int, set[int]]:
    """For each node, those whose first ranks are simulated for ranks of it."""
    found: dict[int, set[int]] = defaultdict(set)
    for place in program.places:
        first = machine.node_of(place.ranks[0])
        for rank in place.ranks:
            found[machine.node_of(rank)].add(first)
    return found
