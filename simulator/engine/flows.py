"""Flows: ops in their work phase that can slow each other. Which are active, at what speed, and when does the next end?

Rates change only when an op starts or ends. All changes of one instant are applied once, after its last event. Speeds
come from `load` and `sharing`, caps from `disturbance`.
"""

from collections.abc import Callable
from math import inf

from simpy import Environment, Event
from simpy.events import EventPriority

from ..costs import Costs
from .disturbance import Disturbance
from .load import Allocator, Load
from .sharing import TIE

NORMAL = EventPriority(1)
LATE = EventPriority(2)  # after URGENT (0) and NORMAL: the end of an instant


class At(Event):
    """An event after a given delay, with a given priority."""

    def __init__(self, env: Environment, delay: float, priority: EventPriority, then: Callable[[Event], None]):
        super().__init__(env)
        self._ok, self._value = True, None
        self.callbacks = [then]
        env.schedule(self, priority, delay)


class _Flow:
    """One active op: its remaining work (seconds at full speed) at the time when its speed last changed."""

    __slots__ = ("cap", "finish_at", "op", "remaining", "row", "since", "speed")

    def __init__(self, op: int, work_s: float, now: float, row: int):
        self.op, self.remaining, self.since, self.row = op, work_s, now, row
        self.speed, self.cap, self.finish_at = 0.0, 1.0, inf

    def set_speed(self, speed: float, now: float) -> None:
        self.remaining -= self.speed * (now - self.since)
        self.since, self.speed = now, speed
        self.finish_at = now + max(self.remaining, 0.0) / speed if speed > 0 else inf


def _by_row(flow: _Flow) -> tuple[int, int]:
    return flow.row, flow.op


class Flows:
    """The active flows of one run; `finished(op)` is called when a flow has done its work."""

    def __init__(
        self, env: Environment, costs: Costs, disturbance: Disturbance | None, finished: Callable[[int], None]
    ):
        self.env, self.disturbance, self.finished = env, disturbance, finished
        self.active: dict[int, _Flow] = {}
        self.reallocations = 0
        self._row_of: list[int] = costs.row.tolist()
        self._load = Load(costs)
        self._allocator = Allocator(costs)
        self._fresh: list[_Flow] = []
        self._settling = False
        self._shared = False  # whether the current speeds come from sharing
        self._alarm: At | None = None
        self._alarm_at = inf

    def join(self, op: int, work_s: float) -> None:
        """Begin the work of an op now."""
        flow = _Flow(op, work_s, self.env.now, self._row_of[op])
        self.active[op] = flow
        self._fresh.append(flow)
        self._load.add(flow.row)
        if self.disturbance:
            self.disturbance.enter(op)
        self.touch()

    def leave(self, op: int) -> None:
        """End the work of an op now, finished or not."""
        self._load.remove(self.active.pop(op).row)
        if self.disturbance:
            self.disturbance.leave(op)
        self.touch()

    def copy(self, op: int, original: int) -> None:
        """Add a new op with the next number, with the rates and the interference of another op."""
        self._row_of.append(self._row_of[original])
        if self.disturbance:
            self.disturbance.copy(op, original)

    def touch(self) -> None:
        """Note a change: all speeds are set again at the end of this instant."""
        if not self._settling:
            self._settling = True
            At(self.env, 0.0, LATE, self._settle)

    def _settle(self, _: Event) -> None:
        self._settling = False
        now = self.env.now
        if self._load.full or self._shared or self.disturbance:
            self._share(now)
        else:
            for flow in self._fresh:
                flow.set_speed(1.0, now)
        self._fresh.clear()
        self._set_alarm(now)

    def _share(self, now: float) -> None:
        flows = sorted(self.active.values(), key=_by_row)
        if self.disturbance:
            for flow in flows:
                flow.cap = self.disturbance.cap(flow.op)
        self._shared = bool(self._load.full)
        sharing = [flow for flow in flows if self._load.is_full(flow.row)] if self._shared else []
        self.reallocations += 1
        if len(sharing) < len(flows):  # flows that cross no full link run at their caps
            alone = flows if not sharing else [flow for flow in flows if not self._load.is_full(flow.row)]
            self._set_speeds(alone, [flow.cap for flow in alone], now)
        if sharing:
            caps = [flow.cap for flow in sharing]
            self._set_speeds(sharing, self._allocator.speeds([flow.row for flow in sharing], caps), now)

    def _set_speeds(self, flows: list[_Flow], speeds: list[float], now: float) -> None:
        for flow, speed in zip(flows, speeds, strict=True):
            if speed != flow.speed:
                flow.set_speed(speed, now)

    def _set_alarm(self, now: float) -> None:
        at = min([flow.finish_at for flow in self.active.values()], default=inf)
        if at != self._alarm_at:
            self._alarm_at = at
            self._alarm = At(self.env, at - now, NORMAL, self._finish) if at < inf else None

    def _finish(self, alarm: Event) -> None:
        if alarm is not self._alarm:
            return
        due = self._alarm_at * TIE
        self._alarm, self._alarm_at = None, inf
        for op in [flow.op for flow in self.active.values() if flow.finish_at <= due]:
            if op in self.active:  # a flow that ended before may have cancelled this one
                self.leave(op)
                self.finished(op)
