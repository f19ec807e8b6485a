"""Memory-bound kernels: norms, activations, residual adds, copies on the device, optimizer steps."""

import numpy as np

from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form, p_norm

WIDE_ROW = 8192.0
"""Elements of a row from which its width no longer matters; what a kernel without rows counts as."""


def _seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
    """T = p-norm(a, Y/(BW e)), faster where data fit the L2 cache; narrow rows take less to start and run slower."""
    width = np.minimum(1.0, x["width"] / WIDE_ROW)
    cached = 1 + c["g"] / (1 + (x["bytes"] / (c["y0"] * limits.l2_bytes)) ** 4)
    rate = limits.memory_bytes_per_s * c["e"] * width ** c["narrow"] * cached
    return p_norm(c["a_s"] * width ** c["start"], x["bytes"] / rate, c["p"])


STREAM = Form(
    "memory-bound rows",
    (
        Coefficient("a_s", 5e-7, 2e-5, 3e-6, "call, with wide rows"),
        Coefficient("e", 0.02, 1.1, 0.7, "share of the memory bandwidth"),
        Coefficient("p", 0.7, 8, 1.3, "how sharply the larger of both wins"),
        Coefficient("g", 0.001, 3, 0.4, "how much faster what fits the L2 cache is"),
        Coefficient("y0", 0.05, 2, 0.6, "bytes that fit, over the size of the L2 cache"),
        Coefficient("start", 0.001, 1, 0.3, "power of the width in the call"),
        Coefficient("narrow", 0.001, 1, 0.1, "power of the width in the rate"),
    ),
    _seconds,
)
