"""Forms of one line: point-to-point transfers, kernels bound by memory, calls that always cost the same."""

import numpy as np

from ...base.arrays import Floats
from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, form, p_norm

WIDE_ROW = 8192.0
"""Elements of a row from which its width no longer matters; what a kernel without rows counts as."""


@form(
    "link",
    Coefficient("a_s", 1e-8, 1e-2, 1e-5, "start of a transfer"),
    Coefficient("e", 0.02, 1.25, 0.8, "rate of a long transfer over the line rate"),
)
def transfer(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
    """T = a + S/B (Hockney); a power term adds nothing to send/recv (docs/profiles.md)."""
    start = np.maximum(c["a_s"] + x["hop_s"], 0.0) if "hop_s" in x else c["a_s"]
    return start + x["bytes"] / (c["e"] * x["link_bytes_per_s"])


@form(
    "memory-bound rows",
    Coefficient("a_s", 5e-7, 2e-5, 3e-6, "call, with wide rows"),
    Coefficient("e", 0.02, 1.1, 0.7, "share of the memory bandwidth"),
    Coefficient("p", 0.7, 8, 1.3, "how sharply the larger of both wins"),
    Coefficient("g", 0.001, 3, 0.4, "how much faster what fits the L2 cache is"),
    Coefficient("y0", 0.05, 2, 0.6, "bytes that fit, over the size of the L2 cache"),
    Coefficient("start", 0.001, 1, 0.3, "power of the width in the call", of="width"),
    Coefficient("narrow", 0.001, 1, 0.1, "power of the width in the rate", of="width"),
)
def stream(x: Columns, limits: Limits, c: Coefficients) -> Floats:
    """Norms, activations, residual adds, copies on the device, optimizer steps: T = p-norm(a, Y/(BW e)).

    Faster where data fit the L2 cache; narrow rows take less to start and run slower.
    """
    width = np.minimum(1.0, x["width"] / WIDE_ROW)
    cached = 1 + c["g"] / (1 + (x["bytes"] / (c["y0"] * limits.l2_bytes)) ** 4)
    rate = limits.memory_bytes_per_s * c["e"] * width ** c["narrow"] * cached
    return p_norm(c["a_s"] * width ** c["start"], x["bytes"] / rate, c["p"])


@form(
    "passes over memory",
    Coefficient("a_s", 1e-7, 1.0, 1e-4, "start: launches, and what the host waits for"),
    Coefficient("e", 1e-5, 2.0, 0.1, "rate over the memory bandwidth, where nothing stays in a cache"),
    Coefficient("g", 0.001, 5, 0.4, "how much faster what fits a cache is"),
    Coefficient("y0", 0.05, 8, 1.0, "bytes of which half that is left, over the size of the L2 cache"),
)
def passes(x: Columns, limits: Limits, c: Coefficients) -> Floats:
    """Several kernels over the same bytes, such as an encoder of gradients: T = a + S/(BW e), faster in a cache."""
    cached = 1 + c["g"] / (1 + (x["bytes"] / (c["y0"] * limits.l2_bytes)) ** 2)
    return c["a_s"] + x["bytes"] / (c["e"] * limits.memory_bytes_per_s * cached)


@form("constant", Coefficient("item_s", 1e-9, 1e3, 1e-5, "one call, or one of the items of a call"))
def calls(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
    """Launches, synchronisations, barriers; per item where a sample says how many."""
    return c["item_s"] * x["count"]
