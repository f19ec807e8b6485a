"""What one process does of an algorithm's messages: it sends and receives blocks of its buffer, and adds them up.

A rank's sending port and its receiving port are a thread each, as in `algorithms.clock`: messages leave, and arrive,
one after the other, and a sender waits for what its stream has received. Switches are processes of their own, after
the ranks. `blocks` says what is in the buffers.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Condition, Thread
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ...simulator.collectives.algorithms.messages import Chunks, Round
from .blocks import Rows, lengths, put, take
from .world import TIMEOUT

Ways = tuple[dist.ProcessGroup, dist.ProcessGroup]
"""Process groups of all processes for messages to lower and to higher numbers.

Two processes of a group have one socket. Where both send through it, they were seen to send one after the other (1.6
times the time of a pairwise exchange on links of 100 Mb/s).
"""

Way = tuple[int, dist.ProcessGroup]
"""A peer, and the process group for messages to it or from it."""


def make_ways(timeout: timedelta = TIMEOUT) -> Ways:
    """Ways of all processes of the default group, all of which must call this."""
    return dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)


class Message(NamedTuple):
    """A message to or from a peer: these rows of the buffer."""

    peer: int
    rows: Rows


class Turn(NamedTuple):
    """What a port does in one round: one message, or at a switch any number.

    It waits until the other port has ended `after` turns.
    """

    messages: list[Message]
    after: int
    adds: bool


class Messenger:
    """The messages of one process, which is a rank or a switch; `members` are the processes of all, ranks first."""

    def __init__(self, chunks: Chunks, process: int, ways: Ways, members: Sequence[int] | None = None):
        self._parts = [_Part(chunks, process, ways, way, members) for way in range(chunks.ways)]

    def run(self, data: torch.Tensor) -> None:
        """Send and receive all messages, with those of all peers; `data` has a row for each block.

        Raises:
            RuntimeError: a peer is lost.
        """
        first, *others = self._parts
        with ThreadPoolExecutor(max(len(others), 1)) as pool:
            beside = [pool.submit(part.run, data) for part in others]
            first.run(data)
            for part in beside:
                part.result()


class _Part:
    """The messages of a process that go one way; those of other ways have other blocks."""

    def __init__(self, chunks: Chunks, process: int, ways: Ways, way: int, members: Sequence[int] | None):
        self._process, self._ways, self._chunks, self._way, self._members = process, ways, chunks, way, members
        self._sends: list[Turn] = []
        self._receives: list[Turn] = []
        arrived = [0] * chunks.streams  # turns of the receiving port up to the last one of each stream
        for one in (one for one in chunks.rounds() if one.pairs.way == way):
            for messages in one.blocks():
                sends = [Message(to, _rows(blocks, one)) for a, to, blocks in messages if a == process]
                receives = [Message(a, _rows(blocks, one)) for a, to, blocks in messages if to == process]
                if sends:
                    self._sends.append(Turn(sends, arrived[one.reads], one.adds))
                if receives:
                    self._receives.append(Turn(receives, len(self._sends), one.adds))
                    arrived[one.writes] = len(self._receives)

    def run(self, data: torch.Tensor) -> None:
        """As that of a `Messenger`."""
        sent, received, long = _Progress(), _Progress(), lengths(self._chunks, data.shape[1])
        Thread(target=self._receive, args=(data, long, sent, received), daemon=True).start()
        self._send(data, long, sent, received)
        received.wait_for(len(self._receives))

    def _send(self, data: torch.Tensor, long: list[int] | None, sent: "_Progress", received: "_Progress") -> None:
        with sent.counts():
            for turn in self._sends:
                received.wait_for(turn.after)
                _finish(self._send_one, [(take(data, rows, long), *self._to(peer)) for peer, rows in turn.messages])
                sent.note()

    def _receive(self, data: torch.Tensor, long: list[int] | None, sent: "_Progress", received: "_Progress") -> None:
        """Messages change the buffer when those of their round have left: these hold what was there before."""
        with suppress(Exception), received.counts():
            for turn in self._receives:
                before = [(take(data, rows, long), peer) for peer, rows in turn.messages]
                arrived = [(torch.empty_like(content), *self._from(peer)) for content, peer in before]
                _finish(self._receive_one, arrived)
                sent.wait_for(turn.after)
                for (content, *_), (_, rows) in zip(arrived, turn.messages, strict=True):
                    put(data, rows, long, content, adds=turn.adds)
                received.note()

    def _send_one(self, content: torch.Tensor, peer: int, group: dist.ProcessGroup) -> dist.Work | None:
        return dist.isend(content, peer, group, tag=self._way)

    def _receive_one(self, content: torch.Tensor, peer: int, group: dist.ProcessGroup) -> dist.Work | None:
        return dist.irecv(content, peer, group, tag=self._way)

    def _to(self, peer: int) -> Way:
        return self._number(peer), self._ways[self._process < peer]

    def _from(self, peer: int) -> Way:
        return self._number(peer), self._ways[peer < self._process]

    def _number(self, peer: int) -> int:
        """The process that a peer is."""
        return self._members[peer] if self._members is not None else peer


class _Progress:
    """How many turns a port has ended. The other port waits for them."""

    def __init__(self) -> None:
        self._done, self._changed = 0, Condition()
        self._lost: BaseException | None = None

    def note(self) -> None:
        """One more has ended."""
        with self._changed:
            self._done += 1
            self._changed.notify_all()

    @contextmanager
    def counts(self) -> Iterator[None]:
        """Around all turns: nobody waits for a port that has failed."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._lost = error
                self._changed.notify_all()
            raise

    def wait_for(self, turns: int) -> None:
        """Wait until so many have ended; a RuntimeError if they never will."""
        with self._changed:
            self._changed.wait_for(lambda: self._done >= turns or self._lost is not None, TIMEOUT.total_seconds())
            if self._done < turns:
                raise RuntimeError("a message between ranks is lost") from self._lost


def _rows(blocks: Sequence[int], one: Round) -> Rows:
    return list(blocks) if one.table is not None else slice(blocks[0], blocks[-1] + 1, one.stride)


def _finish(start: Callable[..., Any], messages: Sequence[tuple[torch.Tensor, int, dist.ProcessGroup]]) -> None:
    """Start all, then wait for all."""
    for work in [start(*message) for message in messages]:
        work.wait()
