"""Exchange of gradients beside the backward pass: in the order in which they come, or what is needed first goes first.

A step of L equal layers is one backward pass, from the last layer to the first, and the next forward pass, from the
first to the last. Each layer's gradient is ready when its part of the backward pass ends, and travels on one lane.
"""

from collections.abc import Callable
from math import ceil
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...tables import Size, Table

_BACKWARD = 2 / 3  # two GEMMs of each of the forward pass: gradients of its input and of its weights
_TINY = 1e-9  # relative: what ends as something else begins does so in spite of rounding


class GradientOverlap(Table):
    """How gradients travel beside the backward pass."""

    order: Literal["none", "fifo", "priority"] = Field(
        "fifo",
        description="none: all after the backward pass; fifo: as they come, as DDP does; priority: what the next "
        "forward pass needs first, as P3 and ByteScheduler do",
    )
    layers: Annotated[int, Field(gt=0, le=100_000)] | None = Field(
        None, description="layers of equal size (default: those of the model)"
    )
    slice: Size | None = Field(
        None, description="priority: largest message, whose end another may wait for (default: a layer's gradient)"
    )
    backward: Annotated[float, Field(gt=0, lt=1)] = Field(
        _BACKWARD, description="share of the step that is its backward pass"
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "GradientOverlap":
        if self.slice is not None and self.order != "priority":
            raise ValueError(f"slice is for order = 'priority': order = '{self.order}' sends whole layers")
        return self


def exposed_s(
    keys: GradientOverlap, step_s: float, message_s: Callable[[int], float], gradient_bytes: float, layers: int
) -> float:
    """Seconds by which the exchange makes a step longer than its `step_s` of compute.

    `message_s` says what one message takes where so many equal ones carry all gradients, `layers` how many layers there
    are where `keys` do not say. Steps repeat: the last layer's forward pass waits for its gradient, so the link is free
    again when the next backward pass starts, and one step says what all others take.

    With equal layers, `tau` seconds of exchange each:

    - fifo: `max(tau, L*tau - (L-1)*backward/L)`, all of it after the last bucket (Li et al., arXiv 2006.15704, 3.2.3)
    - priority, slices of no size: `tau + (L-1)*max(0, tau - step/L)`: the first layer's, and what no step can hide
      (Jayarajan et al., P3, arXiv 1905.03960; Peng et al., ByteScheduler, SOSP 2019)
    """
    if keys.order == "none":
        return message_s(1)
    count = keys.layers or layers
    backward, forward = (share * step_s / count for share in (keys.backward, 1 - keys.backward))
    if keys.order == "fifo":
        return _after_all(count, backward, message_s(count))
    slices = max(1, ceil(gradient_bytes / count / keys.slice)) if keys.slice else 1
    ends = _by_priority(count, backward, slices, message_s(count * slices))
    return _after_own(ends, count * backward, forward)


def _after_all(layers: int, backward_s: float, message_s: float) -> float:
    """A lane that is never idle from gradient i on ends at `i*backward + (L-i+1)*message`; the latest i is 1 or L."""
    return max(message_s, layers * message_s - (layers - 1) * backward_s)


def _by_priority(layers: int, backward_s: float, slices: int, slice_s: float) -> list[float]:
    """When each layer's gradient has travelled, in seconds since the backward pass began.

    The newest gradient is always the one that the forward pass needs first, so what waits is a stack.
    """
    waiting: list[tuple[int, int]] = []  # layers and the slices that they have left
    ends, now = [0.0] * layers, 0.0
    for layer in reversed(range(layers)):
        ready = (layers - layer) * backward_s
        while waiting and (until_s := ready * (1 - _TINY) - now) > 0:
            top, left = waiting.pop()
            count = left if left * slice_s <= until_s else ceil(until_s / slice_s)  # a slice that has begun is finished
            now = ends[top] = now + count * slice_s
            if left > count:
                waiting.append((top, left - count))
        now = max(now, ready)
        waiting.append((layer, slices))
    for layer, left in reversed(waiting):
        now = ends[layer] = now + left * slice_s
    return ends


def _after_own(ends: list[float], backward_s: float, forward_s: float) -> float:
    """What the forward pass ends later if each of its layers waits for its own gradient."""
    now = backward_s
    for end in ends:
        now = max(now, end) + forward_s
    return max(0.0, now - backward_s - len(ends) * forward_s)
