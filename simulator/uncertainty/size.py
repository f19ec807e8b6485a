"""What grows with the number of GPUs and is not simulated: stragglers, and what many flows do to each other.

Steps of one plan at several numbers of GPUs take longer with each doubling than predicted (docs/training.md, "What
grows with the number of GPUs"). Rows of all plans show no such slope, so that steps stay as simulated and errors grow.
"""

from collections.abc import Iterator
from math import log2

from ..profile import Profile

_DOUBLING, _GPUS = "scale.doubling_fraction", "scale.gpus"
_LEAST = 0.01
"""Relative error from which on the report says so."""


def size_error(profile: Profile, gpus: int) -> float:
    """Relative error of a step on so many GPUs: a fraction for each doubling beyond those that stacks are fitted at."""
    return profile.given(_DOUBLING, 0.0) * max(log2(gpus / profile.given(_GPUS, 1.0)), 0.0)


def size_notes(profile: Profile, gpus: int) -> Iterator[str]:
    """What a report says of it."""
    error = size_error(profile, gpus)
    if error >= _LEAST:
        yield (
            f"stragglers and failures among {gpus:,} GPUs are not simulated: published steps of one plan lose "
            f"{profile.value(_DOUBLING):.1%} per doubling, {error:.1%} beyond {profile.value(_GPUS):,.0f} GPUs, "
            f"for which the interval is wider"
        )
