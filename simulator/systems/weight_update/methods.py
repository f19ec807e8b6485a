"""Update methods: a record of each, with the function that writes its Program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...program import Program
from .lower.transfer import TransferPlan, programs


@dataclass(frozen=True)
class Method:
    """How bytes reach the ranks.

    `program` writes an update from trainers; None: it starts at parameter servers (`lower.pipelines`). `registers`:
    engines may have to register their tensors with the NICs. `by_tensor`: by default each tensor is a message or
    handle. `in_place`: bytes are written where the engine reads its weights, so it does nothing with them. `buffers`:
    receivers have room for buckets, with `striped` for one of each trainer, as all send at once. `apart`: each mesh of
    trainers gathers tensors of its own. `by_local_tensors`: tensors that one gather brings stay together. `exchanges`
    are its collectives, whose algorithms may be named. `about` says it in words.
    """

    name: str
    program: Callable[[TransferPlan], Program] | None = None
    registers: bool = False
    by_tensor: bool = False
    in_place: bool = False
    buffers: bool = True
    striped: bool = False
    apart: bool = False
    by_local_tensors: bool = False
    exchanges: tuple[str, ...] = ("all_gather",)
    about: str = ""

    @property
    def starts_at_trainers(self) -> bool:
        """Whether it starts at trainers, not at parameter servers."""
        return self.program is not None

    def receive_buffers(self, plan: TransferPlan) -> int:
        """The number of buckets that a receiver has room for."""
        slots = plan.transport.slots * self.buffers
        return max(slots, len(plan.trainers)) if self.striped else slots


_SERVED = "broadcast", "all_reduce"
_SENT = "broadcast", "all_gather"

_METHODS = (
    Method("broadcast", exchanges=_SERVED, about="servers broadcast every bucket to all ranks"),
    Method("p2p", exchanges=_SERVED, about="receivers read buckets from servers, by RDMA"),
    Method(
        "single_sender",
        programs.single_sender,
        exchanges=_SENT,
        about="one trainer of a pipeline stage at a time sends to all engines",
    ),
    Method(
        "relays",
        programs.relays,
        exchanges=_SENT,
        about="the same, through the NICs of all GPUs of the sender's node",
    ),
    Method(
        "all_senders",
        programs.all_senders,
        striped=True,
        exchanges=_SENT,
        about="every trainer broadcasts a part, on a group of its own",
    ),
    Method(
        "stage_heads",
        programs.stage_heads,
        by_tensor=True,
        by_local_tensors=True,
        exchanges=_SENT,
        about="the first rank of each pipeline stage broadcasts, one after another",
    ),
    Method(
        "replica_writes",
        programs.replica_writes,
        registers=True,
        in_place=True,
        buffers=False,
        by_local_tensors=True,
        about="trainers write what a receiver keeps, from replicas on their hosts",
    ),
    Method(
        "static_writes",
        programs.static_writes,
        registers=True,
        in_place=True,
        buffers=False,
        apart=True,
        about="trainers write what a receiver keeps, by a plan made once",
    ),
    Method(
        "reshard",
        programs.reshard,
        by_tensor=True,
        exchanges=(),
        about="trainers send each receiver what it keeps, pair by pair",
    ),
    Method("chain", programs.chain, registers=True, about="buckets pass through all receivers, one after another"),
    Method(
        "colocated",
        programs.ipc_handles,
        by_tensor=True,
        buffers=False,
        exchanges=_SENT,
        about="engines open handles on their own GPUs",
    ),
    Method("file_system", programs.file_system, about="trainers write files, and engines read them"),
)

METHODS = {method.name: method for method in _METHODS}


def methods(wanted: Callable[[Method], bool]) -> tuple[str, ...]:
    """The names of the methods for which `wanted` is true."""
    return tuple(method.name for method in _METHODS if wanted(method))


SERVED = methods(lambda method: not method.starts_at_trainers)
FROM_TRAINERS = methods(lambda method: method.starts_at_trainers)

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]
