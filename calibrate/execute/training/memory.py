"""What a step needs where it is executed, and whether this machine has it."""

from collections.abc import Sequence

from ....simulator.base.errors import UserError
from ....simulator.base.units import format_bytes
from ....simulator.systems.train_step.lower import TrainPlan
from ....simulator.systems.train_step.resolve import ResolvedTrain
from ..content import PROCESS_BYTES, available_bytes
from .weights import tables_of

_EACH = 4  # bytes of a number in single precision
_OWN = 7  # vectors of a rank as long as its parameters: weights, gradients, buckets, what Adam gives, the check
_REFERENCE = 3  # vectors as long as all parameters: weights, gradients, those of one sequence
_PER_CHANNEL = 40  # numbers that a layer keeps for each token and channel
_LOGITS = 4  # logits, their exponentials and gradients
_SCALES = [2**power for power in range(1, 11)]
_SHRINKS = 1.5  # at least: by which power of the scale a step needs less; heads stay as large as they are


def needed_bytes(plan: TrainPlan, ranks: int) -> int:
    """Memory for so many ranks on one machine: what they hold, and the reference on the first of them."""
    whole = sum(each.size for table in tables_of(plan) for each in table)
    split, shard = plan.dims.tp * plan.dims.pp, plan.shard
    layers = shard.tokens * plan.spec.hidden_size * _PER_CHANNEL * plan.spec.n_layers // split
    held = plan.grid.microbatches if plan.grid.stages == 1 else min(plan.grid.microbatches, 2 * plan.dims.pp)
    logits = _LOGITS * shard.tokens * plan.spec.vocab_size // plan.dims.tp
    own = _OWN * whole // split + held * layers + logits
    return _EACH * (ranks * own + _REFERENCE * whole) + ranks * PROCESS_BYTES


def check_memory(resolved: ResolvedTrain, here: Sequence[int]) -> None:
    """Raise a UserError if these ranks need more memory than this machine has, with a scale that would fit."""
    needed, available = needed_bytes(resolved.plan, len(here)), available_bytes()
    if available is None or needed <= available:
        return
    own, fixed = resolved.scenario.execute.scale, len(here) * PROCESS_BYTES
    fits = [scale for scale in _SCALES if fixed + (needed - fixed) / scale**_SHRINKS <= available]
    advice = f"execute.scale = {own * fits[0]}, or fewer GPUs" if fits else "fewer GPUs"
    raise UserError(
        f"{resolved.where}: {len(here)} ranks on this machine need about {format_bytes(needed)} of memory, but "
        f"{format_bytes(available)} are available: take {advice}"
    )
