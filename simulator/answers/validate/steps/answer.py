"""The prediction of a measured training step, and whether what was measured can be at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from .... import engine
from ....insight import busiest_lanes, critical_path, path_by_phase
from ....systems.train_step.errors import step_errors
from ....systems.train_step.flop import model_flop
from ....systems.train_step.memory import RankMemory, rank_memory
from ....systems.train_step.report import mean_peak
from ....systems.train_step.resolve import ResolvedTrain
from ....uncertainty import chain_intervals, latest

MOST_APART = 0.05
"""How far a step's time and its tokens per second may be apart; in the shipped ledger they are to 0.1 %."""

MOST_COUNTED = 4.0
"""How far FLOP/s may be from those of the model in a step's time: some count what is computed again, or all of causal
attention; in the shipped ledger they are 0.83 to 1.9 times those of the model."""

MOST_HELD = 1.1
"""Of a device's memory, what a peak may be at most: GB and GiB are 7 % apart, and data sheets round."""

_MILLI = 1e-3


@dataclass(frozen=True, eq=False)
class Answer:
    """The prediction of a row: `phase_s` are seconds of the critical path by phase, shape [len(PHASES)].

    `own_variance` is that of ln(seconds) if each op of the path is off by its own spread, independently of the others.
    """

    seconds: float
    low_s: float
    high_s: float
    phase_s: NDArray[np.float64]
    own_variance: float
    memory: tuple[RankMemory, ...]


@dataclass(frozen=True)
class Peak:
    """The predicted peak memory of a row, as its convention counts it.

    `share` is that of activations; `reserved` whether what the allocator holds is counted, not only what it gave out.
    """

    bytes: float
    share: float
    reserved: bool


def predict_step(resolved: ResolvedTrain, memory: bool = True, source: str = "") -> Answer:
    """Simulate a training step of a source; `memory` by pipeline rank, or not at all."""
    timeline = engine.simulate(resolved.program, resolved.costs)
    path, seconds = critical_path(timeline), timeline.makespan_s
    errors = step_errors(resolved, source=source)
    sure = latest(chain_intervals(path, busiest_lanes(timeline), errors).values())
    held = rank_memory(resolved, timeline) if memory else ()
    phases = path_by_phase(path, resolved.program, resolved.mix)
    own = float(((path.seconds * resolved.costs.spread[path.ops]) ** 2).sum()) / seconds**2
    return Answer(seconds, sure.low_s, sure.high_s, phases, own, held)


def peak_of(resolved: ResolvedTrain, ranks: Sequence[RankMemory], rank: str, counts: str) -> Peak:
    """The peak of the `first` rank or of the `fullest`: `allocated` or `reserved` by torch, or of the `device`."""
    chosen = ranks[0] if rank == "first" else max(ranks, key=attrgetter("peak_bytes"))
    held, value = chosen.peak_bytes, resolved.profile.value
    context, unused = (value(f"memory.{name}") for name in ("context_bytes", "fragmentation"))
    reserved, allocated = held - context * (1 + unused), held / (1 + unused) - context
    counted = {"device": held, "reserved": reserved, "allocated": allocated}[counts]
    return Peak(counted, chosen.activation_bytes / counted, counts != "allocated")


def mfu(resolved: ResolvedTrain, seconds: float) -> float:
    """Model FLOP of a step of so many seconds over the dense peak of its GPUs; nothing is simulated."""
    flop = model_flop(resolved.plan, resolved.scenario.batch.global_)
    return flop / (mean_peak(resolved) * resolved.cluster.n_gpus * seconds)


def tokens_per_s_per_gpu(resolved: ResolvedTrain, seconds: float) -> float:
    """Tokens of a step of so many seconds, per second and GPU."""
    batch = resolved.scenario.batch
    return batch.global_ * batch.seq_len / (resolved.cluster.n_gpus * seconds)


def time_fault(resolved: ResolvedTrain, seconds: float) -> str | None:
    """Why a step cannot have taken so many seconds, None where it can: by its MFU, 5 to 61 % in the shipped ledger."""
    share = mfu(resolved, seconds)
    if share > 1:
        return f"would be {share:,.0%} of the peak of the GPUs; expected seconds of one step"
    if share < _MILLI:  # as milliseconds it would be at most the peak
        return f"would be {share:.2%} of the peak of the GPUs; expected seconds of one step, not milliseconds"
    return None


def rate_fault(resolved: ResolvedTrain, tokens: float) -> str | None:
    """Why a GPU cannot have trained on so many tokens/s, None where it can: by its MFU."""
    share, each = mfu(resolved, tokens_per_s_per_gpu(resolved, 1.0) / tokens), resolved.cluster.gpus_per_node[0]
    if _MILLI < share <= 1:
        return None
    node = f", not of a node of {each}" if 1 < share <= each else ""
    return f"would be {share:.2%} of the peak of the GPUs; expected tokens/s of one GPU{node}"


def tokens_fault(resolved: ResolvedTrain, seconds: float, tokens: float) -> str | None:
    """Why a GPU cannot have trained on so many tokens/s in a step of these seconds, None where it can."""
    expected = tokens_per_s_per_gpu(resolved, seconds)
    if near(tokens, expected):
        return None
    others = {"a node": resolved.cluster.gpus_per_node[0], "all GPUs": resolved.cluster.n_gpus}
    said = next((f"; this is that of {of}" for of, gpus in others.items() if near(tokens, expected * gpus)), "")
    return f"expected {expected:,.0f} tokens/s of one GPU, as the time of the step says{said}"


def flop_fault(resolved: ResolvedTrain, seconds: float | None, flop_per_s: float) -> str | None:
    """Why a GPU cannot have computed so many FLOP/s in a step of these seconds, None where it can.

    Whatever is counted, they are not above its peak, and not far from those of the model.
    """
    peak = mean_peak(resolved)
    if flop_per_s > peak:
        name = resolved.devices[0].name
        return f"is above the {peak / 1e12:,.0f} TFLOP/s of {name} in {resolved.peak_type}; expected TFLOP/s of one GPU"
    if seconds is None or _is_counted(expected := mfu(resolved, seconds) * peak, flop_per_s):
        return None
    return f"expected some {expected / 1e12:.3g} TFLOP/s of one GPU, as the time of the step says"


def mfu_fault(resolved: ResolvedTrain, seconds: float | None, percent: float) -> str | None:
    """Why a step of these seconds cannot have had this MFU, None where it can."""
    if percent > 100:
        return "expected at most 100"
    if seconds is None or _is_counted(expected := 100 * mfu(resolved, seconds), percent):
        return None
    return f"expected some {expected:.3g} %, as the time of the step says"


def _is_counted(expected: float, value: float) -> bool:
    """Whether a rate may be that of a model, whatever is counted."""
    return 1 / MOST_COUNTED < value / expected < MOST_COUNTED


def memory_fault(resolved: ResolvedTrain, held: float) -> str | None:
    """Why a GPU cannot have held so many bytes, None where it can."""
    largest = max(resolved.devices, key=attrgetter("memory_bytes"))
    if held <= MOST_HELD * largest.memory_bytes:
        return None
    mebi = ", not MiB" if held / 2**10 <= MOST_HELD * largest.memory_bytes else ""
    return f"is above the {largest.memory_bytes / 2**30:.4g} GiB of {largest.name}; expected GiB of one GPU{mebi}"


def near(value: float, other: float) -> bool:
    """Whether two numbers are the same but for what was rounded."""
    return abs(value / other - 1) < MOST_APART
