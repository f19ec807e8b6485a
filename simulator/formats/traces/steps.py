"""Steps of a run: which one is typical, where its time goes, how step numbers are listed."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...costs import PHASES
from ...costs.phases import WAITS
from ...timeline import Timeline
from ...timeline.insight import split_by_place


def typical_step(seconds: Mapping[int, float]) -> int:
    """The lower median of the steps that another one follows: the last may lack what the host does behind it."""
    followed = list(seconds)[:-1] or list(seconds)
    return sorted(followed, key=lambda number: (seconds[number], number))[(len(followed) - 1) // 2]


def listed(numbers: Sequence[int], most: int = 12) -> str:
    """Step numbers as words, long lists by their ends."""
    if len(numbers) <= most:
        return ", ".join(map(str, numbers))
    return f"{len(numbers)} from {numbers[0]} to {numbers[-1]}"


def split_of(timeline: Timeline, until_s: Sequence[float]) -> dict[str, float]:
    """Seconds of a step by phase, mean over ranks; `until_s` is the length of the step on each."""
    mean = split_by_place(timeline, until_s=np.array(until_s, np.float64)).mean(axis=0)
    return dict(zip(PHASES, mean.tolist(), strict=True))


def exposed_of(split: Mapping[str, float]) -> dict[str, float]:
    """What of a split are exchanges and copies that kernels wait for."""
    return {axis: split[axis] for axis in WAITS if axis != "host" and split[axis] > 0}
