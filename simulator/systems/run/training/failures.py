"""What fails, when, and how training comes back: causes, spares, repair, and what a restart takes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heapreplace, merge
from math import gamma
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from ....base.units import parse
from ...tables import Seconds, Table
from ..spread import Factor, Spread, draw_times
from .renewals import failures_per_s

_LONGEST_S = 1e15


def _age(value: Any) -> float:
    seconds = parse(value, "seconds")
    if not 0 < seconds < _LONGEST_S:
        raise ValueError("expected a time above zero, such as '30000 h'; what never fails is left out")
    return seconds


Age = Annotated[float, BeforeValidator(_age)]
Part = Literal["gpu", "nic", "link", "node", "leaf", "job"]


class Cause(Table):
    """Something that fails, again and again."""

    name: str = Field(description="what reports call it")
    part: Part = Field(
        "gpu",
        description="what fails: one of these; link: the cable of a NIC; leaf: a switch, with all nodes below it; job: "
        "the software of the whole run",
    )
    mtbf: Age = Field(description="mean time between failures of one part")
    events: PositiveInt | None = Field(
        None,
        description="how many failures of this cluster mtbf was read from: more make it surer, and drawn rates have "
        "the mean 1 / mtbf (default: not counted, and as far off as rates of clusters differ: 1 / mtbf is the median)",
    )
    shape: Annotated[float, Field(ge=0.1)] = Field(
        1.0, description="of a Weibull distribution; 1: at a constant rate, < 1: mostly early"
    )
    effect: Literal["stop", "planned", "slow"] = Field(
        "stop", description="the run stops; or is saved first and then stops; or the rank turns slow without a word"
    )
    notice: Seconds = Field(0.0, description="stop: warning before it, as of a spot instance; the run saves if it can")
    factor: Factor = Field(2.0, description="slow: how many times longer its steps take from then on")
    detect: Seconds | None = Field(None, description="stop: until it is noticed (default: failures.detect)")
    repair: Seconds | None = Field(
        None,
        description="how long the node is away; of a leaf: all nodes below it (default: failures.repair, 0 for part = "
        "'job' and for leaf)",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Cause":
        said = self.model_fields_set
        if "factor" in said and self.effect != "slow":
            raise ValueError(f"factor goes with effect = 'slow', not {self.effect!r}")
        if self.notice and self.effect != "stop":
            raise ValueError(f"notice goes with effect = 'stop', not {self.effect!r}")
        if self.detect is not None and self.effect != "stop":
            found = "speed.detect says when it is found" if self.effect == "slow" else "it is known before"
            raise ValueError(f"detect goes with effect = 'stop', not {self.effect!r}: {found}")
        return self


class TracedFailure(Table):
    """A failure at a stated time: a line of a trace."""

    at: Seconds = Field(description="when, from the start of the run")
    node: NonNegativeInt = Field(0, description="which node")
    name: str = Field("trace", description="what reports call it")
    effect: Literal["stop", "planned"] = Field("stop", description="the run stops; or is saved first")
    detect: Seconds | None = Field(
        None, description="stop: until it is noticed, however long (default: failures.detect)"
    )
    repair: Seconds | None = Field(None, description="how long the node is away (default: failures.repair)")

    @model_validator(mode="after")
    def _goes_together(self) -> "TracedFailure":
        if self.detect is not None and self.effect == "planned":
            raise ValueError("detect goes with effect = 'stop', not 'planned': it is known before")
        return self


class Failures(Table):
    """What stops a run, and how it goes on."""

    cause: tuple[Cause, ...] = Field((), description="what fails at random")
    trace: tuple[TracedFailure, ...] = Field((), description="what fails at stated times")
    detect: Seconds = Field(0.0, description="until a failure is noticed: a time-out of a collective, a watchdog")
    place: Seconds = Field(0.0, description="until the job has its nodes again: queue, spare nodes taken in")
    init: Seconds = Field(0.0, description="start of processes and communicators, whatever the size")
    init_per_node: Seconds = Field(0.0, description="what each node adds to init")
    read: Seconds | None = Field(None, description="reading the checkpoint (default: from [checkpoint])")
    warmup: Seconds = Field(0.0, description="first steps, compilation, caches: what they take more than usual")
    repair: Seconds = Field(
        0.0, description="how long a failed node is away, or a slow one that was found and replaced (speed.detect)"
    )
    detect_spread: Spread = Field(
        default=Spread(), description="how detect varies from failure to failure, also that of a cause"
    )
    restart_spread: Spread = Field(
        default=Spread(), description="how the sum of place, init, read and warmup varies from restart to restart"
    )
    repair_spread: Spread = Field(
        default=Spread(), description="how repair varies from failure to failure, also that of a cause"
    )
    spares: NonNegativeInt = Field(0, description="nodes of the cluster that wait to replace failed ones")

    @model_validator(mode="after")
    def _something(self) -> "Failures":
        if not self.cause and not self.trace:
            raise ValueError("give [[failures.cause]] or [[failures.trace]]: nothing fails")
        return self


@dataclass(frozen=True)
class Failure:
    """One failure: when, what, which nodes it takes away, and how long.

    `of_job`: it is one of software, which stops or slows the run whichever nodes are there, and renews none of them.
    """

    at_s: float
    name: str
    nodes: tuple[int, ...]
    effect: str
    detect_s: float
    repair_s: float
    factor: float = 1.0
    of_job: bool = False

    @property
    def place(self) -> str:
        """Where it happens, for people: its node, or the first one of several."""
        if self.of_job:
            return "the job"
        first, *others = self.nodes
        return f"node {first}" + (f" and {len(others)} more" if others else "")


PartCounts = Mapping[str, int]
Stream = Callable[..., np.random.Generator]
"""Random numbers for a purpose, which is some integers."""


def stops_per_s(said: Failures, parts: PartCounts, save_s: float, length_s: float) -> float:
    """Failures that stop a run without warning, per second of one of this length that starts with new parts."""
    stops = [one for one in said.cause if effect_of(one, save_s) == "stop"]
    return sum(parts[one.part] * failures_per_s(one.mtbf, one.shape, length_s) for one in stops)


def effect_of(cause: Cause, save_s: float) -> str:
    """What the cause does to a run that needs so much warning to save: with enough of it, a stop is as if planned."""
    return "planned" if cause.effect == "stop" and cause.notice and save_s <= cause.notice else cause.effect


def detect_s_of(said: Failures, cause: Cause) -> float:
    """How long nobody notices a failure of this cause, on average."""
    return said.detect_spread.mean * _detect_s(said, cause)


def repair_s_of(said: Failures, cause: Cause) -> float:
    """How long a failure of this cause takes nodes away, on average."""
    return said.repair_spread.mean * _repair_s(said, cause)


def _detect_s(said: Failures, cause: Cause) -> float:
    return said.detect if cause.detect is None else cause.detect


def _repair_s(said: Failures, cause: Cause) -> float:
    usual_s = 0.0 if cause.part in ("job", "leaf") else said.repair
    return usual_s if cause.repair is None else cause.repair


def failures(
    said: Failures,
    parts: PartCounts,
    save_s: float,
    nodes_of: Callable[[str, int], tuple[int, ...]],
    stream: Stream,
) -> Iterator[Failure]:
    """All failures in the order of time, without end where causes are random.

    `nodes_of(part, number)` are the nodes that a part takes away; `stream(i)` gives random numbers for when cause i
    happens, `stream(i, 1)` and `stream(i, 2)` for how long it is not noticed and for its repairs.
    """
    of_causes = (
        _of_cause(said, one, parts[one.part], save_s, nodes_of, partial(stream, i)) for i, one in enumerate(said.cause)
    )
    return merge(_of_trace(said, partial(stream, len(said.cause))), *of_causes, key=lambda failure: failure.at_s)


def _of_trace(said: Failures, stream: Stream) -> Iterator[Failure]:
    """What a line states is so; only times that it leaves to the table are drawn."""
    detects_s = draw_times(said.detect, said.detect_spread, stream(1))
    repairs_s = draw_times(said.repair, said.repair_spread, stream(2))
    for one in sorted(said.trace, key=lambda one: one.at):
        repair_s = next(repairs_s) if one.repair is None else one.repair
        detect_s = next(detects_s) if one.detect is None else one.detect
        yield Failure(one.at, one.name, (one.node,), one.effect, detect_s, repair_s)


def _of_cause(
    said: Failures,
    cause: Cause,
    parts: int,
    save_s: float,
    nodes_of: Callable[[str, int], tuple[int, ...]],
    stream: Stream,
) -> Iterator[Failure]:
    """A warning that is long enough counts as the stop; one that is too short changes nothing."""
    effect = effect_of(cause, save_s)
    late_s = cause.notice if effect == "stop" else 0.0
    detects_s = draw_times(_detect_s(said, cause), said.detect_spread, stream(1))
    repairs_s = draw_times(_repair_s(said, cause), said.repair_spread, stream(2))
    if parts == 0:
        return
    times = _poisson(cause.mtbf, parts, stream()) if cause.shape == 1 else _renewals(cause, parts, stream())
    for at_s, part in times:
        nodes = nodes_of(cause.part, part)
        times_s = next(detects_s), next(repairs_s)
        yield Failure(at_s + late_s, cause.name, nodes, effect, *times_s, cause.factor, cause.part == "job")


def _poisson(mtbf_s: float, parts: int, rng: np.random.Generator) -> Iterator[tuple[float, int]]:
    """At a constant rate all parts together are one Poisson process, whose events fall on any of them."""
    at_s = 0.0
    while True:
        at_s += rng.exponential(mtbf_s / parts)
        yield at_s, int(rng.integers(parts))


def _renewals(cause: Cause, parts: int, rng: np.random.Generator) -> Iterator[tuple[float, int]]:
    """A Weibull process for each part, which is new after each failure."""
    scale_s = cause.mtbf / gamma(1 + 1 / cause.shape)
    heap = list(zip((scale_s * rng.weibull(cause.shape, parts)).tolist(), range(parts), strict=True))
    heapify(heap)
    while True:
        at_s, part = heap[0]
        heapreplace(heap, (at_s + scale_s * float(rng.weibull(cause.shape)), part))
        yield at_s, part
