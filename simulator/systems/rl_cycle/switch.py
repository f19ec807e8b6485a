"""The switch of a colocated cycle: the trainer state of every GPU moves to host memory, or back.

All GPUs of a node copy at once, and the engine shares their uplinks and the host's memory fairly.
"""

from ...collectives import STREAMS
from ...costs import cost
from ...engine import simulate
from ...hardware import Cluster
from ...profile import Profile
from ...program import Program, ProgramBuilder

HOST = "switch.s"
"""The parameter of what software does beside copies: tear down process groups and build them, map memory."""


def move_s(kind: str, gpus: int, state_bytes: int, cluster: Cluster, profile: Profile) -> float:
    """Seconds until the first `gpus` GPUs have moved `state_bytes` each to the host ("offload") or back ("onload").

    Raises:
        UserError: a GPU has no host memory.
    """
    if state_bytes == 0:
        return 0.0
    program = state_move(kind, gpus, state_bytes)
    return simulate(program, cost(program, cluster, profile, STREAMS)).makespan_s


def state_move(kind: str, gpus: int, state_bytes: int) -> Program:
    """A copy per GPU, all at once."""
    builder = ProgramBuilder()
    for gpu in range(gpus):
        copy = "d2h" if kind == "offload" else "h2d"
        lane = builder.lane(builder.place(f"rank {gpu}", [gpu]), copy)
        builder.op(copy, [lane], name=f"{kind} of rank {gpu}", size_bytes=state_bytes, root=gpu)
    return builder.build()
