"""One of two results that are compared: its time as terms that sum to it, what went in, what else came out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...report.report import ROUNDING
from ...schedules import Grid
from ...timeline import Timeline

Source = Literal["scenario", "report", "trace", "spans", "run"]
"""Simulated now, or earlier (its report, its trace); executed by `runcast execute`; a real run's trace or log."""

OPENINGS = ("gather_metas", "pause")
"""Kinds of op behind which the time of an update begins (`Resolved.opening`): the first that there is."""
UNNAMED = "unnamed"
"""Of a total: what is smaller is no term."""


class Drawn(NamedTuple):
    """What a figure shows of a side: its Timeline, the schedule of a training step, the ranks of anything else."""

    timeline: Timeline
    grid: Grid | None = None
    ranks: Sequence[int] | None = None


@dataclass(frozen=True)
class Side:
    """A result; seconds in `total_s`, `interval` (90 %) and `terms`, which sum to the total or are empty.

    `inputs` go by keys of a scenario, with dots, and by names of a report; `all_inputs` says that none is missing.
    `metrics` go by the names of a report, units in the names; `fits` is False where devices lack memory.
    """

    where: str
    source: Source
    label: str
    kind: str
    total_s: float
    interval: tuple[float, float] | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    all_inputs: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    fits: bool = True
    hash: str | None = None
    question: str = ""
    notes: tuple[str, ...] = ()
    drawn: Drawn | None = None

    @property
    def measured(self) -> bool:
        """Whether this happened on real machines."""
        return self.source in ("spans", "run")


def summing(terms: Mapping[str, float], total_s: float) -> dict[str, float]:
    """The terms, with what they leave of the total as one of its own unless that is rounding."""
    rest_s = total_s - sum(terms.values())
    return {**terms, UNNAMED: rest_s} if terms and abs(rest_s) > ROUNDING * abs(total_s) else dict(terms)
