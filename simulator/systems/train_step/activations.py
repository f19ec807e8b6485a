"""Activations of a training step over time: the buffers of a Timeline, by place and by part of the layer."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from ...base.arrays import Floats, Ints
from ...base.rows import column_of
from ...schedules.grid import BACKWARD, KINDS
from ...timeline import Timeline
from ...timeline.memory import buffer_spans
from .lower import buffer_parts
from .lower.assembly import ACTIONS
from .lower.kept import stage_buffer
from .resolve import ResolvedTrain

ACTIVATIONS = "activations: "
"""How owners of memory begin that are activations."""
_B = KINDS.index(BACKWARD)


class Activations:
    """The bytes of activations over time, as step functions."""

    def __init__(self, resolved: ResolvedTrain, timeline: Timeline):
        self.resolved, self.timeline = resolved, timeline
        buffers = timeline.program.buffers
        self._start, self._end = buffer_spans(timeline)
        self._place = column_of(buffers, "place", int)
        if any(plan.grid.pairs for plan in resolved.plans):
            self._reuse_room()
        self._bytes = column_of(buffers, "bytes", int).astype(np.float64)
        plan = resolved.plan
        self._parts = resolved.memo.get("kept", plan, lambda: buffer_parts(plan), lambda _: plan.grid.cells)
        self._names = list(self._parts)
        number = {name: i for i, name in enumerate(self._names)}
        self._name = np.array([number[name] for name in column_of(buffers, "name", object).tolist()], np.int64)

    def _reuse_room(self) -> None:
        """The forward of a pair reuses, layer by layer, the memory that the backward frees.

        So what it keeps counts from the end of that backward on.
        """
        held, ranks = self._by_forward(), self.resolved.grid.ranks
        for place in range(len(self.timeline.program.places)):
            cells = self.resolved.plans[place // ranks].grid.columns[place % ranks]
            for (_, *forward), (kind, *backward) in cells[cells[:, 1, 0] >= 0].tolist():
                filled, freed = (held.get((place, *one)) for one in (forward, backward))
                if kind == _B and filled is not None and freed is not None:
                    self._start[filled] = self._end[freed]

    def _by_forward(self) -> dict[tuple[int, int, int], int]:
        """The buffer of what a forward keeps on the device, by place, stage and micro-batch."""
        program = self.timeline.program
        ops, writes = program.accesses.row_of_value(), column_of(program.access_table, "write", bool)
        access = program.accesses.values[writes[program.accesses.values]]
        writer = np.full(len(program.buffers), -1, np.int64)
        writer[column_of(program.access_table, "buffer", int)[access]] = ops[writes[program.accesses.values]]
        stages = {stage_buffer(stage) for stage in range(self.resolved.grid.stages)}
        own = [i for i, name in enumerate(column_of(program.buffers, "name", object).tolist()) if name in stages]
        tags = (program.tags[tag][writer[own]].tolist() for tag in ("stage", "microbatch"))
        return dict(zip(zip(self._place[own].tolist(), *tags, strict=True), own, strict=True))

    def bytes_over_time(self, place: int) -> tuple[Floats, dict[str, Floats]]:
        """Times in seconds, and for each buffer name the bytes held at `place` from each time on."""
        own = np.flatnonzero(self._place == place)
        times = np.unique(np.concatenate([[0.0], self._start[own], self._end[own]]))
        found = {}
        for name in np.unique(self._name[own]).tolist():
            alike = own[self._name[own] == name]
            size, n = self._bytes[alike], len(times)
            came = np.bincount(np.searchsorted(times, self._start[alike]), size, minlength=n)
            went = np.bincount(np.searchsorted(times, self._end[alike]), size, minlength=n)
            found[self._names[name]] = np.cumsum(came - went)
        return times, found

    @cached_property
    def _forwards(self) -> tuple[Ints, Ints]:
        """(the ops of forwards, the place of each). All lanes of such an op are at one place."""
        program = self.timeline.program
        ops = np.flatnonzero(np.isin(program.tags["action"], [ACTIONS.index("F"), ACTIONS.index("FB")]))
        lane = program.lanes_of.values[program.lanes_of.start[ops]]
        return ops, np.array([lane.place for lane in program.lanes], np.int64)[lane]

    def latest(self, place: int, at_s: float) -> int:
        """The micro-batch of the last forward at `place` that began by `at_s`; -1 if none did."""
        program, start_s, (ops, places) = self.timeline.program, self.timeline.start_s, self._forwards
        own = ops[(places == place) & (start_s[ops] <= at_s)]
        return int(program.tags["microbatch"][own[start_s[own].argmax()]]) if len(own) else -1

    def sum_parts(self, held: Mapping[str, Floats]) -> dict[str, Floats]:
        """Bytes by part of the layer, given bytes by buffer name. Buffers of equal name have the same parts."""
        found: dict[str, Floats] = {}
        for name, sizes in held.items():
            parts = self._parts[name]
            total = sum(parts.values()) or 1
            for part, size in parts.items():
                key = f"{ACTIVATIONS}{part}"
                found[key] = found.get(key, 0.0) + sizes * (size / total)
        return found
