"""The engine: runs a Program with its Costs in simulated time on SimPy. Only this file and `flows` know the clock.

An op starts when it is at the head of all its lanes, its dependencies have ended and its pool slots are free. It takes
its latency, then its work. An op is one timeout if its links can never be full and no other op disturbs its class; all
other ops become flows. Events have a total order: time, priority, sequence number (SimPy's heap). So equal inputs give
equal bytes.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from simpy import Environment, Event, Timeout

from ..costs import Costs
from ..program import Copy, Program, add_copies
from ..timeline import Timeline
from . import static
from .disturbance import Disturbance
from .flows import LATE, At, Flows
from .waiting import DeadlockError, Pools, Waiting, describe

Process = Callable[["Engine"], Generator[Event, Any, Any]]
_NEVER = -1.0


def simulate(program: Program, costs: Costs, processes: Sequence[Process] = ()) -> Timeline:
    """Run the Program and return what happened when.

    `processes` are SimPy generators that get the Engine and may slow ranks, and watch, cancel or submit ops. A process
    that never ends keeps the clock running, and so hides a deadlock.

    Raises:
        DeadlockError: ops wait for each other; the message names the cycle.
    """
    timeline = None if processes else static.run(program, costs)
    return Engine(program, costs, processes).run() if timeline is None else timeline


class Engine:
    """One run of a Program, with all its state."""

    def __init__(self, program: Program, costs: Costs, processes: Sequence[Process] = ()):
        assert np.diff(program.lanes_of.start).all(), "every op runs on a lane; see program.validate"
        self.env = Environment()
        self._given, self._copies = program, list[Copy]()
        pruned = costs.prune(program)
        disturbed = Disturbance.disturbing_classes(costs)
        self._disturbance = Disturbance(program, costs) if disturbed.any() or processes else None
        self.flows = Flows(self.env, pruned, self._disturbance, self._end)
        crosses = np.diff(pruned.demand.start)[pruned.row] > 0
        flows = (costs.work_s > 0) & (crosses | disturbed[costs.cost_class] | bool(processes))
        self._is_flow: list[bool] = flows.tolist()
        self._delay: list[float] = np.where(flows, costs.latency_s, costs.latency_s + costs.work_s).tolist()
        self._work: list[float] = costs.work_s.tolist()
        self._start: list[float] = [_NEVER] * len(program)
        self._end_at: list[float] = [_NEVER] * len(program)
        self._cause: list[int] = [-1] * len(program)
        self._left = len(program)
        self._waiting, self._pools = Waiting(program), Pools(program)
        self._tails: dict[int, int] = {}
        self._watched: dict[int, Event] = {}
        self._cancelled: set[int] = set()
        self._done = self.env.event()
        for process in processes:
            self.env.process(process(self))

    @property
    def program(self) -> Program:
        """The given Program, followed by the submitted ops."""
        return add_copies(self._given, self._copies)

    def run(self) -> Timeline:
        """Run until the last op ends."""
        for op in self._waiting.free():
            self._ready(op, -1)
        if self._left:
            self._run()
        return Timeline(
            program=self.program,
            start_s=np.array(self._start),
            end_s=np.array(self._end_at),
            cause=np.array(self._cause, np.int64),
            cancelled=np.isin(np.arange(len(self._start)), list(self._cancelled)),
        )

    def end_of(self, op: int) -> Event:
        """An event that occurs when the op ends; processes can wait for it."""
        event = self._watched.setdefault(op, self.env.event())
        if self._end_at[op] != _NEVER and not event.triggered:
            event.succeed(op)
        return event

    def set_rank_speed(self, rank: int, speed: float) -> None:
        """Set the speed of all work on a rank from now on, as a fraction of full speed (0 stalls it)."""
        assert self._disturbance is not None, "only processes change speeds"
        self._disturbance.set_rank_speed(rank, speed)
        self.flows.touch()

    def cancel(self, op: int) -> None:
        """Cancel an op. A running op ends now; one that has not started takes no time later; ended ops stay."""
        if self._end_at[op] != _NEVER or op in self._cancelled:
            return
        self._cancelled.add(op)
        if self._start[op] != _NEVER:
            if op in self.flows.active:
                self.flows.leave(op)
            self._end(op)

    def submit(self, like: int, after: Sequence[int] = (), name: str = "") -> int:
        """Append a copy of op `like` of the Program, with the same costs, at the tail of the same lanes.

        It serves for a retry, or the next step of an asynchronous worker. Returns the new op; the run continues until
        it has ended.
        """
        op = len(self._start)
        self._copies.append(Copy(like, tuple(after), name or f"{self._given.names[like]} again"))
        self._is_flow.append(self._is_flow[like])
        self._delay.append(self._delay[like])
        self._work.append(self._work[like])
        self._start.append(_NEVER)
        self._end_at.append(_NEVER)
        self._cause.append(-1)
        self._left += 1
        self._pools.copy(op, like)
        self.flows.copy(op, like)
        before = {*after, *(self._tail(lane, op) for lane in self._given.lanes_of[like].tolist())}
        if self._waiting.add(op, [one for one in before if self._end_at[one] == _NEVER]):
            self._ready(op, -1)
        return op

    def _tail(self, lane: int, op: int) -> int:
        """Make `op` the last op of the lane. Returns the previous last op."""
        tail = self._tails.get(lane, int(self._given.order[lane][-1]))
        self._tails[lane] = op
        return tail

    def _run(self) -> None:
        try:
            self.env.run(self._done)
        except RuntimeError as error:
            if "No scheduled events left" not in str(error):  # SimPy's message; any other error comes from a process
                raise
            raise DeadlockError(self._deadlock()) from None

    def _ready(self, op: int, cause: int) -> None:
        """Begin an op whose lanes are free and whose dependencies have ended, as soon as its pools have slots."""
        self._cause[op] = cause
        if self._pools.take(op):
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
            self.flows.join(op, self._work[op])

    def _on_latency(self, event: Event) -> None:
        op = event._value
        if self._end_at[op] == _NEVER:
            self.flows.join(op, self._work[op])

    def _on_end(self, event: Event) -> None:
        if self._end_at[event._value] == _NEVER:
            self._end(event._value)

    def _end(self, op: int) -> None:
        self._end_at[op] = self.env.now
        self._left -= 1
        for served in self._pools.give(op):
            self._cause[served] = op
            self._begin(served)
        for successor in self._waiting.release(op):
            self._ready(successor, op)
        if op in self._watched:
            self.end_of(op)
        if not self._left:
            At(self.env, 0.0, LATE, self._stop)

    def _stop(self, _: Event) -> None:
        """End the run at the end of the instant in which the last op ends, unless a process has submitted another."""
        if not self._left and not self._done.triggered:
            self._done.succeed()

    def _deadlock(self) -> str:
        program = self.program
        stuck = [op for op, end in enumerate(self._end_at) if end == _NEVER]
        return describe(stuck, lambda op: self._waits_for(program, op), lambda op: repr(program.names[op]))

    def _waits_for(self, program: Program, op: int) -> tuple[int | None, str]:
        """What keeps an op from starting or ending: (the op for which it waits or None, the reason in words)."""
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
        return self._waits_for_slot(program, op)

    def _waits_for_slot(self, program: Program, op: int) -> tuple[int | None, str]:
        for pool in self._pools.acquires.get(op, ()):
            name = program.pools[pool].name
            for holder, released in self._pools.releases.items():
                if pool in released and self._end_at[holder] == _NEVER and holder != op:
                    return holder, f"waits for a slot of {name!r}, given back by {program.names[holder]!r}"
            return None, f"waits for a slot of {name!r} that nothing gives back"
        return None, "waits for nothing"
