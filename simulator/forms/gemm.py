"""Dense matrix products, C[m, n] = A[m, k] B[k, n]: 2 m n k FLOP, warm, one call after another."""


from ..hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form, p_norm

_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1, "int8": 1, "fp4": 0.5}


def flop(x: Columns) -> Floats:
    """Floating-point operations of a product."""
    total: Floats = 2 * x["m"] * x["n"] * x["k"]
    return total


def gemm_form(dtype: str) -> Form:
    """T = t0 + p-norm of F/(peak e) and Y/(BW e_m); Y counts operands in `dtype` and a 16-bit result."""
    wide = _BYTES[dtype]

    def seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
        work = flop(x) / (limits.flop_per_s[dtype] * c["e"])
        moved = wide * (x["m"] * x["k"] + x["n"] * x["k"]) + max(wide, 2) * x["m"] * x["n"]
        return c["t0_s"] + p_norm(work, moved / (limits.memory_bytes_per_s * c["e_m"]), c["p"])

    return Form(
        "gemm",
        (
            Coefficient("t0_s", 1e-7, 1e-4, 4e-6, "call"),
            Coefficient("e", 0.05, 1.2, 0.75, "share of the peak"),
            Coefficient("e_m", 0.05, 1.5, 0.8, "share of the memory bandwidth"),
            Coefficient("p", 1, 8, 2.5, "how sharply the larger of both wins"),
        ),
        seconds,
    )
