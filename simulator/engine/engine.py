"""The engine: runs a costed Program in simulated time on SimPy. With `flows`, the only file that knows the clock.

An op starts when it is at the head of all its lanes, its dependencies have ended and its pool slots are free. It then
takes its latency, then its work. Ops whose links can never be full and whose class nobody disturbs are one timeout;
the others become flows. Order is total: time, priority, sequence number (SimPy's heap), so equal inputs give equal
bytes out.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np
from simpy import Environment, Event, Timeout

from ..costs import Costs
from ..program import Program, Ragged
from ..timeline import Timeline
from .deadlock import DeadlockError, describe
from .disturbance import Disturbance
from .flows import Flows

Process = Callable[["Engine"], Generator[Event, Any, Any]]
_NEVER = -1.0


def simulate(program: Program, costs: Costs, processes: Sequence[Process] = ()) -> Timeline:
    """Run the Program and return what happened when.

    `processes` are SimPy generators that get the Engine and may slow ranks, cancel or watch ops while it runs.

    Raises:
        DeadlockError: ops remain that wait for each other; the message names the cycle.
    """
    return Engine(program, costs, processes).run()


class Engine:
    """One run. State lives here and nowhere else."""

    def __init__(self, program: Program, costs: Costs, processes: Sequence[Process] = ()):
        self.env = Environment()
        self.program = program
        self.costs = costs.pruned(program)
        disturbed = Disturbance.involved(costs)
        self.disturbance = Disturbance(program, costs) if disturbed.any() or processes else None
        self.flows = Flows(self.env, self.costs, self.disturbance, self._end)
        crosses = np.diff(self.costs.demand.start)[self.costs.row] > 0
        flows = (costs.work_s > 0) & (crosses | disturbed[costs.cost_class] | bool(processes))
        self._is_flow: list[bool] = flows.tolist()
        self._delay: list[float] = np.where(flows, costs.latency_s, costs.latency_s + costs.work_s).tolist()
        self._start: list[float] = [_NEVER] * len(program)
        self._end_at: list[float] = [_NEVER] * len(program)
        self._cause: list[int] = [-1] * len(program)
        self._left = len(program)
        self._succ_start, self._succ, self._waiting = _successors(program)
        self._acquires, self._releases = _rows(program.acquires), _rows(program.releases)
        self._slots = [pool.slots for pool in program.pools]
        self._queues: list[deque[int]] = [deque() for _ in program.pools]
        self._watched: dict[int, Event] = {}
        self._cancelled: set[int] = set()
        self._done = self.env.event()
        for process in processes:
            self.env.process(process(self))

    def run(self) -> Timeline:
        """Run to the end of the last op."""
        for op in [op for op, count in enumerate(self._waiting) if count == 0]:
            self._ready(op, -1)
        if self._left:
            self._run()
        return Timeline(
            program=self.program,
            start_s=np.array(self._start),
            end_s=np.array(self._end_at),
            cause=np.array(self._cause, np.int64),
            cancelled=np.isin(np.arange(len(self.program)), list(self._cancelled)),
        )

    def done(self, op: int) -> Event:
        """An event that a process can wait for: the op has ended."""
        event = self._watched.setdefault(op, self.env.event())
        if self._end_at[op] != _NEVER and not event.triggered:
            event.succeed(op)
        return event

    def set_rank_speed(self, rank: int, speed: float) -> None:
        """From now on all work on the rank runs at this fraction of its speed (0 stalls it)."""
        assert self.disturbance is not None, "only processes change speeds"
        self.disturbance.set_rank_speed(rank, speed)
        self.flows.touch()

    def cancel(self, op: int) -> None:
        """A running op ends now; one that has not started takes no time when its turn comes. Ended ops stay."""
        if self._end_at[op] != _NEVER or op in self._cancelled:
            return
        self._cancelled.add(op)
        if self._start[op] != _NEVER:
            if op in self.flows.active:
                self.flows.leave(op)
            self._end(op)

    def _run(self) -> None:
        try:
            self.env.run(self._done)
        except RuntimeError as error:
            if self.env.peek() < float("inf"):
                raise
            raise DeadlockError(self._deadlock()) from error

    def _ready(self, op: int, cause: int) -> None:
        """All lanes and dependencies are there; pools decide."""
        self._cause[op] = cause
        if op in self._acquires and not self._take_slots(op):
            return
        self._begin(op)

    def _begin(self, op: int) -> None:
        self._start[op] = self.env.now
        if op in self._cancelled:
            Timeout(self.env, 0.0, op).callbacks.append(self._on_end)
        elif not self._is_flow[op]:
            Timeout(self.env, self._delay[op], op).callbacks.append(self._on_end)
        elif self._delay[op]:
            Timeout(self.env, self._delay[op], op).callbacks.append(self._on_latency)
        else:
            self.flows.join(op, float(self.costs.work_s[op]))

    def _on_latency(self, event: Event) -> None:
        op = event._value
        if self._end_at[op] == _NEVER:
            self.flows.join(op, float(self.costs.work_s[op]))

    def _on_end(self, event: Event) -> None:
        if self._end_at[event._value] == _NEVER:
            self._end(event._value)

    def _end(self, op: int) -> None:
        self._end_at[op] = self.env._now
        self._left -= 1
        if op in self._releases:
            self._give_slots(op)
        waiting = self._waiting
        for successor in self._succ[self._succ_start[op] : self._succ_start[op + 1]]:
            left = waiting[successor] - 1
            waiting[successor] = left
            if not left:
                self._ready(successor, op)
        if op in self._watched:
            self.done(op)
        if not self._left:
            self._done.succeed()

    def _take_slots(self, op: int) -> bool:
        """Take a slot of each pool that the op needs, all or none; else queue for them, first come first served."""
        needed = self._acquires[op]
        ahead = any(self._queues[pool] and self._queues[pool][0] != op for pool in needed)
        if ahead or any(self._slots[pool] < needed.count(pool) for pool in needed):
            for pool in dict.fromkeys(needed):
                if op not in self._queues[pool]:
                    self._queues[pool].append(op)
            return False
        for pool in needed:
            self._slots[pool] -= 1
        for pool in dict.fromkeys(needed):
            if self._queues[pool]:
                self._queues[pool].popleft()
        return True

    def _give_slots(self, op: int) -> None:
        changed = list(self._releases[op])
        for pool in changed:
            self._slots[pool] += 1
        for pool in changed:  # grows: behind who leaves a queue may stand one whose slots are free
            while self._queues[pool] and self._take_slots(first := self._queues[pool][0]):
                changed += [other for other in self._acquires[first] if other != pool]
                self._cause[first] = op
                self._begin(first)

    def _deadlock(self) -> str:
        stuck = [op for op, end in enumerate(self._end_at) if end == _NEVER]
        return describe(stuck, self._waits_for, lambda op: repr(self.program.names[op]))

    def _waits_for(self, op: int) -> tuple[int | None, str]:
        """What keeps a stuck op from starting, or from ending."""
        program = self.program
        if self._start[op] != _NEVER:
            return None, "has started but its speed is 0"
        for dep in program.deps[op].tolist():
            if self._end_at[dep] == _NEVER:
                return dep, f"waits for {program.names[dep]!r}"
        for lane in program.lanes_of[op].tolist():
            for head in program.order[lane].tolist():
                if head == op:
                    break
                if self._end_at[head] == _NEVER:
                    return head, f"waits on lane {program.lane_name(lane)} for {program.names[head]!r}"
        return self._waits_for_slot(op)

    def _waits_for_slot(self, op: int) -> tuple[int | None, str]:
        for pool in self._acquires.get(op, ()):
            name = self.program.pools[pool].name
            for holder, released in self._releases.items():
                if pool in released and self._end_at[holder] == _NEVER and holder != op:
                    return holder, f"waits for a slot of {name!r}, given back by {self.program.names[holder]!r}"
            return None, f"waits for a slot of {name!r} that nothing gives back"
        return None, "waits for nothing"


def _successors(program: Program) -> tuple[list[int], list[int], list[int]]:
    """Who waits for each op (dependencies and the next op of each lane) as rows, and how many each op waits for."""
    lanes = program.order
    previous = lanes.values[:-1]
    following = lanes.values[1:]
    same_lane = np.ones(len(previous), bool)
    same_lane[lanes.start[(lanes.start > 0) & (lanes.start < len(lanes.values))] - 1] = False
    before = np.concatenate([program.deps.values, previous[same_lane]])
    after = np.concatenate([program.deps.row_of_value(), following[same_lane]])
    order = np.argsort(before, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=len(program)))))
    return start.tolist(), after[order].tolist(), np.bincount(after, minlength=len(program)).tolist()


def _rows(rows: Ragged) -> Mapping[int, list[int]]:
    """The rows that hold something."""
    filled = np.flatnonzero(np.diff(rows.start))
    return {int(row): rows[row].tolist() for row in filled}
