"""Steps to a target loss: large batches need fewer steps and more samples, stale or compressed gradients more steps.

The trade-off is that of McCandlish et al. (arXiv 1812.06162, equations 2.11 and 2.12), fitted to many models there. For
S steps, E = B S samples and a batch of B samples (or tokens: everything in one unit),

    (S / S_min - 1) (E / E_min - 1) = 1  and  E_min / S_min = B_noise,
    so that  S = S_min (1 + B_noise / B)  and  E = S_min (B + B_noise).

No law says what staleness, compression and local steps do to the number of steps: the user gives points, and values
between them are interpolated.
"""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from ...base.errors import UserError, fault
from ..tables import Table, as_tuple


def _points(value: Any) -> Any:
    return tuple(as_tuple(point) for point in as_tuple(value))


Factor = Annotated[float, Field(gt=0, le=1e6)]
Curve = Annotated[tuple[tuple[Annotated[float, Field(ge=0)], Factor], ...], BeforeValidator(_points)]

_NO_EFFECT_AT = {"stale_curve": 0.0, "compression_curve": 1.0, "local_curve": 1.0}
"""Where each curve begins, with the factor 1: no stale gradients, no compression, an exchange after each step."""


class Batch(Table):
    """A batch size, and from when on it is used."""

    batch: PositiveFloat = Field(description="batch size, in the unit of noise_scale")
    from_samples: Annotated[float, Field(ge=0)] | None = Field(
        None, description="from when on: samples (or tokens) that were trained on before"
    )
    from_share: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="or a share of all steps: 0.1 is after a tenth of them"
    )

    @property
    def start(self) -> float | None:
        """From when on, whichever way it is given."""
        return self.from_samples if self.from_share is None else self.from_share


class Target(Table):
    """How many steps a run needs."""

    steps_min: PositiveFloat = Field(description="steps to the target with a very large batch (S_min)")
    noise_scale: PositiveFloat = Field(
        description="gradient noise scale (B_noise), in the unit of the batch: samples or tokens"
    )
    batch: tuple[Batch, ...] = Field((), description="batch sizes, one after the other (default: that of the run)")
    stale_curve: Curve = Field(
        (), description="points [updates that gradients are behind, factor on steps]", examples=[[[15, 1.2]]]
    )
    compression_curve: Curve = Field(
        (), description="points [ratio of compression, factor on steps]", examples=[[[100, 1.05]]]
    )
    compression_factor: Factor = Field(1.0, description="or the factor on steps of the compression that is used")
    local_curve: Curve = Field(
        (), description="points [steps between exchanges, factor on steps]", examples=[[[500, 1.1]]]
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Target":
        if self.compression_curve and self.compression_factor != 1:
            raise ValueError("give compression_curve or compression_factor, not both")
        for key, start in _NO_EFFECT_AT.items():
            at = [start, *(point[0] for point in getattr(self, key))]
            if at != sorted(set(at)):
                raise ValueError(f"{key}: points rise, from above {start:g}, where the factor is 1 (given: {at[1:]})")
        self._check_schedule()
        return self

    def _check_schedule(self) -> None:
        keys = {key for one in self.batch for key in ("from_samples", "from_share") if getattr(one, key) is not None}
        if len(keys) > 1:
            raise ValueError("batch: give from_samples or from_share, the same one in all entries")
        starts = [one.start for one in self.batch]
        known = [0.0 if i == 0 and start is None else start for i, start in enumerate(starts)]
        if None in known or known[:1] not in ([], [0.0]) or known != sorted(set(known)):  # type: ignore[type-var]
            raise ValueError(f"batch: the first entry starts at 0, the others later, in order (given: {starts})")

    def steps_at(self, batch: float) -> float:
        """Steps to the target at one batch size."""
        return self.steps_min * (1 + self.noise_scale / batch)

    def samples_at(self, batch: float) -> float:
        """Samples to the target at one batch size."""
        return self.steps_min * (batch + self.noise_scale)


@dataclass(frozen=True)
class BatchSteps:
    """Steps with one batch size on the way to the target."""

    batch: float
    steps: float

    @property
    def samples(self) -> float:
        """What these steps train on, in the unit of the batch."""
        return self.batch * self.steps


@dataclass(frozen=True)
class Stage:
    """Until a step, the batch over the usual one, and the step's time over the usual one."""

    until: float
    batch: float
    time: float


def steps_factor(target: Target, staleness: float = 0.0, compression: float = 1.0, local_steps: float = 1.0) -> float:
    """How many times more steps it takes, for a mean staleness, a ratio of compression, steps between exchanges.

    Effects multiply, as if they did not depend on each other. A curve that is not given has no effect.

    Raises:
        UserError: a value lies beyond the last point of its curve.
    """
    at = {"stale_curve": staleness, "compression_curve": compression, "local_curve": local_steps}
    factors = [_interpolate(key, getattr(target, key), value) for key, value in at.items()]
    return float(np.prod(factors)) * target.compression_factor


def _interpolate(key: str, points: Curve, at: float) -> float:
    if not points:
        return 1.0
    x, factor = zip((_NO_EFFECT_AT[key], 1.0), *points, strict=True)
    if at > x[-1]:
        raise UserError(fault("target", key, x[-1], f"is its last point, but the run has {at:.4g}: add a point there"))
    return float(np.interp(at, x, factor))


def batch_schedule(target: Target, batch: float, factor: float = 1.0) -> tuple[BatchSteps, ...]:
    """Steps at each batch size until the target is reached, with `factor` times the usual number of steps.

    A step at batch B makes 1 / (S_min (1 + B_noise / B)) of the progress, wherever training is: the noise scale is one
    number, though it grows during training (arXiv 1812.06162, abstract). `batch` counts without a schedule.
    """
    schedule = target.batch or (Batch(batch=batch),)
    starts = [one.start or 0.0 for one in schedule]
    each = [factor * target.steps_at(one.batch) for one in schedule]
    by_share = schedule[-1].from_share is not None
    steps = _steps_by_share(starts, each) if by_share else _steps_by_samples(starts, each, schedule)
    return tuple(BatchSteps(one.batch, count) for one, count in zip(schedule, steps, strict=True) if count > 0)


def _steps_by_share(starts: list[float], each: list[float]) -> list[float]:
    """Shares of all steps N are known, and N follows from N sum(share / steps alone) = 1."""
    shares = np.diff([*starts, 1.0])
    total = 1 / float((shares / each).sum())
    return [float(total * share) for share in shares]


def _steps_by_samples(starts: list[float], each: list[float], schedule: tuple[Batch, ...]) -> list[float]:
    """Each batch size takes its samples, or what is left to the target."""
    left, steps = 1.0, []
    for one, alone, start, end in zip(schedule, each, starts, [*starts[1:], inf], strict=True):
        steps.append(min((end - start) / one.batch, left * alone))
        left -= steps[-1] / alone
    return steps
