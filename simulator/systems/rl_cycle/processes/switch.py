"""What a colocated cycle moves when its GPUs change over: every GPU's trainer state to host memory, or back from there.

All GPUs of a node copy at once, so that what they share (an uplink, a socket's memory) is shared fairly, by the engine.
"""

import numpy as np

from ....costs import Costs, effective_capacity
from ....costs.sheet import Sheet, Term
from ....engine import simulate
from ....hardware import Cluster
from ....profile import Profile
from ....program import Program, ProgramBuilder


def move_s(kind: str, gpus: int, state_bytes: int, cluster: Cluster, profile: Profile) -> float:
    """Seconds until the first `gpus` GPUs have moved `state_bytes` each: "offload" to the host or "onload" from it.

    Raises:
        UserError: a GPU has no host memory.
    """
    if state_bytes == 0:
        return 0.0
    program = state_move(kind, gpus, state_bytes)
    return simulate(program, cost_move(program, cluster, profile)).makespan_s


def state_move(kind: str, gpus: int, state_bytes: int) -> Program:
    """One op per GPU: all at once."""
    builder = ProgramBuilder()
    for gpu in range(gpus):
        lane = builder.lane(builder.place(f"rank {gpu}", [gpu]), "d2h" if kind == "offload" else "h2d")
        builder.op(kind, [lane], name=f"{kind} of rank {gpu}", size_bytes=state_bytes, root=gpu)
    return builder.build()


def cost_move(program: Program, cluster: Cluster, profile: Profile) -> Costs:
    """Latency, and bytes over the rate of the slowest link on the way.

    Both directions take the profile's numbers for host-to-device copies, on their own route.
    """
    capacity = effective_capacity(cluster, profile)
    sheet = Sheet(program, capacity)
    start = Term(profile.value("h2d.latency_s"), profile["h2d.latency_s"])
    for op, gpu in enumerate(program.root.tolist()):
        route = cluster.d2h_route(gpu) if program.kind_of(op) == "offload" else cluster.h2d_route(gpu)
        slowest = min(route, key=lambda link: capacity[link])
        size, rate, one = program.bytes[[op]].astype(np.float64), float(capacity[slowest]), np.array([op])
        basis = profile.beyond(f"link_fraction.{cluster.links[slowest].kind}", {"bytes": size})
        sheet.charge(one, [start, Term(size / rate, basis, work=True)])
        sheet.demand(one, [*route, cluster.hbm(gpu)], [rate] * (len(route) + 1))
    return sheet.costs(profile, tuple(link.name for link in cluster.links))
