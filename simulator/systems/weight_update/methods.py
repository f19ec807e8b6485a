"""Update methods: of each, once, what others have to know of it. How it is lowered is in `lower`, under its name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class Method:
    """One way of bytes to ranks.

    `from_trainers` says that updates start at trainers, not at parameter servers; `registers` that engines first make
    their tensors known to the NICs, if asked; `by_tensor` that each tensor is a message or handle of its own, unless
    asked otherwise; `in_place` that writes end where the engine reads its weights, so that nobody there does anything
    with them; `buffers` that receivers have room for buckets beside their weights.
    """

    name: str
    from_trainers: bool = True
    registers: bool = False
    by_tensor: bool = False
    in_place: bool = False
    buffers: bool = True


_METHODS = (
    Method("broadcast", from_trainers=False),
    Method("p2p", from_trainers=False),
    Method("single_sender"),
    Method("relays"),
    Method("all_senders"),
    Method("stage_heads", by_tensor=True),
    Method("replica_writes", registers=True, in_place=True, buffers=False),
    Method("static_writes", registers=True, in_place=True, buffers=False),
    Method("reshard", by_tensor=True),
    Method("chain", registers=True),
    Method("colocated", by_tensor=True, buffers=False),
    Method("file_system"),
)

METHODS = {method.name: method for method in _METHODS}


def methods(wanted: Callable[[Method], bool]) -> tuple[str, ...]:
    """The names of those that are wanted."""
    return tuple(method.name for method in _METHODS if wanted(method))


SERVED = methods(lambda method: not method.from_trainers)
FROM_TRAINERS = methods(lambda method: method.from_trainers)

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]
