"""A collective whose flows are hashed: the distribution of its times over draws of hashes."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot, log
from typing import TYPE_CHECKING

import numpy as np

from .rows import Row

if TYPE_CHECKING:
    from .resolve import ResolvedCollective

_LOW, _HIGH = 0.05, 0.95


def draw(resolved: "ResolvedCollective") -> tuple[Row, ...]:
    """Each row as the median of all draws; both its model and its draws make its interval wider."""
    first = resolved.cluster.fabric.hash_seed
    return tuple(map(_join, zip(*(_rows_by(resolved, first + k) for k in range(resolved.keys.seeds)), strict=True)))


def _rows_by(resolved: "ResolvedCollective", seed: int) -> tuple[Row, ...]:
    """The rows by one draw."""
    given = resolved.scenario
    base = given.cluster if isinstance(given.cluster, dict) else {"base": given.cluster}
    keys = given.collective.model_copy(update={"seeds": 1})
    other = given.model_copy(update={"cluster": {**base, "hash_seed": seed}, "collective": keys})
    return replace(resolved, scenario=other).rows


def _join(drawn: Sequence[Row]) -> Row:
    """One row of several draws."""
    seconds = [row.seconds for row in drawn]
    middle, low, high = (float(np.quantile(seconds, part)) for part in (0.5, _LOW, _HIGH))
    one = min(drawn, key=lambda row: abs(row.seconds - middle))
    factor = middle / one.seconds
    return replace(
        one, seconds=middle, low_s=middle / exp(hypot(log(one.seconds / one.low_s), log(middle / low))),
        high_s=middle * exp(hypot(log(one.high_s / one.seconds), log(high / middle))),
        algbw_bytes_per_s=one.algbw_bytes_per_s / factor, busbw_bytes_per_s=one.busbw_bytes_per_s / factor,
        draws_low_s=low, draws_high_s=high,
    )  # fmt: skip
