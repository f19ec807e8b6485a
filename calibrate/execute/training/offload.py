"""Activations of a layer on the host between its forward and its backward: what the backward reads really leaves.

The device's copy is dropped when the copy to the host has ended. The backward finds what came back, so it cannot run
before that. The first tensors leave until their bytes are the share of all that the scenario says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .flow import Flow
from .kernels import Graph, tensors_of
from .slots import Slot


class _Moved(Slot):
    """A value of a forward as the backward reads it, once it is back."""

    def __init__(self, source: Slot, trip: "Trip"):
        super().__init__()
        self._source, self._trip = source, trip

    def promise(self) -> None:
        """One more op will take it; so it has to be moved."""
        if not self._readers:
            self._source.promise()
            self._trip.moved.append((self._source, self))
        super().promise()


@dataclass(eq=False)
class Trip:
    """The way of a layer's activations of one micro-batch to the host and back; `share` of their bytes goes it."""

    flow: Flow
    layer: int
    share: float
    moved: list[tuple[Slot, Slot]] = field(default_factory=list)
    _away: list[Any] = field(default_factory=list)

    def bind_return(self) -> None:
        """From now on ops that are bound read what comes back; all that read it are bound later."""
        seen: dict[Slot, Slot] = {}

        def back(slot: Slot) -> Slot:
            return seen.setdefault(slot, _Moved(slot, self))

        for (layer, *_), step in self.flow.steps.items():
            if layer == self.layer:
                step.takes, step.gives = [*map(back, step.takes)], [*map(back, step.gives)]
                step.record = step.record and back(step.record)

    def leave(self) -> None:
        """Copy to the host, and drop what was on the device."""
        values = [source.take() for source, _ in self.moved]
        sizes = {_place(tensor): tensor.nbytes for value in values for tensor in tensors_of(value)}
        ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
        whole = sum(sizes.values())
        goes = {place for place, end in ends.items() if end - sizes[place] < self.share * whole}
        made: dict[Place, OnHost] = {}

        def send(tensor: Tensor) -> Tensor | OnHost:
            place = _place(tensor)
            if place in goes and place not in made:
                made[place] = OnHost(_copy(tensor, torch.device("cpu")), tensor.device)
            return made.get(place, tensor)

        self._away = [_map(value, send) for value in values]

    def come_back(self) -> None:
        """Copy to the device."""
        made: dict[int, Tensor] = {}

        def bring(value: Tensor | OnHost) -> Tensor:
            if not isinstance(value, OnHost):
                return value
            if id(value) not in made:
                made[id(value)] = _copy(value.values, value.device)
            return made[id(value)]

        for value, (_, slot) in zip(self._away, self.moved, strict=True):
            slot.put(_map(value, bring))
        self._away = []


@dataclass(frozen=True)
class OnHost:
    """A tensor of a device whose values are on the host; several values may hold it."""

    values: Tensor
    device: torch.device


Place = tuple[int, torch.Size, tuple[int, ...]]


def _place(tensor: Tensor) -> Place:
    """What two names of the same tensor have in common."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _copy(values: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(values, device=device).copy_(values)


def _map(value: Any, move: Callable[[Any], Any]) -> Any:
    """A value with its tensors moved: a tensor, a record, or a tuple of values; all else stays."""
    if isinstance(value, Graph):
        return value.with_kept([move(tensor) for tensor in value.kept])
    if isinstance(value, tuple):
        parts = [_map(part, move) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return move(value) if isinstance(value, Tensor | OnHost) else value
