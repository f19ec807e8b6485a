"""Calls that always cost the same, and per item where a sample says how many: launches, synchronisations, barriers."""

from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Floats, Form


def _seconds(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
    return c["item_s"] * x["count"]


_ITEM = Coefficient("item_s", 1e-9, 1e3, 1e-5, "one call, or one of the items of a call")

CONSTANT = Form("constant", (_ITEM,), _seconds)
