"""Point-to-point transfers: T = a + S/B (Hockney); a power term adds nothing to send/recv (docs/profiles.md)."""

from collections.abc import Callable

from ..hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form

_COEFFICIENTS = (
    Coefficient("a_s", 1e-8, 1e-2, 1e-5, "start of a transfer"),
    Coefficient("e", 0.02, 1.25, 0.8, "rate of a long transfer over the line rate"),
)


def link_form(line_bytes_per_s: Callable[[Limits], float]) -> Form:
    """Transfers over the link whose line rate this is, unless a column `link_bytes_per_s` gives another one."""

    def seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
        return c["a_s"] + x["bytes"] / (c["e"] * x.get("link_bytes_per_s", line_bytes_per_s(limits)))

    return Form("link", _COEFFICIENTS, seconds)
