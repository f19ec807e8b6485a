"""A parameter server: workers pull parameters, train a step on them and push its gradient, in step or not.

Each worker is a process that repeats

    wait for slower workers  ->  pull  ->  compute  ->  encode  ->  push  ->  the servers apply the gradient

Modes differ only in how many steps a worker may be ahead of the slowest one when it begins another: none where training
is synchronous, `bound` where it is stale (stale synchronous parallel, Ho et al., NIPS 2013), any number where it is
asynchronous (Dean et al., NIPS 2012). Parameters are sharded evenly over P servers (Li et al., OSDI 2014), which
therefore all do the same at the same time: they are simulated as one, with links of P times the rate.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import repeat, takewhile
from math import inf
from operator import itemgetter
from typing import Any

from simpy import Environment, Event, Interrupt, Process

from ..history import History, Recorder, mean_breakdown
from ..links import Clock, FairLink, HostLinks, SharedLink
from ..outages import Away, Outage
from ..team import Team
from .server_plan import ServerPlan

_STEP_TIMES = 1  # which stream of random numbers
_BLOCK = 256  # random numbers that a worker draws at once
_MOST_LANES = 8  # workers that have spans
_ROUNDING = 1e-12  # relative

Part = tuple[str, float, float]
"""A part of an outage: its cause, from when, and until when."""


def run_servers(plan: ServerPlan) -> History:
    """Simulate until the servers have applied the last update; steps in work then are cut off (unfinished).

    An update is a round of all workers if synchronous, else a push. The staleness of a push counts updates by other
    workers between its worker's reading of the parameters and its application.

    Overlap: a worker computes all but `overlap` of a step, encodes, and pushes while it computes the rest; the push
    ends no sooner than the step. Prefetch: the parameters of a step are read and pulled from the start of the step
    before. A failure undoes the step in work and ends its transfers, unless the servers have applied the gradient; a
    worker that comes back pulls parameters first. While it is away, those who wait for it do so for its causes.

    Limit: equal workers without jitter stay in step even where they need not, as they share links equally. All push
    and then all pull, so that full links of servers do half of what they can. Little jitter spreads them in a while.
    """
    run = _Run(plan)
    run.env.run(run.end)
    return run.history()


class _Links:
    """The links of the servers; `push` and `pull` are events of their ends."""

    def __init__(self, env: Clock, plan: ServerPlan):
        team, (push_bytes, pull_bytes) = plan.team, plan.wire_bytes
        each, together = team.link_bytes_per_s, plan.together_bytes_per_s
        self._links: tuple[FairLink, ...] = ()
        self.push: Callable[[], Event]
        self.pull: Callable[[], Event]
        if plan.server.on == "workers":
            hosts = HostLinks(env, team.workers, each)
            self._links = (hosts,)
            self.push, self.pull = partial(hosts.push, push_bytes), partial(hosts.pull, pull_bytes)
        elif team.workers * each <= together:  # all workers at once do not fill them
            self.push, self.pull = partial(env.timeout, push_bytes / each), partial(env.timeout, pull_bytes / each)
        else:
            self._links = ingress, egress = SharedLink(env, together, each), SharedLink(env, together, each)
            self.push, self.pull = partial(ingress.transfer, push_bytes), partial(egress.transfer, pull_bytes)

    def stop(self, transfer: Event) -> None:
        """Nobody sends or waits any more."""
        for link in self._links:
            link.stop(transfer)


class _Hosts:
    """The processors of the servers: one request after the other, in the order in which they come."""

    def __init__(self, env: Environment):
        self._env, self._free_s = env, 0.0

    def serve(self, seconds: float) -> float:
        """How long it takes from now until a request of so many seconds is done."""
        now_s = self._env.now
        self._free_s = max(self._free_s, now_s) + seconds
        return self._free_s - now_s


class _Clocks:
    """How many steps each worker has done; `wait` keeps one that is more than `allowed` ahead of the slowest."""

    def __init__(self, env: Environment, workers: int, allowed: float):
        self._env, self._allowed = env, allowed
        self.done = [0] * workers
        self.most_ahead = 0
        self.ticked_s = [-inf] * workers  # when each has done its last step
        self._slowest, self._number = 0, workers  # the least steps, and how many workers have done no more
        self._waiting: dict[float, Event] = {}

    def tick(self, worker: int) -> None:
        """Count a step; those who waited for it go on."""
        done = self.done[worker]
        self.done[worker], self.ticked_s[worker] = done + 1, self._env.now
        if done == self._slowest:
            self._number -= 1
            if not self._number:
                self._slowest += 1
                self._number = self.done.count(self._slowest)
                for needed in [needed for needed in self._waiting if needed <= self._slowest]:
                    self._waiting.pop(needed).succeed()

    def wait(self, worker: int) -> Event | None:
        """What a worker waits for before its next step; None if it may begin."""
        ahead = self.done[worker] - self._slowest
        if ahead <= self._allowed:
            if ahead > self.most_ahead:
                self.most_ahead = ahead
            return None
        return self._waiting.setdefault(self.done[worker] - self._allowed, self._env.event())


class _Lane:
    """Where a worker's time goes. What no other cause takes is exchange."""

    __slots__ = (
        "_begun_s", "_computed_s", "_encode_s", "_env", "_inside_s", "_seconds", "_stands", "_stands_s", "_step_s",
        "_steps",
    )  # fmt: skip

    def __init__(self, env: Environment, plan: ServerPlan):
        self._env, self._encode_s, self._inside_s = env, plan.encode_s, plan.team.inside_s
        self._steps, self._computed_s = 0, 0.0
        self._begun_s, self._step_s = inf, 0.0  # of the step in work
        self._stands, self._stands_s = "", 0.0
        self._seconds: dict[str, float] = defaultdict(float)

    def begin(self, at_s: float, step_s: float) -> None:
        """A step begins, which computes so long."""
        self._begun_s, self._step_s = at_s, step_s

    def end(self) -> None:
        """The servers have its gradient."""
        self._begun_s = inf
        self._computed_s += self._step_s
        self._steps += 1

    def lose(self) -> None:
        """A failure undoes it."""
        self.go_on()
        self._seconds["lost"] += self._worked_s()
        self._begun_s = inf

    def stand(self, cause: str) -> None:
        """The worker does nothing from now on."""
        self._stands, self._stands_s = cause, self._env.now

    def go_on(self, outages: Iterable[Part] = ()) -> None:
        """It does something again, if it did nothing; in `outages`, for the cause of each."""
        if not self._stands:
            return
        at_s, now_s = self._stands_s, self._env.now
        for cause, start_s, end_s in outages:
            start_s, end_s = max(start_s, at_s), min(end_s, now_s)
            if start_s < end_s:
                self._pass(self._stands, at_s, start_s)
                self._pass(cause, start_s, end_s)
                at_s = end_s
        self._pass(self._stands, at_s, now_s)
        self._stands = ""

    def _pass(self, cause: str, start_s: float, end_s: float) -> None:
        """It did nothing in this time."""
        self._seconds[cause] += end_s - start_s

    def close(self) -> dict[str, float]:
        """Seconds by cause until now. The step in work is cut off, as far as it is."""
        self.go_on()
        self._seconds["compute"] = self._computed_s
        self._seconds["encode"] = self._steps * self._encode_s
        self._seconds["unfinished"] = self._worked_s()
        rest_s = self._env.now - sum(self._seconds.values())
        return self._seconds | {"exchange": rest_s if rest_s > _ROUNDING * self._env.now else 0.0}

    def _worked_s(self) -> float:
        """Seconds of work on the step until now."""
        return min(max(self._env.now - self._begun_s, 0.0), self._step_s + self._inside_s + self._encode_s)


