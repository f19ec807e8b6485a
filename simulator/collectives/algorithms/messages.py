"""What an algorithm writes: rounds of messages between the ranks of a group, and terms of its closed form.

A collective's buffer is cut into equal blocks. A message carries some of them; who receives it adds them to its own or
replaces its own. Ranks are positions in the group, island by island. `hops` says what a message takes on a cluster,
`clock` when each one ends.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ...base.arrays import Floats, Ints

HopKind = Literal["inside", "rail", "striped"]
"""How a message travels: inside an island; through the sender's own NICs; through all NICs of its island."""


@dataclass(frozen=True)
class Group:
    """The ranks of a collective: `islands` of `near` ranks each.

    `root` is the rank from which or to which data goes, where there is one. Pipelined algorithms cut what they send
    into `pieces`. `nvls`: the switch inside an island adds; `sharp`: those between islands do. `loads`: what each rank
    receives of an all-to-all-v, up to a factor; empty if all receive as much. `sites`: the site of each island; empty
    if links between sites add no latency.
    """

    islands: int
    near: int
    root: int = 0
    pieces: int = 1
    nvls: bool = True
    sharp: bool = True
    loads: tuple[float, ...] = ()
    sites: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.islands * self.near

    @property
    def everyone(self) -> Ints:
        """All ranks."""
        return np.arange(self.ranks)

    @property
    def ring_hops(self) -> tuple[HopKind, ...]:
        """The hops of a ring through one island after the other."""
        inside: tuple[HopKind, ...] = ("inside",) if self.near > 1 else ()
        return (*inside, "striped") if self.islands > 1 else inside

    def ring_waits(self, times: int) -> tuple[float, ...]:
        """How often a block passes each of them on its way, `times` round the ring less one hop."""
        crossings = times * (self.islands - 1)
        inside = (float(times * (self.ranks - 1) - crossings),) if self.near > 1 else ()
        return (*inside, float(crossings)) if self.islands > 1 else inside

    def site_of(self, ranks: Ints) -> Ints:
        """The site of each of these ranks."""
        return np.array(self.sites or (0,) * self.islands)[ranks // self.near]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Who sends to whom in a round: `src[i]` to `dst[i]`, where each rank sends and receives at most once.

    Messages between islands are cut over all NICs of an island if `striped`. Numbers from the group's size on are
    switches that add what they receive; any number of messages may reach or leave one. Of messages that go `ways` ways
    at the same time, these are those of one `way`: each has a part of its own of every port. Those `in_turn`, as of a
    root, are no round: each waits for the one before, so they share no links.
    """

    src: Ints
    dst: Ints
    striped: bool = False
    ways: int = 1
    way: int = 0
    in_turn: bool = False

    def hops(self, group: Group) -> tuple[HopKind, ...]:
        """The kinds of hops of these messages."""
        inside = self.src // group.near == self.dst // group.near
        near: tuple[HopKind, ...] = ("inside",) if inside.any() else ()
        return near if inside.all() else (*near, "striped" if self.striped else "rail")


Sends = Pairs | Literal["direct"] | None
"""Messages at the same time; None: those of an op's ring, or of its all-to-all."""


class Round(NamedTuple):
    """Messages that do not wait for each other, `times` in a row with other blocks.

    In repetition k message i carries `length` blocks, from block `first(k)[i]` on and each `stride` after the one
    before; or the blocks of its row of the `table`. A sender waits for all that it has received in its stream `reads`;
    what arrives belongs to the receiver's stream `writes`.
    """

    pairs: Pairs
    first: Callable[[int], Ints]
    times: int = 1
    length: int | Ints = 1
    stride: int = 1
    adds: bool = False
    reads: int = 0
    writes: int = 0
    table: Ints | None = None

    def blocks(self) -> Iterator[list[tuple[int, int, list[int]]]]:
        """(sender, receiver, blocks) of each message, for each repetition."""
        lengths = np.broadcast_to(np.asarray(self.length), self.pairs.src.shape).tolist()
        src, dst = self.pairs.src.tolist(), self.pairs.dst.tolist()
        if self.table is not None:
            yield list(zip(src, dst, self.table.tolist(), strict=True))
            return
        for k in range(self.times):
            ways = zip(src, dst, self.first(k).tolist(), lengths, strict=True)
            yield [(a, b, [first + i * self.stride for i in range(length)]) for a, b, first, length in ways]


@dataclass(frozen=True)
class Chunks:
    """A collective as messages: rounds, in the order in which each port takes them.

    The blocks are those of `buffers` buffers: one that all ranks have, or that of each rank. `weights`: the bytes of
    blocks over those of a mean one, where they are not equal; after the last of them they begin again. `ways`: those
    that messages go at the same time; rounds of one way wait for none of another.
    """

    blocks: int
    rounds: Callable[[], Iterator[Round]]
    buffers: int = 1
    streams: int = 1
    switches: int = 0
    weights: Floats | None = None
    ways: int = 1

    def message_bytes(self, one: Round, repetition: int, size: float) -> Floats:
        """The bytes of each message of a round, for a collective of so many bytes."""
        mean = size * self.buffers / self.blocks
        lengths = np.broadcast_to(np.asarray(one.length), one.pairs.src.shape)
        if self.weights is None:
            return lengths * mean
        step = np.arange(lengths.max(initial=0))
        blocks = one.first(repetition)[:, None] + step * one.stride
        weights = np.where(step < lengths[:, None], self.weights[blocks % len(self.weights)], 0.0)
        return np.asarray(weights.sum(axis=1) * mean)


class Term(NamedTuple):
    """A part of a closed form: `steps` one after the other, each of `size` bytes over the slowest of these hops.

    `beside`: at the same time as the term before it, where hops inside and between islands have ports of their own.
    `shares`: the part of the steps that each of these hops takes, where that is not all of them. `sends`: the messages
    that share links at the same time, where they are not those of the op's ring, or of its all-to-all. `waits`: how
    often it waits for the latency of each of these hops, if messages under way hold no port; else in each step.
    `site_steps`: how many steps wait for a link between sites, if not each one with messages between islands.
    """

    steps: float
    size: float
    hops: tuple[HopKind, ...]
    beside: bool = False
    shares: tuple[float, ...] = ()
    sends: Sends = None
    waits: tuple[float, ...] | None = None
    site_steps: float | None = None


@dataclass(frozen=True)
class Algorithm:
    """A way to exchange, with sizes as nccl-tests has them.

    `terms(group, size)` follow each other, unless they say otherwise. `refuses(group)` says why it cannot be done, or
    is empty; `notes(group)` says what is unusual. A `pipelined` one cuts what it sends into pieces. `in_switches` are
    those whose sums switches add: they have no links of their own, which several groups could share.
    """

    op: str
    name: str
    terms: Callable[[Group, float], list[Term]]
    chunks: Callable[[Group], Chunks]
    refuses: Callable[[Group], str] = lambda _group: ""
    notes: Callable[[Group], str] = lambda _group: ""
    pipelined: bool = False
    in_switches: bool = False


MOST_WAYS = 2
"""That messages go at the same time."""


def listed(pairs: Pairs, table: Ints) -> Round:
    """A round whose messages carry the blocks of the rows of a table."""
    return Round(pairs, fixed(table[:, 0]), length=table.shape[1], table=table)


def fixed(blocks: Ints) -> Callable[[int], Ints]:
    """First blocks that are known already."""
    return lambda _: blocks


def needs_power_of_two(group: Group) -> str:
    """Why ranks cannot do what takes a power of two; empty if they can."""
    return "" if group.ranks & (group.ranks - 1) == 0 else f"expected a power of two of ranks (given: {group.ranks})"


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, … below `most`."""
    return [1 << k for k in range((most - 1).bit_length())]
