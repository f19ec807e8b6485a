"""Steps of models with experts that are so short that hosts may hold them up, which no fitted stack knows of.

What a host does for a layer with experts, it mostly does alone: it waits for how many tokens each expert gets. Stacks
are fitted to recipes that hide this by CUDA graphs, long sequences and large micro-batches.
"""

from .errors import own_run_errors
from .resolve import ResolvedTrain

_LEAST_S = 4.7e-3
"""A layer and micro-batch, forward and backward: the least among the ledger's 118 steps of models with experts."""

_EAGER_S = 16e-3
"""The same where hosts launch kernel by kernel: twice `layer.experts_s` of data/stacks/megatron-bridge-eager.toml."""


def host_bound_s(resolved: ResolvedTrain, step_s: float) -> float:
    """What a step takes if its hosts launch kernel by kernel; 0 where it is as long as measured ones, or hosts count.

    They count in a stack that was learned from own runs, and in one that has `layer.experts_s`.
    """
    spec, profile = resolved.spec, resolved.profile
    if spec.moe is None or profile.value_or("layer.experts_s", 0.0) or own_run_errors(resolved) is not None:
        return 0.0
    passes = spec.n_layers / resolved.dims.pp * resolved.microbatches
    if step_s >= passes * _LEAST_S:
        return 0.0
    with_experts = sum(spec.kind(number).moe for number in range(spec.n_layers)) / spec.n_layers
    return max(step_s, passes * with_experts * _EAGER_S)


def note_of_hosts(resolved: ResolvedTrain, step_s: float) -> str:
    """A note on a step that hosts may hold up; empty for others."""
    bound_s = host_bound_s(resolved, step_s)
    if not bound_s:
        return ""
    short = f"below {1e3 * _LEAST_S:.1f} ms per layer and micro-batch, the least measured of models with experts"
    more = f"without CUDA graphs hosts may take {bound_s / step_s:.1f} times as long"
    return f"{short}: {more} (stack megatron-bridge-eager)"