class _ChartLane(_Lane):
    """A lane that charts show: with spans."""

    def __init__(self, env: Environment, plan: ServerPlan, recorder: Recorder, name: str):
        super().__init__(env, plan)
        self._recorder, self._name, self._until_s = recorder, name, 0.0

    def end(self) -> None:
        self._note_work("compute", "exchange", "encode")
        super().end()

    def lose(self) -> None:
        self.go_on()
        self._note_work("lost", "lost", "lost")
        super().lose()

    def _pass(self, cause: str, start_s: float, end_s: float) -> None:
        self._note(cause, start_s, end_s)
        super()._pass(cause, start_s, end_s)

    def close(self) -> dict[str, float]:
        seconds = super().close()
        self._note_work("unfinished", "unfinished", "unfinished")
        self._note("exchange", self._env.now, self._env.now)
        return seconds

    def _note_work(self, compute: str, inside: str, encode: str) -> None:
        if worked_s := self._worked_s():
            end_s = min(self._begun_s + worked_s, self._env.now)  # rounding must not put it into what comes next
            inside_s = min(self._begun_s + self._step_s, end_s)
            encode_s = min(inside_s + self._inside_s, end_s)
            self._note(compute, self._begun_s, inside_s)
            self._note(inside, inside_s, encode_s)
            self._note(encode, encode_s, end_s)

    def _note(self, cause: str, start_s: float, end_s: float) -> None:
        """A span, and exchange before it."""
        self._recorder.span(self._name, "exchange", self._until_s, start_s)
        self._recorder.span(self._name, cause, start_s, end_s)
        self._until_s = end_s


