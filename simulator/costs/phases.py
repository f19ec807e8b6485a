"""What each op of a training step is part of: kernels by kind, exchanges by the axis on whose lane they run."""

import numpy as np
from numpy.typing import NDArray

from ..forms import BUS_FACTOR
from ..program import Program

EXCHANGES = (*BUS_FACTOR, "send_recv")
"""Kinds of ops between ranks."""

COMPUTE = "compute"
"""The lane of a rank's kernels."""

BUSY = ("gemm", "attention", "experts", "memory", "loss", "optimizer", "coarse")
OF_LAYERS = ("gemm", "attention", "experts", "memory")
"""Phases whose kernels an architecture may have of its own."""

WAITS = ("tp", "cp", "ep", "dp", "fsdp", "pipeline", "host", "offload")
PHASES = (*BUSY, *WAITS)

_KERNELS = {
    **dict.fromkeys(("gemm", "dgrad", "wgrad"), "gemm"),
    **dict.fromkeys(("attention", "attention_backward"), "attention"),
    **dict.fromkeys(("experts", "experts_dgrad", "experts_wgrad"), "experts"),
    **dict.fromkeys(("cross_entropy", "cross_entropy_backward", "loss_passes", "loss_passes_backward"), "loss"),
    **dict.fromkeys(("adamw", "grad_norm"), "optimizer"),
    "actions": "coarse",
}
_NO_KERNELS = {*EXCHANGES, "h2d", "d2h", "issue", "host_adam", "cycle"}
_LANES = {
    "compute": "dp",  # an exchange that holds up kernels: ranks agree on the norm of gradients
    "etp": "ep", "edp": "dp", "h2d": "offload", "d2h": "offload", "rows": "dp", "fusion": "dp",
    "tp_row": "tp", "tp_col": "tp",
}  # fmt: skip


def phase_of_op(program: Program) -> NDArray[np.int64]:
    """Of every op, the index in PHASES."""
    of_lane = np.array([PHASES.index(phase_of_lane(lane.name)) for lane in program.lanes], np.int64)
    of_kind = np.array([_phase_of_kernel(kind) for kind in program.kinds], np.int64)
    own = of_kind[program.kind]
    return np.where(own >= 0, own, of_lane[_traffic_lane(program)])


def phase_of_lane(lane: str) -> str:
    """What an exchange on a lane of this name is part of."""
    name = _LANES.get(lane, lane)
    return name if name in WAITS else "pipeline"


def _phase_of_kernel(kind: str) -> int:
    return -1 if kind in _NO_KERNELS else PHASES.index(_KERNELS.get(kind, "memory"))


def _traffic_lane(program: Program) -> NDArray[np.int64]:
    """The first lane of each op that is not a compute lane, where it has one."""
    lanes, op = program.lanes_of.values, program.lanes_of.row_of_value()
    kernels = np.array([lane.name == COMPUTE for lane in program.lanes])[lanes]
    found = lanes[program.lanes_of.start[:-1]].copy()
    found[op[~kernels][::-1]] = lanes[~kernels][::-1]
    return found
