"""What a report of a training step notes beside its numbers: assumptions, and what is not counted.

What no measured row has is in `distance`.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from ...base.units import format_seconds
from ...insight import CriticalPath, slowed_lines
from ...models import ModelSpec, total_params, trained_params
from ...models.parts import Frozen, Inputs
from ...profile import profile_notes, stack_chain, stack_defaults, stack_names
from ...uncertainty import CRITICAL, Interval, size_notes
from ..machines import shape_loss_s
from .lower.piece import COMPUTE, HOST
from .replicas import note_on
from .resolve import ResolvedTrain
from .scenario import TrainScenario

LEAST_OF_EXPERTS_S = 4.7e-3
"""A layer and micro-batch, forward and backward: the least of the ledger's steps of models with experts."""
_LEAST_LOST = 0.01
_CHAINS = {COMPUTE: "the busiest rank's kernels", HOST: "the busiest host's work"}
"""Lanes in words."""


def notes_of(resolved: ResolvedTrain) -> Iterator[str]:
    """Notes that follow from what was asked, one line each."""
    scenario, spec = resolved.scenario, resolved.spec
    yield from (*scenario.notes, *spec.assumptions)
    yield from (_reads(tower, scenario.batch.seq_len) for tower in spec.towers)
    if spec.frozen != Frozen():
        yield _on_frozen(spec)
    yield from profile_notes(resolved.profile_names, scenario.profile)
    yield from resolved.cluster.notes
    yield from _on_machines(resolved)
    yield from _on_groups(resolved)
    yield from _on_attention(resolved)
    yield from _on_layers(resolved)
    if len(resolved.replicas) > 1:
        yield note_on(resolved.replicas, resolved.shares, resolved.dims, resolved.cluster, resolved.slowness)


def _reads(tower: ModelSpec, seq_len: int) -> str:
    """What a tower reads, in words."""
    of = tower.inputs or Inputs(0)
    inputs = f"{of.items} inputs" if of.items > 1 else "an input"
    many = f"{inputs} of {of.span or seq_len:,} tokens"
    given = f", which give {of.items * of.span // of.projector.merge:,} of its tokens" if of.projector else ""
    frozen = "; frozen" * of.frozen + " with its projector" * of.projector_frozen
    return f"{tower.name}: each sequence has {many}{given}{frozen}"


def _on_frozen(spec: ModelSpec) -> str:
    """How much is trained, in words."""
    layers, learns = spec.num_hidden_layers, spec.num_hidden_layers - len(spec.frozen.layers)
    share = f"{trained_params(spec):,} of {total_params(spec):,}"
    mtp = ", and MTP layers" * bool(spec.num_nextn_predict_layers)
    return f"freeze: {share} parameters are trained; {learns} of {layers} layers are{mtp}"


def _on_machines(resolved: ResolvedTrain) -> Iterator[str]:
    network, offload = resolved.networks.note(resolved.cluster.fabric.network), resolved.scenario.offload
    if network and resolved.cluster.n_nodes > 1:
        yield network
    if offload.activations:
        yield f"offload: the last {offload.slots} layers before a backward, heads and MTP layers stay on the device"


def _on_groups(resolved: ResolvedTrain) -> Iterator[str]:
    """A note on each axis with groups on more nodes than the first one of their stage, which stands for all of them."""
    dims, islands = resolved.dims, np.array([resolved.cluster.island(gpu) for gpu in range(resolved.dims.world_size)])
    axes = ("tp", "cp", "ep", "etp") if resolved.spec.moe else ("tp", "cp")
    for axis in [axis for axis in axes if dims.size(axis) > 1]:
        groups = dims.table(axis)
        spans, stages = (np.diff(np.sort(islands[groups])) > 0).sum(axis=1) + 1, dims.place("pp", groups[:, 0])
        simulated = spans[np.unique(stages, return_index=True)[1]][stages]
        if more := int((spans > simulated).sum()):
            first = f"exchanges are those of a stage's first group, on {simulated.min()} of them"
            slower = f"{more} of {len(spans)} groups lie on more and are slower, which is not simulated"
            yield f"{axis}: groups of {dims.size(axis)} cross borders of nodes, or of NVLink domains: {first}; {slower}"