def _step_times(team: Team, worker: int) -> Iterator[float]:
    """Seconds of a worker's steps. They are its own: equal in all modes, whoever else draws."""
    rng, mean_s = team.rng(_STEP_TIMES, worker), team.step_s * team.speed(worker)
    jitter = team.jitter_of(worker)
    if not jitter.varies:
        yield from repeat(mean_s * float(jitter.draw(rng, 1)[0]))
    while True:
        yield from (mean_s * jitter.draw(rng, _BLOCK)).data  # no list: those of 1,000 workers fill caches


class _Worker:
    """A worker, which trains until the run ends."""

    __slots__ = ("_ahead", "_away", "_env", "_number", "_process", "_pull", "_push", "_run", "_steps_s", "lane")

    def __init__(self, run: "_Run", number: int):
        self._run, self._env, self._number = run, run.env, number
        self._steps_s = _step_times(run.plan.team, number)
        self.lane = run.lane(number)
        self._push: Event | None = None
        self._pull: Event | None = None
        self._ahead: Process | None = None
        self._away = Away()
        self._process = run.env.process(self._live())

    def fail(self, outage: Outage) -> None:
        """Lose the step in work, and be away."""
        self._away.add(outage)
        self._process.interrupt()

    def _live(self) -> Generator[Event, Any, None]:
        while True:
            try:
                while part := self._away.part(self._env.now):
                    yield from self._stand(*part)
                yield from self._train()
            except Interrupt:
                self._drop()

    def _stand(self, cause: str, end_s: float) -> Generator[Event, Any, None]:
        """Be away until then, unless it fails again."""
        since_s = self._env.now
        self.lane.stand(cause)
        try:
            yield self._env.timeout(end_s - since_s)
        finally:
            self.lane.go_on()
            self._run.outages.append((self._number, (cause, since_s, self._env.now)))

    def _train(self) -> Generator[Event, Any, None]:
        run, lane, env, plan, number = self._run, self.lane, self._env, self._run.plan, self._number
        latency_s, overlap, hosts, prefetch = plan.team.latency_s, plan.server.overlap, run.hosts, plan.server.prefetch
        wait, by_others, timeout, steps_s = run.clocks.wait, run.by_others, env.timeout, self._steps_s
        push, pull, apply, more_s = run.links.push, run.links.pull, run.apply, plan.team.inside_s + plan.encode_s
        while True:
            if slower := wait(number):
                since_s = env.now
                lane.stand("wait")
                yield slower
                lane.go_on(run.outages_after(since_s))
                continue
            if self._ahead:
                read = yield self._ahead
            else:
                if hosts and (busy_s := hosts.serve(run.pull_s)):
                    yield timeout(busy_s)
                read, self._pull = by_others(number), pull()
                yield self._pull
            if prefetch:
                self._ahead = env.process(self._fetch_ahead())
            step_s = next(steps_s)
            lane.begin(env.now + latency_s, step_s)
            yield timeout(latency_s + step_s * (1 - overlap) + more_s + latency_s)
            self._push = push()
            if overlap:
                yield timeout(step_s * overlap)
            yield self._push
            if hosts and (busy_s := hosts.serve(run.push_s)):
                yield timeout(busy_s)
            lane.end()
            apply(number, read)

    def _fetch_ahead(self) -> Generator[Event, Any, int]:
        """Pull parameters beside a step; how many updates by others they have. Nobody waits if it is interrupted."""
        run = self._run
        try:
            if run.hosts and (busy_s := run.hosts.serve(run.pull_s)):
                yield self._env.timeout(busy_s)
            read, self._pull = run.by_others(self._number), run.links.pull()
            yield self._pull
        except Interrupt:
            return 0
        return read

    def _drop(self) -> None:
        """End what the worker has begun."""
        self.lane.lose()
        for transfer in (self._push, self._pull):
            if transfer:
                self._run.links.stop(transfer)
        if self._ahead and self._ahead.is_alive:
            self._ahead.interrupt()
        self._ahead = None


