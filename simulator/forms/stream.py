"""Memory-bound kernels: norms, activations, residual adds, copies on the device, optimizer steps."""

from ..hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form, p_norm


def _seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
    knee = 1 + c["g"] / (1 + (x["bytes"] / (c["y0"] * limits.l2_bytes)) ** 4)
    return p_norm(x["bytes"] * 0 + c["a_s"], x["bytes"] / (limits.memory_bytes_per_s * c["e"] * knee), c["p"])


STREAM = Form(
    "memory-bound",
    (
        Coefficient("a_s", 1e-7, 1e-4, 3e-6, "call"),
        Coefficient("e", 0.02, 1.1, 0.7, "share of the memory bandwidth"),
        Coefficient("p", 0.8, 8, 1.5, "how sharply the larger of both wins"),
        Coefficient("g", 0.001, 3, 0.4, "how much faster what fits the L2 cache is"),
        Coefficient("y0", 0.05, 4, 0.8, "bytes that fit, over the size of the L2 cache"),
    ),
    _seconds,
)
