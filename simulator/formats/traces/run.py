"""What is known of a real run: its steps, which is typical, and where the time of one goes if the file is a trace.

What a rank did in a step are Items: ops with lanes, which together make a Timeline over a Program. An item names the
item that it waited for where that is known. For all others the cause is the item of the same rank that ended last
before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from ...costs import PHASES
from ...costs.phases import WAITS
from ...insight import split_by_place
from ...program import ProgramBuilder
from ...timeline import Timeline


@dataclass(frozen=True)
class Run:
    """A run as a file tells it; seconds and bytes.

    `form` is kineto, chrome, runcast (a simulation's trace), or a format of `logs`, such as megatron_log.
    `steps_s` are all steps found in the order of their numbers `steps`; `step_s` is the step that was asked for, else
    the typical one: in a trace the lower median of the steps that another step follows (a mean over ranks), in a log
    the median of those left without the first three, or the first half of fewer than six.

    `timeline` holds that step alone, from zero: a place per rank, `compute` the lane of its kernels, a lane per
    axis for exchanges, `host` where nothing runs. `split_s` has the seconds of that step by the names of
    `costs.PHASES`, mean over ranks, and sums to `step_s`; `exposed_s` is the part of it that kernels wait for exchanges
    and copies, by axis. Both are None and empty for logs.

    `facts` are what the file says beside times: world_size, ranks, step, device, tp, cp, pp, dp, ep, global_batch,
    seq_len, tokens, flop_per_s_per_gpu, memory_bytes, communication_s (seconds of exchanges by axis, hidden ones too),
    and more; `arguments` is the text of Megatron-LM's arguments that `recipes.read_recipe` reads; `notes` are what was
    assumed or not understood.
    """

    path: Path
    form: str
    steps: tuple[int, ...]
    steps_s: tuple[float, ...]
    step_s: float
    timeline: Timeline | None = None
    split_s: Mapping[str, float] | None = None
    exposed_s: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    arguments: str | None = None


def typical_step(seconds: Mapping[int, float]) -> int:
    """The lower median of the steps that another one follows: the last may lack what the host does behind it."""
    followed = list(seconds)[:-1] or list(seconds)
    return sorted(followed, key=lambda number: (seconds[number], number))[(len(followed) - 1) // 2]


def split_by_phase(timeline: Timeline, until_s: Sequence[float]) -> dict[str, float]:
    """Seconds of a step by phase, mean over ranks; `until_s` is the length of the step on each."""
    mean = split_by_place(timeline, until_s=np.array(until_s, np.float64)).mean(axis=0)
    return dict(zip(PHASES, mean.tolist(), strict=True))


def exposed_waits(split: Mapping[str, float]) -> dict[str, float]:
    """The parts of a split that are exchanges and copies for which kernels wait."""
    return {axis: split[axis] for axis in WAITS if axis != "host" and split[axis] > 0}


@dataclass(eq=False)
class Item:
    """An op of a real run; nanoseconds from the begin of the step."""

    start_ns: int
    end_ns: int
    kind: str
    lanes: tuple[str, ...]
    name: str = ""
    size_bytes: int = 0
    dtype: str = ""
    group: tuple[int, ...] = ()
    waited: "Item | None" = None


def timeline_of(ranks: Mapping[int, Sequence[Item]]) -> Timeline:
    """The Timeline of what some ranks did; a place per rank, ops by start."""
    builder = ProgramBuilder()
    place = {rank: builder.place(f"rank {rank}", (rank,)) for rank in sorted(ranks)}
    everything = ((rank, item) for rank, items in ranks.items() for item in items)
    ordered = sorted(everything, key=lambda pair: (pair[1].start_ns, pair[1].end_ns))
    cause = _causes(ordered)
    for (rank, item), after in zip(ordered, cause, strict=True):
        builder.op(
            item.kind,
            [builder.lane(place[rank], lane) for lane in item.lanes],
            (after,) if after >= 0 else (),
            name=item.name,
            size_bytes=item.size_bytes,
            dtype=item.dtype,
            group=item.group,
        )
    start = np.array([item.start_ns for _, item in ordered], np.float64) / 1e9
    end = np.array([item.end_ns for _, item in ordered], np.float64) / 1e9
    return Timeline(builder.build(), start, end, np.array(cause, np.int64), np.zeros(len(start), np.bool_))


def _causes(ordered: Sequence[tuple[int, Item]]) -> list[int]:
    """The index of each item's cause; -1 if nothing ended before it."""
    index = {id(item): i for i, (_, item) in enumerate(ordered)}
    running: dict[int, list[tuple[int, int]]] = {}
    latest: dict[int, int] = {}
    causes = []
    for i, (rank, item) in enumerate(ordered):
        ends = running.setdefault(rank, [])
        while ends and ends[0][0] <= item.start_ns:
            latest[rank] = heappop(ends)[1]
        causes.append(latest.get(rank, -1) if item.waited is None else index[id(item.waited)])
        heappush(ends, (item.end_ns, i))
    return causes
