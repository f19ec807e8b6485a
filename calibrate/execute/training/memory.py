"""What a step needs where it is executed, and whether this machine has it."""

from collections.abc import Sequence

from ....simulator.base.errors import UserError
from ....simulator.base.units import format_bytes
from ....simulator.systems.train_step.lower import TrainPlan
from ....simulator.systems.train_step.resolve import ResolvedTrain
from ..content import available_bytes
from .weights import tables_of

_EACH = 4  # bytes of a number in single precision
_OWN = 6  # vectors of a rank as long as its parameters: weights, gradients, buckets, what Adam keeps
_PROCESS_BYTES = 300 * 2**20  # of Python and torch


def needed_bytes(plan: TrainPlan, ranks: int) -> int:
    """Memory for so many ranks on one machine: what they hold, and all weights on each, to compare gradients."""
    whole = sum(each.size for table in tables_of(plan) for each in table)
    split = plan.dims.tp * plan.dims.pp
    activations = _EACH * plan.shard.tokens * plan.spec.hidden_size * 40 * plan.spec.n_layers // split
    return ranks * (_EACH * (_OWN * whole // split + 3 * whole) + activations + _PROCESS_BYTES)


def check_memory(resolved: ResolvedTrain, here: Sequence[int]) -> None:
    """Raise a UserError if these ranks need more memory than this machine has, with a scale that would fit."""
    needed, available = needed_bytes(resolved.plan, len(here)), available_bytes()
    if available is None or needed <= available:
        return
    scale = 2
    while needed > available * scale**2 and scale < 1024:
        scale *= 2
    scale *= resolved.scenario.execute.scale
    raise UserError(
        f"{resolved.where}: {len(here)} ranks on this machine need about {format_bytes(needed)} of memory, but "
        f"{format_bytes(available)} are available: take execute.scale = {scale}, or fewer GPUs"
    )
