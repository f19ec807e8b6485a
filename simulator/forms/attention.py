"""Attention: causal (or full) softmax attention over whole sequences, one kernel call."""

import numpy as np

from ..hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form
from .gemm import peak


def flop(x: Columns) -> Floats:
    """Of the two products, forward: 2 b h d L^2 where causal, twice that where not."""
    total: Floats = 2 * x["batch"] * x["heads"] * x["head_dim"] * x["seq"] ** 2 * (2 - x["causal"])
    return total


def _seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
    tiles = x["batch"] * x["heads"] * np.ceil(x["seq"] / 128)
    idle = np.maximum(1.0, (limits.sms / tiles) ** c["q"])
    narrow = (x["head_dim"] / 128) ** c["g"]
    work = flop(x) * idle / (peak(limits, "bf16") * c["e"] * narrow * x["seq"] / (x["seq"] + c["l0"]))
    moved = 4 * x["batch"] * x["seq"] * x["head_dim"] * (x["heads"] + x["kv_heads"])
    return c["a_s"] + work + moved / (limits.memory_bytes_per_s * c["e_m"])


ATTENTION = Form(
    "attention",
    (
        Coefficient("a_s", 1e-7, 1e-3, 1.5e-5, "call"),
        Coefficient("e", 0.05, 1.1, 0.6, "share of the bf16 peak on long sequences with heads of 128"),
        Coefficient("e_m", 0.05, 2.0, 0.6, "share of the memory bandwidth"),
        Coefficient("l0", 1, 4000, 500, "tokens at which half of that is reached"),
        Coefficient("q", 0.01, 1.5, 0.4, "how much too few tiles for the SMs cost"),
        Coefficient("g", 0.01, 1.5, 0.5, "power by which narrower heads reach less"),
    ),
    _seconds,
)
