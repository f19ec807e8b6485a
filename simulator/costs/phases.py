"""The phase of each op of a training step: kernels by their kind, exchanges by the lane (axis) on which they run."""

import numpy as np
from numpy.typing import NDArray

from ..base.op_kinds import EXCHANGE, kinds_of_form, op_kind
from ..program import Program

EXCHANGES = kinds_of_form(EXCHANGE)
"""The kinds of ops that exchange data between ranks."""

COMPUTE = "compute"
"""The name of the lane of a rank's kernels."""

BUSY = ("gemm", "attention", "experts", "memory", "loss", "optimizer", "coarse")
OF_LAYERS = ("gemm", "attention", "experts", "memory")
"""Phases whose kernels an architecture's factor (`architecture.factor`) scales."""

GEMM_PHASES = ("gemm", "experts")
"""Phases of GEMMs."""

WAITS = ("tp", "cp", "ep", "dp", "fsdp", "pipeline", "host", "offload")
PHASES = (*BUSY, *WAITS)

_LANES = {
    "compute": "dp",  # an exchange on the compute lane: ranks agree on the norm of gradients
    "etp": "ep", "edp": "dp", "dp_replicate": "dp", "edp_replicate": "dp",
    "h2d": "offload", "d2h": "offload", "rows": "dp", "fusion": "dp",
    "tp_row": "tp", "tp_col": "tp",
}  # fmt: skip


def phase_of_op(program: Program) -> NDArray[np.int64]:
    """The index in PHASES of every op. An exchange that holds several lanes belongs to the first of their phases.

    So a sum over tp that also keeps data-parallel lanes waiting is tp, however its lanes are numbered.
    """
    kernels = [lane.name == COMPUTE for lane in program.lanes]
    of_name = {name: PHASES.index(phase_of_lane(name)) for name in {lane.name for lane in program.lanes}}
    of_lane = np.array([of_name[lane.name] for lane in program.lanes], np.int64)
    of_traffic = np.where(kernels, len(PHASES), of_lane)[program.lanes_of.values]
    first = np.minimum.reduceat(of_traffic, program.lanes_of.start[:-1]) if len(program) else of_traffic
    first[first == len(PHASES)] = PHASES.index(phase_of_lane(COMPUTE))
    own = np.array([_phase_of_kernel(kind) for kind in program.kinds], np.int64)[program.kind]
    return np.where(own >= 0, own, first)


def phase_of_lane(lane: str) -> str:
    """The phase of an exchange on a lane of this name."""
    name = _LANES.get(lane, lane)
    return name if name in WAITS else "pipeline"


def _phase_of_kernel(kind: str) -> int:
    phase = op_kind(kind).phase
    if phase and phase not in PHASES:
        raise KeyError(f"kind {kind!r} has phase {phase!r}; expected one of {', '.join(PHASES)}")
    return PHASES.index(phase) if phase else -1
