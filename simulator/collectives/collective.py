"""An exchange between ranks, its price, and the interface of what prices it.

Bytes are those of nccl-tests: everything that is gathered, scattered or reduced; in an all-to-all or a send, the bytes
that one rank sends.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from ..profile import Z90

Stages = Mapping[int, tuple[int, ...]]
"""For a rank the ranks that act alike at the same time, itself included; a rank that is not listed is alone."""


class Collective(NamedTuple):
    """An exchange: `op` is all_reduce, all_gather, …, or send_recv from the first rank of a group to the last.

    `beyond` applies to an all-to-all that sends one copy to each other island, where it is forwarded: the bytes that a
    rank sends to other islands. None if every copy is sent separately.
    """

    op: str
    group: tuple[int, ...]
    size: float
    beyond: float | None = None

    @property
    def is_forwarded(self) -> bool:
        """Whether it is an all-to-all that sends one copy to each other island."""
        return self.op == "all_to_all" and self.beyond is not None


@dataclass(frozen=True)
class Price:
    """The price of one rank's part of an exchange without contention.

    Of its `seconds`, `latency_s` are those of links between sites, which nothing shares and no software changes; all
    others are shared work. `spread` is a relative standard deviation, `provenance` indexes PROVENANCE, and `demand` is
    bytes/s by link. `least_s` is the time of its bytes at line rate, a lower bound with any software. `by_formula`: it
    is a closed form of an algorithm or a stated time, not a profile's curve.
    """

    seconds: float
    spread: float
    provenance: int
    demand: Mapping[int, float] = field(default_factory=dict)
    least_s: float = 0.0
    by_formula: bool = False
    latency_s: float = 0.0

    @property
    def work_s(self) -> float:
        """Seconds of shared work."""
        return self.seconds - self.latency_s

    def reach_s(self) -> float:
        """The upper end of its 90 % interval."""
        return self.seconds * math.exp(Z90 * self.spread)


def longest(prices: Iterable[Price]) -> Price:
    """The price of exchanges that go on at the same time: that of the longest one.

    Its interval reaches as far as that of any of them. Where another one reaches farther, the weaker basis counts.
    """
    known = list(prices)
    slowest, widest = max(known, key=lambda one: one.seconds), max(known, key=Price.reach_s)
    if widest.reach_s() <= slowest.reach_s():
        return slowest
    spread = widest.spread - math.log(slowest.seconds / widest.seconds) / Z90
    return replace(slowest, spread=spread, provenance=max(slowest.provenance, widest.provenance))


class Pricer(Protocol):
    """What exchanges take on given machines."""

    def price(self, collective: Collective, rank: int) -> Price:
        """The price of an exchange, seen from `rank`, one of its ranks.

        Raises:
            UserError: the profile has no model for it, or the cluster has no route.
        """
        ...
