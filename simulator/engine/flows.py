"""Ops in their work phase that can slow each other: who is active, at what speed, and when the next one ends.

Rates change only when something starts or ends; all that happens at one instant is settled once, after the last event
of that instant. Speeds come from `sharing`, caps from `disturbance`.
"""

from collections.abc import Callable
from math import inf

import numpy as np
from simpy import Environment, Event

from ..costs import Costs
from . import sharing
from .disturbance import Disturbance

LATE = 2  # SimPy priority after URGENT (0) and NORMAL (1): the end of an instant
_SHORT = 8  # a demand row up to this long is walked in Python, a longer one by numpy
_COMPILE_AFTER = 200  # allocations of many flows before compiling pays


class _At(Event):
    """An event that happens at a given delay and priority."""

    def __init__(self, env: Environment, delay: float, priority: int, then: Callable[[Event], None]):
        super().__init__(env)
        self._ok, self._value = True, None
        self.callbacks = [then]
        env.schedule(self, priority, delay)


class _Flow:
    """One active op: what is left of its work (seconds at full speed) since the time its speed last changed."""

    __slots__ = (
        "cap", "finish_at", "links", "links_list", "op", "rates", "rates_list", "remaining", "since", "speed", "top"
    )  # fmt: skip

    def __init__(self, op: int, work_s: float, now: float, links: np.ndarray, rates: np.ndarray):
        self.op, self.remaining, self.since = op, work_s, now
        self.links, self.rates = links, rates
        self.links_list, self.rates_list = links.tolist(), rates.tolist()
        self.top = max(self.rates_list, default=1.0)
        self.speed, self.cap, self.finish_at = 0.0, 1.0, inf

    def set_speed(self, speed: float, now: float) -> None:
        self.remaining -= self.speed * (now - self.since)
        self.since, self.speed = now, speed
        self.finish_at = now + max(self.remaining, 0.0) / speed if speed > 0 else inf


class Flows:
    """The active flows of one run; `finished(op)` is called when one has done its work."""

    def __init__(
        self, env: Environment, costs: Costs, disturbance: Disturbance | None, finished: Callable[[int], None]
    ):
        self.env, self.costs, self.disturbance, self.finished = env, costs, disturbance, finished
        self.active: dict[int, _Flow] = {}
        self.reallocations = 0
        self._fresh: list[_Flow] = []
        self._settling = False
        self._alarm: _At | None = None
        self._alarm_at = inf
        self._capacity = costs.capacity_bytes_per_s
        self._limit = self._capacity * sharing.TIE
        self._load = np.zeros(len(self._capacity))
        self._full_links = 0  # links on which the flows together ask more than there is
        self._shared = False  # whether the current speeds come from sharing
        self._room, self._weight = [0.0] * len(self._capacity), [0.0] * len(self._capacity)
        self._capacity_list = self._capacity.tolist()
        self._compiled: Callable[..., None] | None = None
        self._scratch = (np.zeros(len(self._capacity)), np.zeros(len(self._capacity)))
        self._large = 0

    def join(self, op: int, work_s: float) -> None:
        """The op begins its work now."""
        flow = _Flow(op, work_s, self.env.now, *self.costs.demand_of(op))
        self.active[op] = flow
        self._fresh.append(flow)
        self._change_load(flow, 1.0)
        if self.disturbance:
            self.disturbance.enter(op)
        self.touch()

    def leave(self, op: int) -> None:
        """The op stops working now, finished or not."""
        self._change_load(self.active.pop(op), -1.0)
        if self.disturbance:
            self.disturbance.leave(op)
        self.touch()

    def touch(self) -> None:
        """Something changed: settle all speeds at the end of this instant."""
        if not self._settling:
            self._settling = True
            _At(self.env, 0.0, LATE, self._settle)

    def _change_load(self, flow: _Flow, sign: float) -> None:
        load, limit = self._load, self._limit
        if len(flow.links_list) <= _SHORT:
            for link, rate in zip(flow.links_list, flow.rates_list, strict=True):
                before = load[link]
                load[link] = after = before + sign * rate
                self._full_links += bool(after > limit[link]) - bool(before > limit[link])
        else:
            links = flow.links
            before_full = np.count_nonzero(load[links] > limit[links])
            load[links] += sign * flow.rates
            self._full_links += np.count_nonzero(load[links] > limit[links]) - before_full

    def _settle(self, _: Event) -> None:
        self._settling = False
        now = self.env.now
        if self._full_links or self._shared or self.disturbance:
            self._share(now)
        else:
            for flow in self._fresh:
                flow.set_speed(1.0, now)
        self._fresh.clear()
        self._set_alarm(now)

    def _share(self, now: float) -> None:
        flows = list(self.active.values())
        if self.disturbance:
            for flow in flows:
                flow.cap = self.disturbance.cap(flow.op)
        speeds = self._allocate(flows) if self._full_links else [flow.cap for flow in flows]
        self._shared = self._full_links > 0
        for flow, speed in zip(flows, speeds, strict=True):
            if speed != flow.speed:
                flow.set_speed(speed, now)

    def _allocate(self, flows: list[_Flow]) -> list[float]:
        self.reallocations += 1
        many = len(flows) > _SHORT
        self._large += many
        if many and self._large == _COMPILE_AFTER:
            self._compiled = sharing.compiled_fill()
        if many and self._compiled:
            return self._allocate_compiled(flows)
        start, links, rates = [0], list[int](), list[float]()
        for flow in flows:
            links += flow.links_list
            rates += flow.rates_list
            start.append(len(links))
        speeds = [0.0] * len(flows)
        tops, caps = [flow.top for flow in flows], [flow.cap for flow in flows]
        sharing.fill(start, links, rates, tops, caps, self._capacity_list, self._room, self._weight, speeds)
        return speeds

    def _allocate_compiled(self, flows: list[_Flow]) -> list[float]:
        assert self._compiled is not None
        start = np.zeros(len(flows) + 1, np.int64)
        np.cumsum([len(flow.links_list) for flow in flows], out=start[1:])
        links = np.concatenate([flow.links for flow in flows])
        rates = np.concatenate([flow.rates for flow in flows])
        tops, caps = np.array([flow.top for flow in flows]), np.array([flow.cap for flow in flows])
        speeds = np.zeros(len(flows))
        self._compiled(start, links, rates, tops, caps, self._capacity, *self._scratch, speeds)
        result: list[float] = speeds.tolist()
        return result

    def _set_alarm(self, now: float) -> None:
        at = min((flow.finish_at for flow in self.active.values()), default=inf)
        if at != self._alarm_at:
            self._alarm_at = at
            self._alarm = _At(self.env, at - now, 1, self._finish) if at < inf else None

    def _finish(self, alarm: Event) -> None:
        if alarm is not self._alarm:
            return
        due = self._alarm_at * sharing.TIE
        self._alarm, self._alarm_at = None, inf
        for op in [flow.op for flow in self.active.values() if flow.finish_at <= due]:
            if op in self.active:  # one that ended may have cancelled another
                self.leave(op)
                self.finished(op)
