"""How long one op takes alone: closed forms and measured curves per cost class, from features to seconds.

The numbers in them (coefficients, points, ranges, errors) are a profile's; here is only what they mean.
"""

from .classes import (
    AT_MOST,
    FEATURES,
    HOLD_ALTERNATE,
    HOLD_GROUPS,
    WHOLE,
    ZERO_BASED,
    CostClass,
    band_name,
    bus_bytes_ratio,
    class_and_features,
    cost_class,
    known_classes,
    quantity,
)  # fmt: skip
from .collective import BUS_FACTOR
from .curve import Curve
from .form import Coefficient, Coefficients, Columns, Form
from .simple import WIDE_ROW, passes, transfer

__all__ = [
    "AT_MOST", "BUS_FACTOR", "FEATURES", "HOLD_ALTERNATE", "HOLD_GROUPS", "WHOLE", "WIDE_ROW", "ZERO_BASED",
    "Coefficient", "Coefficients", "Columns", "CostClass", "Curve", "Form", "band_name", "bus_bytes_ratio",
    "class_and_features", "cost_class", "known_classes", "passes", "quantity", "transfer",
]  # fmt: skip
