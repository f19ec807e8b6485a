"""The rollout pool: engines with continuous batching and one queue. It has no clock: callers pass the time.

An engine gives each request in its slots one token at a time, at a pace that may depend on their number. The next
request of the queue goes to the engine with the fewest requests, if it has a free slot.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

At = tuple[int, int]  # a request by its number, and the engine that holds it


@dataclass(frozen=True)
class Pace:
    """Seconds per token of an engine with `running` requests: `token_s + request_s * running`.

    After a change of weights each token that a running request has takes `recompute_s`.
    """

    token_s: float
    request_s: float = 0.0
    recompute_s: float = 0.0

    def seconds(self, running: int) -> float:
        """Seconds in which every running request gets one token."""
        return self.token_s + self.request_s * running


@dataclass
class _Engine:
    """`made` is the number of tokens that a request running since the start has at `since_s`."""

    made: float = 0.0
    since_s: float = 0.0
    running: list[tuple[float, int]] = field(default_factory=list)  # a heap: what `made` is at the end, and the number
    begun: dict[int, float] = field(default_factory=dict)  # by number: what `made` was when it came
    changes: int = 0

    def settle(self, now_s: float, pace: Pace) -> None:
        """Count tokens until now."""
        if now_s > self.since_s:
            if self.running:
                self.made += (now_s - self.since_s) / pace.seconds(len(self.running))
            self.since_s = now_s

    def end_s(self, pace: Pace) -> float:
        """When the first of the running requests ends."""
        return self.since_s + max(self.running[0][0] - self.made, 0.0) * pace.seconds(len(self.running))

    def tokens(self) -> float:
        """The tokens that the running requests have."""
        return sum(self.made - begun for begun in self.begun.values())


class Pool:
    """`add` queues requests, `deal` starts them, `finish` ends them at `next_end_s`.

    `halt` stops decoding until `go_on`; running requests keep their slots. A `closed` pool starts nothing.
    """

    def __init__(self, engines: int, slots: int, pace: Pace):
        self.engines = [_Engine() for _ in range(engines)]
        self.slots, self.pace = slots, pace
        self.running, self.closed, self.halted = 0, False, False
        self._tokens: dict[int, int] = {}
        self._queue: list[int] = []
        self._spare = [(0, engine) for engine in range(engines)]  # (running, engine): out of date ones are skipped
        self._ends: list[tuple[float, int, int]] = []  # (end, engine, changes), likewise

    def add(self, first: int, tokens: Sequence[int]) -> None:
        """Requests numbered from `first`, each with the tokens it needs."""
        for number, needed in enumerate(tokens, start=first):
            self._tokens[number] = needed
            heappush(self._queue, number)

    def deal(self, now_s: float) -> list[At]:
        """Start what can start; which request is where."""
        dealt = []
        while self._queue and not (self.closed or self.halted) and (engine := self._sparest()) is not None:
            number = heappop(self._queue)
            self._start(number, engine, now_s)
            dealt.append((number, engine))
        self._changed({engine for _, engine in dealt})
        return dealt

    def next_end_s(self) -> float:
        """When the next request ends; infinity if none runs."""
        if self.halted:
            return inf
        while self._ends and self._ends[0][2] != self.engines[self._ends[0][1]].changes:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else inf

    def finish(self, now_s: float) -> list[At]:
        """End the requests that end now, which is `next_end_s`."""
        until, done = self.next_end_s(), list[At]()
        engines = set[int]()
        while self.next_end_s() <= until:
            engine = heappop(self._ends)[1]
            done += ((number, engine) for number in self._ended(self.engines[engine], now_s))
            engines.add(engine)
        self._changed(engines)
        return done

    def halt(self, now_s: float) -> None:
        """Stop decoding."""
        self._settle(now_s)
        self.halted = True

    def go_on(self, now_s: float, recompute: bool = False) -> None:
        """Decode again, with `recompute` after the tokens of running requests are recomputed."""
        self.halted = False
        for engine in self.engines:
            engine.since_s = now_s + (engine.tokens() * self.pace.recompute_s if recompute else 0.0)
        self._changed(range(len(self.engines)))

    def abort(self, now_s: float) -> float:
        """Put running requests back into the queue without their tokens; how many tokens are lost."""
        self._settle(now_s)
        lost = sum(engine.tokens() for engine in self.engines)
        for engine in self.engines:
            for _, number in engine.running:
                heappush(self._queue, number)
            self.running -= len(engine.running)
            engine.running.clear()
            engine.begun.clear()
        self._changed(range(len(self.engines)))
        return lost

    def _sparest(self) -> int | None:
        while self._spare and self._spare[0][0] != len(self.engines[self._spare[0][1]].running):
            heappop(self._spare)
        return self._spare[0][1] if self._spare else None

    def _start(self, number: int, engine: int, now_s: float) -> None:
        one = self.engines[engine]
        one.settle(now_s, self.pace)
        one.begun[number] = one.made
        heappush(one.running, (one.made + self._tokens[number], number))
        self.running += 1
        self._offer(engine)

    def _ended(self, engine: _Engine, now_s: float) -> Iterator[int]:
        """Take the requests that end now out of an engine; tokens are counted exactly, whatever the clock rounds."""
        engine.made, engine.since_s = engine.running[0][0], now_s
        while engine.running and engine.running[0][0] <= engine.made:
            number = heappop(engine.running)[1]
            del engine.begun[number]
            self.running -= 1
            yield number

    def _settle(self, now_s: float) -> None:
        if not self.halted:
            for engine in self.engines:
                engine.settle(now_s, self.pace)

    def _changed(self, engines: Iterable[int]) -> None:
        """Update what is known of these engines."""
        for engine in sorted(engines):
            one = self.engines[engine]
            one.changes += 1
            if one.running:
                heappush(self._ends, (one.end_s(self.pace), engine, one.changes))
            self._offer(engine)
        if len(self._spare) > 8 * len(self.engines) + 64:
            self._spare = [(len(one.running), i) for i, one in enumerate(self.engines) if len(one.running) < self.slots]
            heapify(self._spare)

    def _offer(self, engine: int) -> None:
        if (running := len(self.engines[engine].running)) < self.slots:
            heappush(self._spare, (running, engine))
