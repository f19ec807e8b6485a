"""Activations of a training step over time: the buffers of a Timeline, by place and by part of the layer."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from ...base.arrays import Floats, Ints
from ...base.rows import column_of
from ...schedules.grid import BACKWARD, FORWARD, KINDS
from ...timeline import Timeline
from ...timeline.memory import buffer_spans
from .lower import buffer_parts
from .lower.assembly import ACTIONS
from .resolve import ResolvedTrain

ACTIVATIONS = "activations: "
"""How owners of memory begin that are activations."""
_F, _B = KINDS.index(FORWARD), KINDS.index(BACKWARD)


class Activations:
    """The bytes of activations over time, as step functions."""

    def __init__(self, resolved: ResolvedTrain, timeline: Timeline):
        self.resolved, self.timeline = resolved, timeline
        buffers = timeline.program.buffers
        self._start, self._end = buffer_spans(timeline)
        self._place = column_of(buffers, "place", int)
        if any(plan.grid.pairs for plan in resolved.plans):
            self._wait_for_room()
        self._bytes = column_of(buffers, "bytes", int).astype(np.float64)
        plan = resolved.plan
        self._parts = resolved.memo.get("kept", plan, lambda: buffer_parts(plan), lambda _: plan.grid.cells)
        self._names = list(self._parts)
        number = {name: i for i, name in enumerate(self._names)}
        self._name = np.array([number[name] for name in column_of(buffers, "name", object).tolist()], np.int64)

    def _wait_for_room(self) -> None:
        """A forward beside a backward fills what that frees, layer by layer: it holds its own from its end on."""
        ranks = self.resolved.grid.ranks
        for place in range(len(self.timeline.program.places)):
            plan, own = self.resolved.plans[place // ranks], np.flatnonzero(self._place == place)
            cells = plan.grid.columns[place % ranks]
            forwards = [(stage, microbatch) for kind, stage, microbatch in cells.reshape(-1, 3).tolist() if kind == _F]
            if len(own) != len(forwards):  # some are on the host, or keep nothing
                continue
            buffer = dict(zip(forwards, own.tolist(), strict=True))
            for (kind, *first), (other, *second) in cells[cells[:, 1, 0] >= 0].tolist():
                forward, backward = (first, second) if kind == _F else (second, first)
                if {kind, other} == {_F, _B}:
                    self._start[buffer[tuple(forward)]] = self._end[buffer[tuple(backward)]]

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
