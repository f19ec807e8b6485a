"""Smaller shapes of a step, for machines that are to execute it and cannot hold it."""

from .lower import TrainPlan


def smaller_shapes(plan: TrainPlan, seq_len: int, scale: int) -> list[str]:
    """Changes of a scenario that divide its widths, its vocabulary and its sequences by `scale`, as `key=value`.

    Layers, the plan, and the number and the size of heads of a group stay, as far as ranks can split what is left.
    """
    spec, dims = plan.spec, plan.dims
    kv = _shrink(spec.num_key_value_heads, scale, dims.tp * (dims.cp if plan.shard.cp_type == "ulysses" else 1))
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
    length = _shrink(seq_len, scale, 2 * dims.cp * dims.tp)
    return [*(f"model.overrides.{key}={value}" for key, value in widths.items()), f"batch.seq_len={length}"]


def _shrink(value: int, by: int, multiple: int) -> int:
    """About a part of a value, as a multiple of what ranks split it into."""
    return max(value // by // multiple, 1) * multiple
