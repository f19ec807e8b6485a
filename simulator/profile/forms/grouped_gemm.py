"""Feed-forward of a mixture of experts: the matrix products of the experts on one rank, most loaded rank if skewed.

Weak on model shapes that it has not seen (docs/profiles.md): measure the shapes in use.
"""

import numpy as np

from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form
from .gemm import peak


def rows(x: Columns) -> Floats:
    """Rows that a rank computes when the load is even."""
    total: Floats = x["tokens"] * x["topk"] / x["ep"]
    return total


def flop(x: Columns) -> Floats:
    """Floating-point operations of a rank when the load is even: 2 per row and weight of an expert's matrices."""
    total: Floats = 2 * rows(x) * _expert_weights(x)
    return total


def grouped_gemm_form(dtype: str) -> Form:
    """T = t0 + (F/(peak e r/(r + r0)) + A/(BW e_a)) ep^q (1 + s skew) + W/(BW e_w); ep^q only where skewed.

    r is rows per expert, A the activations moved and W the weights of the experts that have rows.
    """
    wide = 1 if dtype == "fp8" else 2

    def seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
        per_expert = rows(x) * x["ep"] / x["experts"]
        work = flop(x) / (peak(limits, dtype) * c["e"] * per_expert / (per_expert + c["r0"]))
        moved = 2 * rows(x) * (2 * x["hidden"] + 3 * x["inter"] / x["tp"])
        weights = wide * np.minimum(x["experts"] / x["ep"], rows(x)) * _expert_weights(x)
        crowded = np.where(x["skew"] > 0, x["ep"] ** c["q"] * (1 + c["s"] * x["skew"]), 1.0)
        memory = limits.memory_bytes_per_s
        return c["t0_s"] + (work + moved / (memory * c["e_a"])) * crowded + weights / (memory * c["e_w"])

    return Form(
        "grouped gemm",
        (
            Coefficient("t0_s", 1e-6, 1e-3, 4e-5, "call"),
            Coefficient("e", 0.05, 1.5, 0.8, "share of the peak with endless rows per expert"),
            Coefficient("r0", 0.5, 1000, 20, "rows per expert at which half of that is reached"),
            Coefficient("e_a", 0.02, 2.0, 0.3, "share of the memory bandwidth for activations"),
            Coefficient("e_w", 0.05, 2.0, 0.9, "share of the memory bandwidth for weights"),
            Coefficient("q", 0.01, 1.0, 0.3, "power of the ranks by which the most loaded one has more"),
            Coefficient("s", 0.001, 3.0, 0.05, "the same, more per unit of skew"),
        ),
        seconds,
    )


def _expert_weights(x: Columns) -> Floats:
    total: Floats = x["matrices"] * x["hidden"] * x["inter"] / x["tp"]
    return total
