"""How far off a fit is on what it has not seen: whole groups or every second size left out, and the top of the range.

The numbers that a profile states are these, never those of the rows that were fitted.
"""

from collections.abc import Callable, Iterator
from math import hypot
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ...simulator.base.arrays import Floats
from ...simulator.profile import Z90, Band, errors_of
from ...simulator.profile.forms import HOLD_ALTERNATE, HOLD_GROUPS, Columns, CostClass, passes, transfer

Mask = NDArray[np.bool_]
Predict = Callable[[Mask], Floats]
"""Seconds of all rows, predicted by a fit to the rows of the mask."""

_FOLDS = 5
_FLOOR = 0.02
"""Least spread to state: repeats of one benchmark on one machine differ by as much (docs/profiles.md)."""

_UNKNOWN = 0.15
"""Spread where too few rows are left out to measure one."""

WEAK = 0.25
"""A model whose p90 on rows left out is above this is not to be relied on, and said to be so."""

_ENOUGH = 20
"""Rows from which a band's own spread is used rather than that of all rows."""

_EDGES = {"bytes": (0.0, 2.0**16, 2.0**20, 2.0**26), "flop": (0.0, 1e9, 1e11, 1e12)}

_GROWTH = {"bytes": 0.15, "flop": 0.15, "nodes": 0.15}
_OTHER_GROWTH = 0.1
"""Spread per doubling beyond the range where it cannot be measured; of sizes, and of any other axis."""

_LEAST_GROWTH, _MOST_GROWTH = 0.05, 5.0

LIKE = 0.2
"""Spread of a rate that keeps the ratio of two starts (`Coefficient.like`): from one to the half more, H100's 1.35."""


def cross_validate(
    kind: CostClass, x: Columns, seconds: Floats, groups: NDArray[np.object_], predict: Predict
) -> tuple[Floats, str]:
    """log(predicted/measured) of every row that was left out once, NaN for rows that never were; and what was left out.

    Where all rows are of one group, every second size stands in for whole groups.
    """
    alternate = kind.hold_out == HOLD_ALTERNATE or len(set(groups)) < 2
    log_ratio = np.full(len(seconds), np.nan)
    for left_out in [_alternate(kind, x)] if alternate else _folds(groups):
        if left_out.any() and not left_out.all():
            log_ratio[left_out] = np.log(predict(~left_out)[left_out] / seconds[left_out])
    return log_ratio, HOLD_ALTERNATE if alternate else HOLD_GROUPS


def _folds(groups: NDArray[np.object_]) -> Iterator[Mask]:
    names = sorted(set(groups))
    hashed = len(names) > 2 * _FOLDS
    fold_of = {name: crc32(str(name).encode()) % _FOLDS if hashed else i for i, name in enumerate(names)}
    folds = np.array([fold_of[name] for name in groups])
    for fold in sorted(set(fold_of.values())):
        yield folds == fold


def _alternate(kind: CostClass, x: Columns) -> Mask:
    """Every second size, the smallest and the largest kept."""
    size = kind.axes[kind.size](x)
    sizes, at = np.unique(size, return_inverse=True)
    odd = np.arange(len(sizes)) % 2 == 1
    odd[-1:] = False
    return np.asarray(odd[at], bool)


def bands(kind: CostClass, x: Columns, log_ratio: Floats) -> tuple[Band, ...]:
    """Errors and spread by band of sizes; the first band begins at 0."""
    size = kind.axes[kind.size](x)
    known = np.isfinite(log_ratio)
    overall = _spread(log_ratio[known])
    edges = _EDGES.get(kind.size, (0.0,))
    found: list[Band] = []
    for low, high in zip(edges, (*edges[1:], np.inf), strict=True):
        rows = log_ratio[known & (size >= low) & (size < high)]
        if len(rows):
            spread = _spread(rows) if len(rows) >= _ENOUGH else overall
            found.append(Band(**vars(errors_of(rows)), size=low if found else 0.0, spread=spread))
    return tuple(found) or (Band(**vars(errors_of(log_ratio[known])), size=0.0, spread=overall),)


def _spread(log_ratio: Floats) -> float:
    """Standard deviation of a normal law with the same p90 of |log ratio|, bias included.

    Few rows cannot show that a model is good, but they can show that it is not.
    """
    seen = float(np.quantile(np.abs(log_ratio), 0.9)) / Z90 if len(log_ratio) else 0.0
    return max(seen, _FLOOR if len(log_ratio) >= _FOLDS else _UNKNOWN)


def growth(kind: CostClass, x: Columns, seconds: Floats, spread: float, predict: Predict) -> dict[str, float]:
    """What a doubling beyond the range adds to the spread, by axis: measured by leaving the top out, else assumed."""
    found = {axis: _GROWTH.get(axis, _OTHER_GROWTH) for axis in kind.axes}
    if kind.form in (transfer, passes):
        found[kind.size] = _LEAST_GROWTH  # the rate of what is long no longer changes
    if any(c.like and not c.shows_in(x) for c in kind.form.coefficients):
        found["nodes"] = hypot(found["nodes"], LIKE)
    for axis in {kind.size, "gpus"} & set(kind.axes):
        value = kind.axes[axis](x)
        top = value > np.quantile(value, 0.8) if axis == kind.size else value == value.max()
        if min(top.sum(), (~top).sum()) >= _ENOUGH and len(np.unique(value[~top])) > 1:
            beyond = np.log2(value[top] / value[~top].max())
            missed = np.abs(np.log(predict(~top)[top] / seconds[top]))
            extra = float(np.quantile(missed, 0.9)) / Z90 - spread
            found[axis] = float(np.clip(extra / beyond.mean(), _LEAST_GROWTH, _MOST_GROWTH))
    return found
