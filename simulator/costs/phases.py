"""What each op of a training step is part of: kernels by kind, exchanges by the axis on whose lane they run."""

import numpy as np
from numpy.typing import NDArray

from ..base.op_kinds import EXCHANGE, kinds_of_form, op_kind
from ..program import Program

EXCHANGES = kinds_of_form(EXCHANGE)
"""Kinds of ops between ranks."""

COMPUTE = "compute"
"""The lane of a rank's kernels."""

BUSY = ("gemm", "attention", "experts", "memory", "loss", "optimizer", "coarse")
OF_LAYERS = ("gemm", "attention", "experts", "memory")
"""Phases whose kernels an architecture may have of its own."""

WAITS = ("tp", "cp", "ep", "dp", "fsdp", "pipeline", "host", "offload")
PHASES = (*BUSY, *WAITS)

_LANES = {
    "compute": "dp",  # an exchange that holds up kernels: ranks agree on the norm of gradients
    "etp": "ep", "edp": "dp", "h2d": "offload", "d2h": "offload", "rows": "dp", "fusion": "dp",
    "tp_row": "tp", "tp_col": "tp",
}  # fmt: skip


def phase_of_op(program: Program) -> NDArray[np.int64]:
    """Of every op, the index in PHASES."""
    of_name = {name: PHASES.index(phase_of_lane(name)) for name in {lane.name for lane in program.lanes}}
    of_lane = np.array([of_name[lane.name] for lane in program.lanes], np.int64)
    of_kind = np.array([_phase_of_kernel(kind) for kind in program.kinds], np.int64)
    own = of_kind[program.kind]
    return np.where(own >= 0, own, of_lane[_traffic_lane(program)])


def phase_of_lane(lane: str) -> str:
    """What an exchange on a lane of this name is part of."""
    name = _LANES.get(lane, lane)
    return name if name in WAITS else "pipeline"


def _phase_of_kernel(kind: str) -> int:
    phase = op_kind(kind).phase
    return PHASES.index(phase) if phase else -1


def _traffic_lane(program: Program) -> NDArray[np.int64]:
    """The first lane of each op that is not a compute lane, where it has one."""
    lanes, op = program.lanes_of.values, program.lanes_of.row_of_value()
    kernels = np.array([lane.name == COMPUTE for lane in program.lanes])[lanes]
    found = lanes[program.lanes_of.start[:-1]].copy()
    found[op[~kernels][::-1]] = lanes[~kernels][::-1]
    return found
