"""Values that are chosen for a machine, a model or a plan: a change of that leaves them out if checks then refuse them.

What a key goes with, whatever the machine and the model, is in `needs`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Fault, UserError, fault
from .needs import value_at
from .resolve import Resolved
from .resolve_cycle import ResolvedCycle
from .resolve_train import ResolvedTrain
from .resolving import AnyResolved
from .training import Activations


@dataclass(frozen=True)
class Change:
    """A scenario before and after a change as tables, and what it stands for now."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    now: AnyResolved

    @property
    def update(self) -> Resolved | None:
        """The weight update that is simulated, if one is."""
        found = self.now.update if isinstance(self.now, ResolvedCycle) else self.now
        return found if isinstance(found, Resolved) else None


@dataclass(frozen=True)
class Pin:
    """A key, those that its value is chosen for, and the check that refuses it where it does not fit them."""

    key: str
    of: tuple[str, ...]
    check: Callable[[Change], object]

    def faults(self, change: Change) -> list[Fault]:
        """What the check says against the value."""
        try:
            self.check(change)
        except UserError as error:
            return [line for line in error.faults if isinstance(line, Fault) and line.key == self.key]
        return []


def _axes(change: Change) -> object:
    return change.now.dims if isinstance(change.now, ResolvedTrain) else None


def _stages(change: Change) -> object:
    return change.now.stages if isinstance(change.now, ResolvedTrain) else None


def _profile(change: Change) -> object:
    return change.now.profile


def _plan(change: Change) -> object:
    return change.update.plan if change.update is not None else None


def _overrides(change: Change) -> None:
    preset, overrides = value_at(change.before, "model.preset"), value_at(change.after, "model.overrides")
    raise UserError(fault("", "model.overrides", overrides, f"written for {preset}"))


_DEVICE = (
    "cluster.base", "cluster.node", "cluster.mix", "cluster.device.base", "cluster.device.like", "cluster.device.memory"
)  # fmt: skip
_GPUS = ("cluster.base", "cluster.node", "cluster.mix", "cluster.gpus_per_node", "nodes")
_STAGES = ("model", "parallel.pp", "schedule.name", "schedule.vpp")
_SPLIT = (*_GPUS, "update.method", "update.inference", "update.trainer")

PINS = (
    Pin("profile", _DEVICE, _profile),
    Pin("model.overrides", ("model.preset",), _overrides),
    Pin("recompute.modules", ("model",), _axes),
    Pin("parallel.ep", ("model",), _axes),
    Pin("parallel.etp", ("model",), _axes),
    Pin("experts", ("model",), _axes),
    *(Pin(f"precision.activations.{module}", ("model",), _axes) for module in Activations.model_fields),
    Pin("experts.nodes_per_token", (*_GPUS, "parallel.ep", "parallel.etp"), _axes),
    Pin("parallel.dp", (*_GPUS, "parallel.tp", "parallel.cp", "parallel.pp"), _axes),
    Pin("parallel.layers", _STAGES, _stages),
    Pin("recompute.layers", _STAGES, _stages),
    Pin("update.ranks", _GPUS, _plan),
    Pin("update.trainer.gpus", _SPLIT, _plan),
    Pin("update.inference.gpus", _SPLIT, _plan),
    Pin("update.free_memory", _DEVICE, _plan),
    Pin("update.bucket", ("model", *_DEVICE, "update.method"), _plan),
)
"""In the order in which they are asked: what is wrong with the first may hide what is wrong with others."""
