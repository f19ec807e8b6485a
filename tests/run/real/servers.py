"""A real parameter server and its workers: what `run_servers` simulates, from the same plan.

Rank 0 is the server, all others are workers. A step is a real gradient and a sleep for the rest of its time. A push
crosses the server's link chunk by chunk, a sleep each, in turn with other pushes: they share the link. It asks for
parameters, too, as soon as it is applied, as in BytePS.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import torch
import torch.distributed as dist
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.run.sync.server_plan import ServerPlan

from .processes import run_ranks
from .steps import sleep_until, step_times_s

Tensor = torch.Tensor
VALUES = 32  # of the model
_CHUNKS = 4  # of a push
_ALONE = 20  # updates of one worker, to measure what a pull and a push take
_PULL, _PUSH, _STOP = range(3)
_OVER = -1  # the version of parameters that nobody trains on any more
_NOTHING = torch.zeros(VALUES, dtype=torch.float64)


class Applied(NamedTuple):
    """A gradient, the version of the parameters that it was computed on, and of those that it was applied to."""

    worker: int
    step: int
    read: int
    version: int


class Served(NamedTuple):
    """What the server saw: seconds until the last update and in requests by kind, gradients in order, the model."""

    wall_s: float
    busy_s: dict[int, float]
    applied: list[Applied]
    parameters: Tensor

    @property
    def staleness(self) -> dict[int, int]:
        """Gradients by how many updates happened between the reading of their parameters and their application."""
        return dict(sorted(Counter(one.version - one.read for one in self.applied).items()))


@dataclass(frozen=True)
class RealRun:
    """A run of real processes, what each worker pushed, step by step, and the same plan with measured costs.

    `late_s` is how much longer than they should the steps of workers took, on average.
    """

    served: Served
    pushed: list[Tensor]
    late_s: float
    measured: ServerPlan


def run_real(plan: ServerPlan) -> RealRun:
    """Run a plan with real processes. It may have a bound, `rpc`, `apply`, and a link of the server for pushes."""
    (alone, served), *workers = run_ranks(1 + plan.team.workers, _take_part, plan)
    late_s = sum(late_s for _, late_s in workers) / len(workers)
    return RealRun(served, [pushed for pushed, _ in workers], late_s, _with_costs(plan, alone))


def _take_part(plan: ServerPlan) -> tuple[Served, Served] | tuple[Tensor, float]:
    """Be the server or a worker: first with the first worker alone, then in the run itself."""
    rank, alone = dist.get_rank(), _alone(plan)
    times_s = step_times_s(plan.team, rank - 1) if rank else []
    gradient(_NOTHING, 0, 0)  # what takes longer the first time is over before anything is measured
    dist.barrier()
    first = _Server(alone).run() if rank == 0 else None
    if rank == 1:
        _work(0, [alone.team.step_s] * (_ALONE + 1))
    dist.barrier()
    return (first, _Server(plan).run()) if first else _work(rank - 1, times_s)


def _alone(plan: ServerPlan) -> ServerPlan:
    """One worker, whose steps all take the same."""
    return replace(plan, team=replace(plan.team, workers=1, speeds=(), jitter=Spread()), steps=_ALONE)


def _with_costs(plan: ServerPlan, alone: Served) -> ServerPlan:
    """The plan with what real messages cost beside the delays that it asks for, as one worker alone sees it.

    What the server does for a request is time of its host; the rest of a round trip is latency, half of it of the push
    and half of it of the answer.
    """
    each_s, pull_s, push_s = (seconds / _ALONE for seconds in (alone.wall_s, *map(alone.busy_s.get, (_PULL, _PUSH))))
    crossing_s = plan.wire_bytes[0] / plan.server_bytes_per_s
    server = plan.server.model_copy(update={"rpc": pull_s, "apply": max(push_s - crossing_s - pull_s, 0.0)})
    latency_s = (each_s - plan.team.step_s - pull_s - push_s) / 2
    return replace(plan, team=replace(plan.team, latency_s=latency_s), server=server)


# What is computed


def gradient(parameters: Tensor, worker: int, step: int) -> Tensor:
    """The gradient of a linear regression on a worker's samples of a step, times the learning rate."""
    rng = torch.Generator().manual_seed(1000 * step + worker)
    x = torch.randn(16, VALUES, generator=rng, dtype=torch.float64)
    y = x.sum(1) + torch.randn(16, generator=rng, dtype=torch.float64)
    return 0.02 * x.T @ (x @ parameters - y) / len(y)


def replay(applied: Iterable[Applied]) -> Tensor:
    """The parameters after these gradients, each computed on the version that its worker read, in one process."""
    versions = [_NOTHING]
    for _, together in groupby(applied, key=lambda one: one.version):
        versions.append(versions[-1] - sum(gradient(versions[one.read], one.worker, one.step) for one in together))
    return versions[-1]


# Workers