def _on_attention(resolved: ResolvedTrain) -> Iterator[str]:
    spec, seq_len = resolved.spec, resolved.scenario.batch.seq_len
    if (packed := resolved.packing) is not None:
        slower = f"; the slowest rank's takes {packed.slowest:.2f} times as long" if packed.slowest > 1 else ""
        yield f"attention is that of documents of {packed.length:,.0f} tokens each{slower}"
    if _is_unfused_by_stack(resolved.scenario, resolved.where):
        old = f"attention = unfused, as {resolved.scenario.stack} had it: all scores lie in memory"
        yield f'{old}, {seq_len:,} for each token and head; attention = "flash" is that of later software'
    if spec.indexer is not None:
        yield _on_picked(resolved.scenario.attention, spec.indexer.topk)
    if 0 < spec.position_embeddings < seq_len:
        yield f"sequences of {seq_len:,} tokens are longer than the {spec.position_embeddings:,} learned positions"


def _on_picked(attention: str, topk: int) -> str:
    """A note on attention to tokens that an indexer picks."""
    if attention == "unfused":
        return "attention = unfused: keys are made and all scores computed; what an indexer does is not counted"
    rates = "at rates of dense attention and GEMMs, as no profile has measured such kernels"
    return f"each token attends to at most {topk:,} latents that an indexer picks, {rates}"


def _is_unfused_by_stack(scenario: TrainScenario, where: str) -> bool:
    """Whether scores are written to memory since the software stack did so in its time."""
    return scenario.attention == "unfused" == stack_defaults(scenario.stack, where).get("attention")


def _on_layers(resolved: ResolvedTrain) -> Iterator[str]:
    spec, scenario = resolved.spec, resolved.scenario
    if scenario.parallel.layers is None and spec.divided_layers % resolved.grid.stages:
        counts = [len(stage.layers) for stage in resolved.stages]
        yield f"layers do not divide evenly: {min(counts)} to {max(counts)} per stage, the first ones fuller"
    if (mixer := spec.linear_attention) and not mixer.swaps_heads and resolved.dims.cp > 1:
        yield "what recurrent layers and convolutions pass between context-parallel ranks is not counted"
    for name, tower in scenario.towers.items():
        if tower.inputs == 0:
            yield f"{name}: left out, with its parameters"


def notes_of_times(resolved: ResolvedTrain, path: CriticalPath, slowed: Mapping[str, float]) -> Iterator[str]:
    """Notes that follow from the simulation: awkward shapes, slowdown by overlap, size."""
    yield from _shapes(resolved, path)
    yield from slowed_lines(slowed, float(path.seconds.sum()))
    yield from size_notes(resolved.profile, resolved.dims.world_size)


def notes_of_ends(intervals: Mapping[str, Interval]) -> Iterator[str]:
    """What sets an end of the interval, given those of chains of ops, where it is not the critical path."""
    for end, word in (("low_s", "lower"), ("high_s", "upper")):
        ends = {name: float(getattr(interval, end)) for name, interval in intervals.items()}
        farthest, of_path = max(ends, key=lambda name: ends[name]), ends[CRITICAL]
        if ends[farthest] > (1 + _LEAST_LOST) * of_path:
            what = _CHAINS.get(farthest, f"the busiest lane of {farthest}")
            own = format_seconds(of_path)
            yield f"the {word} end of the interval is that of {what}; the critical path's is {own}"


def not_in_interval(resolved: ResolvedTrain, step_s: float) -> Iterator[str]:
    """What may make a step longer than its interval says: hosts that hold up short layers with experts.

    A host waits for how many tokens each expert gets, unless CUDA graphs or the size of a micro-batch hide that. Stacks
    that are fitted to fast runs do not count it.
    """
    stack = resolved.scenario.stack
    chain = stack_chain(stack) if stack in stack_names() else []  # own stacks state what their runs took
    is_megatron = stack == "generic" or "megatron-core" in chain
    if resolved.spec.moe is None or not is_megatron or resolved.profile.value_or("layer.experts_s", 0.0):
        return
    each_s = step_s / (resolved.spec.n_layers / resolved.dims.pp * resolved.microbatches)
    if each_s < LEAST_OF_EXPERTS_S:
        least = f"the least that the ledger has with experts is {1e3 * LEAST_OF_EXPERTS_S:.1f} ms"
        short = f"a micro-batch takes {1e3 * each_s:.1f} ms per layer; {least}"
        yield f'{short}: without CUDA graphs hosts may take longer (stack = "megatron-bridge-no-graphs")'


def _shapes(resolved: ResolvedTrain, path: CriticalPath) -> Iterator[str]:
    """A note on the cost of awkward shapes on the critical path, if it is large enough."""
    share = shape_loss_s(resolved, path) / max(float(path.seconds.sum()), 1e-30)
    if share >= _LEAST_LOST:
        yield f"awkward shapes cost {share:.1%} of the step: {'; '.join(one.text for one in resolved.awkward)}"
