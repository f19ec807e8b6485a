"""What a cost model's formula is: features of one op, data-sheet limits and coefficients in, seconds out.

Coefficients are bounded, because free fits of these forms run to absurd corners, and relative to data-sheet numbers
where they can be, so that a sibling device may borrow them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Floats
from ...hardware import Limits

Columns = Mapping[str, Floats]
"""Features by name (`bytes`, `gpus`, `m`, ...), one entry per op; see `classes.FEATURES`."""

Coefficients = Mapping[str, float]
Formula = Callable[[Columns, Limits, Coefficients], Floats]
Rows = Callable[[Columns], NDArray[np.bool_]]


@dataclass(frozen=True)
class Coefficient:
    """A fitted number: all are positive, and fits search between `low` and `high` from `start`.

    `trust` is how many samples the start is worth: little, unless a source of its own says so. `of` is the feature
    whose effect the number is: samples that all have one value of it cannot tell it from other numbers. `on` are the
    rows that the number counts in, all if None; where no sample is of them, it keeps the ratio that its start has to
    that of `like`, another number.
    """

    name: str
    low: float
    high: float
    start: float
    meaning: str
    trust: float = 0.0004
    of: str = ""
    on: Rows | None = None
    like: str = ""

    def shows_in(self, x: Columns) -> bool:
        """Whether samples with these features count it, and differ in what it is the effect of."""
        if self.on is not None and not self.on(x).any():
            return False
        return not self.of or bool((x[self.of] != x[self.of][0]).any())


@dataclass(frozen=True)
class Form:
    """A closed form; `name` changes when the meaning of a coefficient does, so that old profiles are refused."""

    name: str
    coefficients: tuple[Coefficient, ...]
    seconds: Formula

    def with_alike(self, known: Coefficients) -> dict[str, float]:
        """All coefficients: those `known`, those like one of them at the ratio of their starts, and others' starts."""
        start = {c.name: c.start for c in self.coefficients}
        scale = {c.name: known[c.like] / start[c.like] if c.like in known else 1.0 for c in self.coefficients}
        alike = {c.name: min(max(c.start * scale[c.name], c.low), c.high) for c in self.coefficients}
        return {**alike, **known}


def form(name: str, *coefficients: Coefficient) -> Callable[[Formula], Form]:
    """Make the formula that follows a Form."""
    return lambda seconds: Form(name, coefficients, seconds)


def p_norm(a: Floats, b: Floats, p: Floats | float) -> Floats:
    """(a^p + b^p)^(1/p): their sum for p = 1, the larger one for large p."""
    larger = np.maximum(a, b)
    smaller = np.minimum(a, b)
    ratio = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0)
    total: Floats = larger * (1 + ratio**p) ** (1 / p)
    return total
