"""The rollout pool: engines with continuous batching and one queue. It has no clock: callers pass the time.

An engine gives each request in its slots one token at a time, at a pace that may depend on their number and on the
tokens in its KV cache. The next request of the queue goes to the engine with the fewest requests of those that have a
free slot and room in their cache. Where running requests fill the cache, the youngest one is sent back: its engine
starts no other until it has room for it, and prefills its tokens with its prompt then, as vLLM does.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf

from .pace import Pace, Roofline

At = tuple[int, int]  # a request by its number, and the engine that holds it


@dataclass
class _Engine:
    """`made` is the number of tokens that a request running since the start has at `since_s`.

    That lies ahead while prompts are prefilled; `owed_s` is what a halt left of it. `cached` counts the tokens in the
    KV cache, prompts included; `prompts` counts the requests of each prompt that have started here. `sent_back`
    is a heap of the requests that wait for room.
    """

    made: float = 0.0
    since_s: float = 0.0
    owed_s: float = 0.0
    running: list[tuple[float, int]] = field(default_factory=list)  # a heap: what `made` is at the end, and the number
    begun: dict[int, float] = field(default_factory=dict)  # by number: what `made` was when it came
    changes: int = 0
    cached: float = 0.0
    prompts: Counter[int] = field(default_factory=Counter)
    sent_back: list[int] = field(default_factory=list)

    def settle(self, now_s: float, pace: Pace | Roofline) -> None:
        """Count tokens until now."""
        if now_s > self.since_s:
            if self.running:
                self.make(pace.tokens(len(self.running), self.cached, now_s - self.since_s))
            self.since_s = now_s

    def make(self, tokens: float) -> None:
        """Count so many tokens of each running request."""
        self.made += tokens
        self.cached += tokens * len(self.running)

    def left(self, pace: Pace | Roofline) -> tuple[float, bool]:
        """(tokens until the next event, whether that is a full cache and not the end of a request)."""
        end, many = max(self.running[0][0] - self.made, 0.0), len(self.running)
        full = (pace.capacity - self.cached) / many if many > 1 else inf
        return (max(full, 0.0), True) if full < end else (end, False)

    def next_s(self, pace: Pace | Roofline) -> float:
        """When a running request ends, or the cache is full."""
        return self.since_s + pace.span_s(len(self.running), self.cached, self.left(pace)[0])

    def tokens(self) -> float:
        """The tokens that the running requests have."""
        return sum(self.made - begun for begun in self.begun.values())


class Pool:
    """`add` queues requests, `deal` starts them, `finish` ends them at `next_end_s`.

    `halt` stops decoding until `go_on`; running requests keep their slots. A `closed` pool starts nothing.
    `preempted` counts how often requests were sent back as a cache was full; `resumed` are those of them that have
    kept their tokens since. Answers to one prompt have `samples` numbers in a row.
    """

    def __init__(self, engines: int, slots: int, pace: Pace | Roofline, samples: int = 1):
        self.engines = [_Engine() for _ in range(engines)]
        self.slots, self.pace, self.samples = slots, pace, samples
        self.running, self.closed, self.halted, self.preempted = 0, False, False, 0
        self.resumed = set[int]()
        self._tokens: dict[int, int] = {}
        self._prompts: dict[int, int] = {}  # tokens of each request's prompt
        self._kept: dict[int, float] = {}  # tokens of requests that were preempted
        self._queue: list[int] = []
        self._retry = set[int]()  # engines that may have room for what they have sent back
        self._spare = [(0, engine) for engine in range(engines)]  # (running, engine): out of date ones are skipped
        self._refused: list[tuple[int, int]] = []  # those that have no room for the next request of the queue
        self._ends: list[tuple[float, int, int]] = []  # (end, engine, changes), likewise

    def add(self, first: int, tokens: Sequence[int], prompts: Sequence[int] = ()) -> None:
        """Requests numbered from `first`, each with the tokens it needs, and with those of its prompt."""
        for number, needed in enumerate(tokens, start=first):
            self._tokens[number] = needed
            heappush(self._queue, number)
        self._prompts.update(enumerate(prompts, start=first))

    def deal(self, now_s: float) -> list[At]:
        """Start what can start; which request is where."""
        dealt, new = list[At](), dict[int, list[float]]()
        if self.closed or self.halted:
            return dealt
        for number, engine in chain(self._take_back(now_s), self._take(now_s)):
            self._start(number, engine, now_s, new.setdefault(engine, []))
            dealt.append((number, engine))
        for engine, prompts in new.items():
            one = self.engines[engine]
            one.since_s += self.pace.prefill_s(len(one.running), prompts)
        self._changed({engine for _, engine in dealt})
        return dealt

    def next_end_s(self) -> float:
        """When the next request ends, or a cache is full; infinity if none runs."""
        if self.halted:
            return inf
        while self._ends and self._ends[0][2] != self.engines[self._ends[0][1]].changes:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else inf

    def finish(self, now_s: float) -> list[At]:
        """End the requests that end now, which is `next_end_s`, or preempt one where a cache is full."""
        until, done = self.next_end_s(), list[At]()
        engines = set[int]()
        while self.next_end_s() <= until:
            engine = heappop(self._ends)[1]
            if self.engines[engine].left(self.pace)[1]:
                self._preempt(engine, now_s)
            else:
                done += ((number, engine) for number in self._ended(self.engines[engine], now_s))
            engines.add(engine)
        self._changed(engines)
        return done

    def halt(self, now_s: float) -> None:
        """Stop decoding, and prefilling."""
        self._settle(now_s)
        self.halted = True
        for engine in self.engines:
            engine.owed_s = max(engine.since_s - now_s, 0.0)

    def go_on(self, now_s: float, recompute: bool = False) -> None:
        """Decode again: after what is left to prefill, or with `recompute` after all tokens of running requests are."""
        self.halted = False
        for engine in self.engines:
            engine.prompts.clear()
            engine.since_s = now_s
            if not (recompute and self.pace.redoes):
                engine.since_s += engine.owed_s
            else:
                cached = [
                    self._to_prefill(number, engine, engine.made - begun) for number, begun in engine.begun.items()
                ]
                engine.since_s += self.pace.redo_s(engine.tokens(), cached)
        self._changed(range(len(self.engines)))

    def abort(self, now_s: float) -> float:
        """Put running requests back into the queue without their tokens; how many tokens are lost."""
        self._settle(now_s)
        lost = sum(engine.tokens() for engine in self.engines) + sum(self._kept.values())
        for engine in self.engines:
            for number in (*(number for _, number in engine.running), *engine.sent_back):
                heappush(self._queue, number)
            engine.sent_back.clear()
            self.running -= len(engine.running)
            engine.running.clear()
            engine.begun.clear()
            engine.cached = engine.owed_s = 0.0
        self._kept.clear()
        self.resumed.clear()
        self._changed(range(len(self.engines)))
        return lost

    def _take_back(self, now_s: float) -> Iterator[At]:
        """What engines have sent back, as far as they have room now; whoever iterates starts it."""
        for engine in sorted(self._retry):
            waiting, one = self.engines[engine].sent_back, self.engines[engine]
            while waiting and len(one.running) < self.slots and self._has_room(waiting[0], engine, now_s):
                yield heappop(waiting), engine
        self._retry.clear()

    def _take(self, now_s: float) -> Iterator[At]:
        """The next ones of the queue, as far as engines have slots and room; whoever iterates starts them."""
        while self._queue and self._spare:
            running, engine = self._spare[0]
            one = self.engines[engine]
            if running != len(one.running) or one.sent_back:
                heappop(self._spare)  # it is offered again when it changes
            elif self._has_room(self._queue[0], engine, now_s):
                yield heappop(self._queue), engine
                self._offer_refused()
            else:
                self._refused.append(heappop(self._spare))

    def _offer_refused(self) -> None:
        """Another request is the next one: engines without room for the last one may have room for it."""
        for offer in self._refused:
            heappush(self._spare, offer)
        self._refused.clear()

    def _has_room(self, number: int, engine: int, now_s: float) -> bool:
        """Whether a request may start on an engine; one that is alone always may."""
        one = self.engines[engine]
        one.settle(now_s, self.pace)
        return not one.running or one.cached + self._prompt(number) + self._kept.get(number, 0.0) <= self.pace.admits

    def _prompt(self, number: int) -> int:
        return self._prompts.get(number, 0)

    def _start(self, number: int, engine: int, now_s: float, new: list[float]) -> None:
        """Start a request; the tokens that it has to prefill join `new`."""
        one, kept = self.engines[engine], self._kept.pop(number, 0.0)
        one.settle(now_s, self.pace)
        prompt, missing = self._prompt(number), self._to_prefill(number, one, kept)
        if prompt or kept:
            new.append(missing)
        one.cached += prompt + kept
        one.begun[number] = one.made - kept if kept else one.made
        heappush(one.running, (one.begun[number] + self._tokens[number], number))
        self.running += 1
        self._offer(engine)

    def _to_prefill(self, number: int, engine: _Engine, made: float) -> float:
        """Tokens that a request which has `made` some has to prefill.

        Each replica of the engine prefills a prompt by itself, and knows it from then on.
        """
        prompt = number // self.samples
        engine.prompts[prompt] += 1
        known = engine.prompts[prompt] > self.pace.replicas
        return made + (0 if known and self.pace.shares_prompts else self._prompt(number))

    def _preempt(self, at: int, now_s: float) -> None:
        """Send the youngest request back: the cache is full now."""
        engine = self.engines[at]
        engine.make(engine.left(self.pace)[0])
        engine.since_s = now_s
        number = next(reversed(engine.begun))
        self._kept[number] = engine.made - engine.begun.pop(number)
        engine.cached -= self._prompt(number) + self._kept[number]
        engine.running = [one for one in engine.running if one[1] != number]
        heapify(engine.running)
        self.running -= 1
        self.preempted += 1
        if self._kept[number]:
            self.resumed.add(number)
        heappush(engine.sent_back, number)

    def _ended(self, engine: _Engine, now_s: float) -> Iterator[int]:
        """Take the requests that end now out of an engine; tokens are counted exactly, whatever the clock rounds."""
        engine.cached += (engine.running[0][0] - engine.made) * len(engine.running)
        engine.made, engine.since_s = engine.running[0][0], now_s
        while engine.running and engine.running[0][0] <= engine.made:
            number = heappop(engine.running)[1]
            del engine.begun[number]
            engine.cached -= self._prompt(number) + self._tokens[number]
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
            if one.sent_back:
                self._retry.add(engine)
            if one.running:
                heappush(self._ends, (one.next_s(self.pace), engine, one.changes))
            self._offer(engine)
        if len(self._spare) > 8 * len(self.engines) + 64:
            self._spare = [(len(one.running), i) for i, one in enumerate(self.engines) if len(one.running) < self.slots]
            heapify(self._spare)

    def _offer(self, engine: int) -> None:
        if (running := len(self.engines[engine].running)) < self.slots:
            heappush(self._spare, (running, engine))
