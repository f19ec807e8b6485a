"""Point-to-point transfers: T = a + S/B (Hockney); a power term adds nothing to send/recv (docs/profiles.md)."""

import numpy as np

from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form


def _seconds(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
    start = np.maximum(c["a_s"] + x["hop_s"], 0.0) if "hop_s" in x else c["a_s"]
    return start + x["bytes"] / (c["e"] * x["link_bytes_per_s"])


LINK = Form(
    "link",
    (
        Coefficient("a_s", 1e-8, 1e-2, 1e-5, "start of a transfer"),
        Coefficient("e", 0.02, 1.25, 0.8, "rate of a long transfer over the line rate"),
    ),
    _seconds,
)
