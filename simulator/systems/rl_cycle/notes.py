"""What a report of a cycle notes beside its numbers: assumptions, and where its parts do not fit together."""

from collections.abc import Iterator

from ..train_step.notes import not_in_interval
from ..weight_update.transfers import TransferUpdate
from .resolve import ResolvedCycle
from .serving import Served
from .training import Training


def notes_of(resolved: ResolvedCycle) -> Iterator[str]:
    """Notes that follow from what was asked, one line each."""
    cycle, rollout = resolved.scenario.cycle, resolved.scenario.rollout
    yield from resolved.scenario.notes
    if resolved.update is not None:
        yield from resolved.update.notes
    if cycle.placement == "colocated" and cycle.state is None:
        yield "no trainer state is offloaded or onloaded; see cycle.state"
    if (counted := cycle.counted_steps) != cycle.steps:
        yield f"{counted} steps count, as they come in bunches of {cycle.most_stale + 1}"
    redoes = rollout.recompute_time or (rollout.engine is not None and rollout.engine.recompute)
    if rollout.interrupt == "keep" and not redoes:
        key = "rollout.recompute_time" if rollout.engine is None else "rollout.engine.recompute"
        yield f"running requests keep their KV cache across an update; see {key}"
    if resolved.engine is not None:
        yield from resolved.engine.notes
        yield from _other_type(resolved, resolved.engine)
    if resolved.training is not None:
        times, question = resolved.training.minibatches, resolved.training.step.report.question
        yield f"training: {times} x {question}" if times > 1 else f"training: {question}"
        yield from _other_split(resolved, resolved.training)
        step = resolved.training.step
        yield from not_in_interval(step.resolved, step.report.step_time_s)
    if resolved.scenario.slow:
        yield "slow nodes make the update longer, not rollouts or training"


def _other_split(resolved: ResolvedCycle, training: Training) -> Iterator[str]:
    """Notes where the update takes other weights than training makes, or from trainers that are split otherwise."""
    if resolved.update is not None and training.step.resolved.scenario.lora is not None:
        yield "adapters are trained, but the update sends all weights: no method here sends adapters alone"
    if not isinstance(resolved.update, TransferUpdate):
        return
    said, parallel = resolved.update.trainer, training.step.resolved.scenario.parallel
    if differ := [axis for axis in ("tp", "pp", "ep") if getattr(said, axis) != getattr(parallel, axis)]:
        update, step = (" ".join(f"{axis} {getattr(of, axis)}" for axis in differ) for of in (said, parallel))
        yield f"the update takes weights from trainers of {update}, but training has {step}; see update.trainer"


def _other_type(resolved: ResolvedCycle, engine: Served) -> Iterator[str]:
    """A note where engines compute in another type than the one in which a simulated update brings weights."""
    update = resolved.update
    if update is not None and "fp8" in {engine.shape.dtype, update.dtype} != {engine.shape.dtype}:
        yield (
            f"the update brings weights in {update.dtype}, but engines compute in {engine.shape.dtype}: their "
            "conversion takes no time here; see update.quantize"
        )
