"""When ranks wait in vain: one of them says in one line who is lost, and where, within a bounded time.

A rank that waits longer than the timeout, or whose connection to a peer breaks, asks all others what they do. A thread
of each one answers. It sleeps until somebody asks, so it takes no time of a run. Who does not answer is dead or
stopped.
"""

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread, get_ident
from types import TracebackType
from typing import Any
from uuid import uuid4

import torch.distributed as dist

from .world import RunError, Store, World, is_spawned, leave

_ANSWER_S = 2.0
"""Seconds in which a rank that lives answers."""

_LAUNCHER_S = 1.0
"""Seconds in which `spawn` sees that a rank was killed, says so, and ends the others."""

_LOST = re.compile(
    r"timed out|timeout|connection (reset|closed|refused)|broken pipe|socket closed|message between ranks is lost", re.I
)
_NO_MEMORY = re.compile(r"can't allocate memory|Cannot allocate memory|out of memory", re.I)

Doing = list[tuple[str, float]]
"""What a rank does: names, and seconds since each began."""


def open_store(world: World) -> Store:
    """The messages of a run: its name is the same on all ranks, and no other run of these processes has it."""
    name = [uuid4().hex]
    dist.broadcast_object_list(name, src=0)
    return Store(name[0], world.timeout)


class Watch:
    """Inside it a rank answers peers that ask what it does, and a lost peer is a `RunError` of one line."""

    def __init__(self, store: Store, world: World):
        self._store, self._world = store, world
        self._doing: dict[int, tuple[str, float]] = {}  # by thread
        self._failed: list[str] = []
        self._asks = self._is_ended = False

    def __enter__(self) -> "Watch":
        self._answers = Thread(target=self._answer, daemon=True, name="answer")
        if self._world.size > 1:
            self._answers.start()
        self._before = signal.getsignal(signal.SIGTERM)
        if not is_spawned():
            signal.signal(signal.SIGTERM, self._end)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)
        if isinstance(error, RunError):
            return
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
            raise RunError(self._without_memory(error)) from error
        if isinstance(error, RuntimeError) and is_lost(error):
            raise RunError(self._lost()) from error
        if self._world.size > 1:
            self._end_answers()

    def _end_answers(self) -> None:
        """Wait for the thread: where a program does not `leave`, one still in the store's C++ aborts it at its end."""
        with suppress(RuntimeError):  # the rank that keeps the messages has ended: the thread has seen it, too
            self._store.post(f"ask/{self._world.rank}", None)
        self._answers.join(self._store.timeout.total_seconds())

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """Around what the calling thread does."""
        self._doing[get_ident()] = name, time.monotonic()
        try:
            yield
        except Exception:
            self._failed.append(name)
            raise
        finally:
            self._doing.pop(get_ident(), None)

    def act(self, act: Callable[[int], None], names: Sequence[str]) -> Callable[[int], None]:
        """What acts, with the name of each op said."""

        def run(op: int) -> None:
            with self.doing(names[op]):
                act(op)

        return run

    def _answer(self) -> None:
        """Wait until somebody asks, then answer; a store that has ended has nobody who asks."""
        with suppress(RuntimeError):
            while True:
                with suppress(dist.DistStoreError):  # nobody has asked for a long time
                    self._store.read(f"ask/{self._world.rank}")
                    break
            self._store.post(f"answer/{self._world.rank}", self._now())

    def _now(self) -> Doing:
        now = time.monotonic()
        return [(name, now - since) for name, since in list(self._doing.values())]

    def _without_memory(self, error: BaseException) -> str:
        asked = re.search(r"(?:tried to allocate|you tried to allocate) (\d+ bytes)", str(error))
        what = f" {asked[1]}" if asked else ""
        return f"rank {self._world.rank} cannot allocate{what} in {self._place}: this machine has too little memory"

    @property
    def _place(self) -> str:
        doing = [*self._failed, *(name for name, _ in self._now())]
        return repr(doing[0]) if doing else "the run"

    def _end(self, *_: object) -> None:
        """Torchrun ends all ranks as soon as one has failed, often before others see it: one says first who is lost."""
        self._is_ended = True
        if not self._asks:
            raise RunError(self._lost())

    def _lost(self) -> str | None:
        """Who is lost, or None if another rank says it."""
        if is_spawned():
            time.sleep(_LAUNCHER_S)
        self._asks = True
        line = self._say()
        if line is None and self._is_ended:
            leave(128 + signal.SIGTERM)
        return line

    def _say(self) -> str | None:
        me, place = self._world.rank, self._place
        try:
            if not self._store.is_first("asking"):
                self._wait_for([f"answer/{me}"])  # by a thread of this process: it must not end before
                return None
            answers = self._ask()
        except RuntimeError:
            return f"rank {me} waits in vain in {place}: the process that keeps the ranks' messages has ended"
        if silent := [rank for rank, answer in answers.items() if answer is None]:
            who = f"rank {silent[0]} does" if len(silent) == 1 else f"ranks {', '.join(map(str, silent))} do"
            return f"rank {me} waits in vain in {place}: {who} not answer (dead or stopped)"
        if self._is_ended:
            return None
        waited = f"{self._store.timeout.total_seconds():g} s"
        return f"rank {me} waited {waited} in {place}; all ranks answer: {'; '.join(_others(answers, place))}"

    def _ask(self) -> dict[int, Doing | None]:
        """What each other rank does; None of those that do not answer."""
        others = [rank for rank in range(self._world.size) if rank != self._world.rank]
        for rank in others:
            self._store.post(f"ask/{rank}", None)
        self._wait_for([f"answer/{rank}" for rank in others])
        return {rank: self._read(f"answer/{rank}") for rank in others}

    def _wait_for(self, names: Sequence[str]) -> None:
        """Wait until there are messages of these names, or as long as ranks that live take to answer."""
        deadline = time.monotonic() + _ANSWER_S
        while not all(map(self._store.has, names)) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _read(self, name: str) -> Any:
        return self._store.read(name) if self._store.has(name) else None


def is_lost(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed says that a peer is lost."""
    return isinstance(error, dist.DistError) or bool(_LOST.search(str(error)))


def _others(answers: dict[int, Doing | None], place: str) -> Iterator[str]:
    """What the ranks do that do something else, longest first; three of them."""
    found = [(seconds, rank, name) for rank, doing in answers.items() for name, seconds in doing or []]
    elsewhere = [one for one in found if repr(one[2]) != place] or found
    for seconds, rank, name in sorted(elsewhere, reverse=True)[:3]:
        yield f"rank {rank} is in {name!r} for {seconds:.0f} s"
    if not elsewhere:
        yield "none is in an op"
