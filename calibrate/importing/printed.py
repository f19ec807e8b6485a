"""Numbers as tools print them: a value and the step of its last digit, so that rounding is no contradiction."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NUMBER = re.compile(r"[-+]?\d{1,30}(?:\.(\d{0,30}))?(?:[eE]([-+]?\d{1,2}))?")

_MOST = 1e30
"""Above this nothing is a size, a time or a rate."""

JSON_STEP = 1e-6
"""Step of a number that was written with `%lf`, as nccl-tests writes its JSON."""


class Printed(NamedTuple):
    """A number of a log; the true one lies within a step of it."""

    value: float
    step: float

    @property
    def low(self) -> float:
        """The least that it can stand for, not below zero."""
        return max(self.value - self.step, 0.0)

    @property
    def high(self) -> float:
        """The most that it can stand for."""
        return self.value + self.step


def printed(token: str) -> Printed | None:
    """`12.30` is 12.3 with a step of 0.01, `1.2e+06` has one of 1e5; None for `N/A`, `nan` and what is no number."""
    match = _NUMBER.fullmatch(token.strip())
    if match is None:
        return None
    return Printed(float(token), 10.0 ** (int(match[2] or 0) - len(match[1] or "")))


def from_json(value: object) -> Printed | None:
    """A number of a JSON file, whether it stands there as a number or as text."""
    if isinstance(value, str):
        return printed(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:  # NaN is not less
        return None
    return Printed(float(value), JSON_STEP)


def table(value: object) -> Mapping[str, Any]:
    """The table that a JSON value is, or an empty one."""
    return value if isinstance(value, Mapping) else {}
