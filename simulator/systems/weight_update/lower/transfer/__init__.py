"""Updates from trainers to inference engines, whoever runs them: one plan, one file per family of methods.

plan         stages, buckets, what a receiver keeps
meshes       which ranks hold a tensor between them, which mesh gathers it
targets      which source writes to which receivers
writer       the ops, one method each
broadcasts   single sender, relays, all senders, pipeline-stage heads
writes       through a replica in host memory, by a static plan, resharding, a chain
colocated    on the same GPUs, by handles
storage      through a file system
"""

from ...methods import METHODS as RECORDS
from .broadcasts import all_senders, relays, single_sender, stage_heads
from .colocated import colocated
from .meshes import Layout
from .plan import Payload, Phase, Stage, TransferPlan, make_transfer
from .storage import file_system
from .targets import assign_targets
from .writes import chain, replica_writes, reshard, static_writes

METHODS = {
    "single_sender": single_sender,
    "relays": relays,
    "all_senders": all_senders,
    "stage_heads": stage_heads,
    "replica_writes": replica_writes,
    "static_writes": static_writes,
    "reshard": reshard,
    "chain": chain,
    "colocated": colocated,
    "file_system": file_system,
}
"""The rows of the table of methods in docs/weight-update.md that start at trainers."""


def receive_buffers(method: str, plan: TransferPlan) -> int:
    """How many buckets a receiver has room for beside its weights."""
    if not RECORDS[method].buffers:
        return 0
    return max(plan.slots, len(plan.trainers)) if method == "all_senders" else plan.slots


__all__ = [
    "METHODS", "Layout", "Payload", "Phase", "Stage", "TransferPlan", "all_senders", "assign_targets", "chain",
    "colocated", "file_system", "make_transfer", "receive_buffers", "relays", "replica_writes", "reshard",
    "single_sender", "stage_heads", "static_writes",
]  # fmt: skip
