"""How keys of a weight update depend on each other, and values that are chosen for a machine or model."""

from collections.abc import Callable
from typing import Any

from ...collectives import MEASURED
from ..keys import (
    DEVICE,
    GPUS,
    MODEL_RIVALS,
    OF_MODEL,
    Change,
    Need,
    Pin,
    Values,
    excludes,
    goes_with,
    refuse_overrides,
    value_text,
)
from .methods import FROM_TRAINERS, METHODS, SERVED, methods

_TRAINERS = "goes with a method that starts at trainers, not update.method = "
_IN_PLACE = methods(lambda method: method.in_place)
_WHY = ": its writes end where they are used"
_OF_TRAINERS = (
    "trainer", "messages", "quantize", "delta", "storage", "registration", "in_flight", "load", "drain",
    "inference.gpus", "inference.ep",
)  # fmt: skip
_OF_SERVERS = ("pipeline", "mem_fraction", "h2d_buffer", "h2d_freed", "ranks", "readers")


def _exchanges(values: Values) -> tuple[str, ...]:
    """The collectives of an update, whose algorithms may be named."""
    method = next((one for one in METHODS.values() if one.name == values["update.method"]), None)
    absent = {"all_reduce"} if values["update.pipeline"] == "three_stage" else set[str]()
    if values["update.method"] == "colocated" and values["update.trainer.pp"] in (None, 1):
        absent.add("broadcast")
    return tuple(op for op in method.exchanges if op not in absent) if method else ()


def _of_exchange(op: str) -> Need:
    """The algorithm of a collective goes with updates that have it."""

    def words(values: Values) -> str:
        method, there = values["update.method"], _exchanges(values)
        also = f"; it has {' and '.join(there)}" if there else ""
        return f"update.method = {value_text(method)} has no {op} here{also}"

    return Need(f"collectives.{op}", lambda values: op in _exchanges(values), words, lambda name: name != MEASURED)


NEEDS: tuple[Need, ...] = (
    *OF_MODEL,
    goes_with("update.ranks", "update.method", "p2p"),
    goes_with("update.readers", "update.method", "p2p"),
    goes_with("update.messages", "update.method", *methods(lambda method: method.by_tensor)),
    goes_with("update.registration", "update.method", *methods(lambda method: method.registers)),
    goes_with("update.storage", "update.method", "file_system"),
    *(goes_with(f"update.{key}", "update.method", *SERVED) for key in _OF_SERVERS),
    *(
        Need(
            f"update.{key}",
            lambda values: values["update.method"] in FROM_TRAINERS,
            lambda values: f"{_TRAINERS}{value_text(values['update.method'])}",
        )
        for key in _OF_TRAINERS
    ),
    *(
        excludes(f"update.trainer.{key}", "update.trainer.sharded", False, why=": tensors are whole")
        for key in ("shard", "expert_shard")
    ),
    excludes("update.inference.gpus", "update.method", "colocated", why=": engines are on the trainers' GPUs"),
    excludes("update.delta", "update.method", *_IN_PLACE, why=_WHY),
    excludes("update.load", "update.method", *_IN_PLACE, why=_WHY),
    excludes("update.quantize", "update.method", *_IN_PLACE, why=_WHY, applies=lambda to: to == "after"),
    excludes("update.load", "update.quantize", "after", why=", which is part of loading", applies=lambda on: not on),
    *map(_of_exchange, ("broadcast", "all_gather", "all_reduce")),
    goes_with("update.h2d_freed", "update.pipeline", "three_stage"),
    excludes("update.h2d_buffer", "update.pipeline", "three_stage", why=", which needs it", applies=lambda on: not on),
)  # fmt: skip

RIVALS = (
    MODEL_RIVALS,
    ("update.bucket", "update.max_bucket"),
    ("update.free_memory", "update.inference.memory_utilization"),
)
"""Keys of which a scenario gives one."""

_SPLIT = (*GPUS, "update.method", "update.inference", "update.trainer")


def pins(update_of: Callable[[Any], Any]) -> tuple[Pin, ...]:
    """The pins, in the order in which they are checked, as a fault may hide later ones.

    `update_of` finds the weight update, or None, of a resolved scenario.
    """

    def plan(change: Change) -> object:
        update = update_of(change.now)
        return update.plan if update is not None else None

    return (
        Pin("profile", DEVICE, lambda change: change.now.profile),
        Pin("model.overrides", ("model.preset",), refuse_overrides),
        Pin("update.trainer.ep", ("model",), plan),
        Pin("update.inference.ep", ("model",), plan),
        Pin("update.ranks", GPUS, plan),
        Pin("update.trainer.gpus", _SPLIT, plan),
        Pin("update.inference.gpus", _SPLIT, plan),
        Pin("update.free_memory", DEVICE, plan),
        Pin("update.bucket", ("model", *DEVICE, "update.method"), plan),
    )