class _Run:
    """What workers share: links and hosts of the servers, the clocks, and how many gradients have been applied."""

    def __init__(self, plan: ServerPlan):
        self.plan, self.env, self.recorder = plan, Clock(), Recorder()
        self.links = _Links(self.env, plan)
        self.clocks = _Clocks(self.env, plan.team.workers, plan.server.most_ahead)
        self.push_s = plan.server.rpc + plan.decode_s + plan.server.apply
        self.pull_s = plan.server.rpc
        self.hosts = _Hosts(self.env) if self.push_s else None
        self.end = self.env.event()
        self._applied, self._wanted = 0, plan.pushes
        self._ages: dict[int, int] = defaultdict(int)
        self.outages: list[tuple[int, Part]] = []  # that have ended, with their workers
        self._workers = [_Worker(self, number) for number in range(plan.team.workers)]
        self.env.process(self._fail())

    def lane(self, worker: int) -> _Lane:
        """Where a worker's time goes; charts show the first ones."""
        if worker >= _MOST_LANES:
            return _Lane(self.env, self.plan)
        return _ChartLane(self.env, self.plan, self.recorder, f"worker {worker}")

    def outages_after(self, at_s: float) -> list[Part]:
        """Parts of outages that ended after this time, in order: of workers whose step lets others go on now."""
        late, now_s = takewhile(lambda one: one[1][2] > at_s, reversed(self.outages)), self.env.now
        return sorted((part for worker, part in late if self.clocks.ticked_s[worker] == now_s), key=itemgetter(1))

    def by_others(self, worker: int) -> int:
        """Gradients of other workers that are applied."""
        return self._applied - self.clocks.done[worker]

    def apply(self, worker: int, read: int) -> None:
        """Apply a gradient of parameters that had `read` gradients of other workers."""
        if self._applied == self._wanted:
            return  # in the instant of the last one
        self._ages[self._applied - self.clocks.done[worker] - read] += 1
        self._applied += 1
        self.clocks.tick(worker)
        if self._applied == self._wanted:
            self.end.succeed()

    def _fail(self) -> Generator[Event, Any, None]:
        for outage in self.plan.failures:
            yield self.env.timeout(max(outage.at_s - self.env.now, 0.0))
            self.recorder.happen(self.env.now, "failures", f"worker {outage.place}")
            self._workers[outage.place].fail(outage)

    def history(self) -> History:
        """What has happened until now."""
        self.recorder.breakdown_s = mean_breakdown(worker.lane.close() for worker in self._workers)
        self.recorder.count("pushes", self._applied)
        self.recorder.count("most_ahead", self.clocks.most_ahead)
        staleness = {0: self.plan.steps} if self.plan.synchronous else dict(sorted(self._ages.items()))
        samples = self._applied * self.plan.team.samples
        return self.recorder.history(self.env.now, self.plan.steps, samples, staleness)