def _work(worker: int, times_s: list[float]) -> tuple[Tensor, float]:
    """Train until the server says that it is over; returns the gradients, and how late steps ended on average."""
    pushed, late_s = [], 0.0
    _ask(_PULL)
    for step, step_s in enumerate(times_s):
        version, parameters = _read()
        if version == _OVER:
            _ask(_STOP)
            return torch.stack(pushed), late_s / len(pushed)
        begun_s = time.perf_counter()
        pushed.append(gradient(parameters, worker, step))
        late_s += sleep_until(begun_s + step_s)
        _ask(_PUSH, version, pushed[-1])
    raise AssertionError(f"worker {worker} has made {len(times_s)} steps, and nobody told it to stop")


def _read() -> tuple[int, Tensor]:
    """The version of the parameters, and the parameters."""
    answer = torch.empty(1 + VALUES, dtype=torch.float64)
    dist.recv(answer, 0)
    return int(answer[0]), answer[1:]


def _ask(kind: int, version: int = 0, values: Tensor = _NOTHING) -> None:
    dist.send(torch.cat([torch.tensor([kind, version], dtype=torch.float64), values]), 0)


# The server


class _Request(NamedTuple):
    worker: int
    kind: int
    version: int
    values: Tensor
    chunks: int = _CHUNKS


class _Server:
    """Answers one request after the other, in the order in which they come."""

    def __init__(self, plan: ServerPlan):
        self._plan, workers = plan, plan.team.workers
        self._chunk_s = plan.wire_bytes[0] / plan.server_bytes_per_s / _CHUNKS
        self._parameters, self._version = _NOTHING.clone(), 0
        self._busy_s: dict[int, float] = defaultdict(float)
        self._applied: list[Applied] = []
        self._round: list[tuple[int, Tensor]] = []
        self._done, self._waiting = [0] * workers, []
        self._queue = _receive(workers)

    def run(self) -> Served:
        """Serve until the last update is applied and all workers know it."""
        begun_s = time.perf_counter()
        while len(self._applied) < self._plan.pushes:
            request = self._queue.get(timeout=20)
            start_s = time.perf_counter()
            self._serve(request)
            self._busy_s[request.kind] += time.perf_counter() - start_s
        wall_s = time.perf_counter() - begun_s
        self._dismiss()
        return Served(wall_s, dict(self._busy_s), self._applied, self._parameters)

    def _serve(self, request: _Request) -> None:
        if request.kind == _PUSH:
            self._take(request)
        else:
            self._waiting.append(request.worker)
        self._answer()

    def _take(self, request: _Request) -> None:
        """Let a chunk cross the link, then others that wait for it; the last one is followed by the application.

        Where the link takes no time, nobody takes turns.
        """
        if self._chunk_s:
            time.sleep(self._chunk_s)
            if request.chunks > 1:
                self._queue.put(request._replace(chunks=request.chunks - 1))
                return
        time.sleep(self._plan.server.rpc + self._plan.server.apply)
        self._apply(request)
        self._queue.put(request._replace(kind=_PULL))

    def _apply(self, push: _Request) -> None:
        """Apply a gradient; synchronous: the sum of those of a round, when all are there."""
        self._applied.append(Applied(push.worker, self._done[push.worker], push.version, self._version))
        self._done[push.worker] += 1
        self._round.append((push.worker, push.values))
        if not self._plan.synchronous or len(self._round) == len(self._done):
            self._parameters -= sum(values for _, values in self._round)
            self._version += 1
            self._round.clear()

    def _answer(self) -> None:
        """Give parameters to those who are not too far ahead of the slowest."""
        for worker in list(self._waiting):
            if self._done[worker] - min(self._done) <= self._plan.server.most_ahead:
                self._waiting.remove(worker)
                time.sleep(self._plan.server.rpc)
                self._send(worker, self._version)

    def _send(self, worker: int, version: int) -> None:
        dist.send(torch.cat([torch.tensor([version], dtype=torch.float64), self._parameters]), 1 + worker)

    def _dismiss(self) -> None:
        """Take what workers still send, and tell them that it is over."""
        for worker in self._waiting:
            self._send(worker, _OVER)
        left = len(self._done)
        while left:
            request = self._queue.get(timeout=20)
            if request.kind == _STOP:
                left -= 1
            else:
                self._send(request.worker, _OVER)


def _receive(workers: int) -> "SimpleQueue[_Request]":
    """Requests in the order in which they come: a thread takes them from the network while the server is at work."""
    queue: SimpleQueue[_Request] = SimpleQueue()

    def listen() -> None:
        left = workers
        while left:
            message = torch.empty(2 + VALUES, dtype=torch.float64)
            worker = dist.recv(message) - 1
            request = _Request(worker, int(message[0]), int(message[1]), message[2:])
            queue.put(request)
            left -= request.kind == _STOP

    Thread(target=listen, daemon=True).start()
    return queue
