"""Costs: from a Program, a Cluster and a Profile to seconds and demands on links."""

from .costs import Costs, kind_costs
from .forms import cost
from .kernels import HEAD_MULTIPLE, PRODUCT_TYPE, UNALIGNED, Kernels, alignment_penalty
from .phases import BUSY, COMPUTE, EXCHANGES, GEMM_PHASES, OF_LAYERS, PHASES, WAITS, phase_of_lane, phase_of_op
from .pricing import LAYOUT, Store
from .ring import RING_KINDS
from .software import by_software

__all__ = [
    "BUSY",
    "COMPUTE",
    "EXCHANGES",
    "GEMM_PHASES",
    "HEAD_MULTIPLE",
    "LAYOUT",
    "OF_LAYERS",
    "PHASES",
    "PRODUCT_TYPE",
    "RING_KINDS",
    "UNALIGNED",
    "WAITS",
    "Costs",
    "Kernels",
    "Store",
    "alignment_penalty",
    "by_software",
    "cost",
    "kind_costs",
    "phase_of_lane",
    "phase_of_op",
]  # fmt: skip
