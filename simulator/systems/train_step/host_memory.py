"""What a training step keeps in the memory of hosts: offloaded activations, and what an optimizer there works on."""

from dataclasses import dataclass

import numpy as np

from ...base.arrays import Floats
from ...timeline import Timeline
from .lower.held import Holdings
from .memory import states_of
from .resolve import ResolvedTrain


@dataclass(frozen=True)
class HostMemory:
    """What the GPUs of a node put into its memory, and its size; of all nodes, of the one that is fullest."""

    node: int
    needed_bytes: float
    memory_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the node's memory is large enough."""
        return self.needed_bytes <= self.memory_bytes


def host_memory(resolved: ResolvedTrain, timeline: Timeline) -> HostMemory | None:
    """The fullest node; None where nothing is offloaded, or no node says how much memory it has."""
    plan, cluster = resolved.plan, resolved.cluster
    if not plan.offloaded and not plan.offload_optimizer:
        return None
    held = np.zeros(cluster.n_gpus)
    for place, copied in enumerate(copied_bytes(timeline)):
        held[list(timeline.program.places[place].ranks)] = copied + _states_bytes(resolved, place % plan.grid.ranks)
    nodes = [
        HostMemory(number, float(held[list(cluster.gpus_of(number))].sum()), node.host_memory_bytes)
        for number, node in enumerate(cluster.nodes)
        if node.host_memory_bytes
    ]
    return max(nodes, key=lambda node: node.needed_bytes / node.memory_bytes, default=None)


def _states_bytes(resolved: ResolvedTrain, rank: int) -> float:
    """Bytes of optimizer states of a pipeline rank that lie on the host all the time."""
    if not resolved.plan.offload_optimizer:
        return 0.0
    states = states_of(resolved, Holdings(resolved.plan, rank))
    return float(states.master + states.moments)


def copied_bytes(timeline: Timeline) -> Floats:
    """The most bytes that a rank of each place has copied to the host and not back: activations, or gradients.

    They are there from the begin of their copy to the host until a copy back has ended.
    """
    program, most = timeline.program, np.zeros(len(timeline.program.places))
    copies = np.flatnonzero(program.is_kind("d2h", "h2d"))
    away = program.is_kind("d2h")[copies]
    lane = program.lanes_of.values[program.lanes_of.start[copies]]
    places = np.array([lane.place for lane in program.lanes], np.int64)[lane]
    times = np.where(away, timeline.start_s[copies], timeline.end_s[copies])
    moved = np.where(away, 1.0, -1.0) * program.bytes[copies]
    for place in np.unique(places):
        own = np.flatnonzero(places == place)
        most[place] = np.cumsum(moved[own[np.argsort(times[own], kind="stable")]]).max()
    return most
