"""Smaller shapes of a step for machines that cannot hold it, and what a step needs where it is executed."""

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


def scale_changes(resolved: ResolvedTrain, scale: int) -> list[str]:
    """Changes of a scenario that divide its widths, its vocabulary and its sequences by `scale`, as `key=value`.

    Layers, the plan, and the number and the size of heads of a group stay, as far as ranks can split what is left.
    """
    spec, dims = resolved.plan.spec, resolved.plan.dims
    kv = _shrink(
        spec.num_key_value_heads, scale, dims.tp * (dims.cp if resolved.plan.shard.cp_type == "ulysses" else 1)
    )
    widths = {
        "hidden_size": _shrink(spec.hidden_size, scale, 8),
        "num_key_value_heads": kv,
        "num_attention_heads": kv * (spec.num_attention_heads // spec.num_key_value_heads),
        "head_dim": spec.head_dim,
        "vocab_size": _shrink(spec.vocab_size, scale, dims.tp * 8),
    }
    if spec.moe is None:
        widths["intermediate_size"] = _shrink(spec.intermediate_size, scale, dims.tp * 8)
    else:
        widths["moe_intermediate_size"] = _shrink(spec.moe.moe_intermediate_size, scale, dims.etp * 8)
    length = _shrink(resolved.scenario.batch.seq_len, scale, 2 * dims.cp * dims.tp)
    return [*(f"model.overrides.{key}={value}" for key, value in widths.items()), f"batch.seq_len={length}"]


def _shrink(value: int, by: int, multiple: int) -> int:
    """About a part of a value, as a multiple of what ranks split it into."""
    return max(value // by // multiple, 1) * multiple


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
    raise UserError(
        f"{resolved.where}: {len(here)} ranks on this machine need about {format_bytes(needed)} of memory, but "
        f"{format_bytes(available)} are available: take --scale {scale}, or fewer GPUs"
    )
