"""Messages between two ranks and around a ring of all, in a node and from node to node, with their results checked."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from ..case import Case, Facts, Team, cluster_teams, node_teams
from ..timing import Bench, Checked, hot
from .exact import Stretch, check_stretches, message

_ELEMENT = 2  # bytes of bf16
_SIZES = [1 << power for power in range(10, 31, 2)]
_QUICK = [1 << power for power in range(10, 27, 4)]

Message = tuple[torch.Tensor, int]
"""What is sent to, or received from, which rank of the world."""


def cases(facts: Facts) -> Iterator[Case]:
    """Pairs in a node and across two; rings where they are more than a pair."""
    first, *others = facts.nodes
    pairs = [Team(first[:2], 1, "node", False)] if len(first) > 1 else []
    pairs += [Team((first[0], others[0][0]), 2, "nodes", False)] if others else []
    for team in pairs:
        for name, start in _OF_PAIRS.items():
            yield from (_case(facts, name, start, team, size) for size in _SIZES)
    for team in [*node_teams(facts), *cluster_teams(facts)]:
        if team.whole and len(team.ranks) > 2:
            yield from (_case(facts, "ring", _ring, team, size) for size in _SIZES)


def _case(facts: Facts, name: str, start: Callable[[Bench, int], Checked], team: Team, size: int) -> Case:
    cost_class = ("send_recv" if team.nodes == 1 else "send_recv.network") if name == "one_way" else ""
    return Case(
        "send_recv",
        name,
        {**team.params, "bytes": size, "dtype": "bf16"},
        hot(start, size // _ELEMENT),
        team.ranks,
        cost_class,
        {"bytes": float(size)} if cost_class else {},
        facts.collectives,
        bytes=2 * size if name == "round_trip" else size,
        over="wire",
        footprint_bytes=2 * size,
        cache="hot",
        quick=bool(cost_class) and size in _QUICK,
    )


def _one_way(bench: Bench, elements: int) -> Checked:
    """The first rank sends, the second receives; in a row, so that small ones overlap as far as the library lets."""
    first, second = bench.team
    x = bench.empty(elements)
    whole = [Stretch(x, message(0))]
    if bench.rank == first:
        return check_stretches(bench, lambda: _exchange(bench, send=(x, second)), whole, [])
    return check_stretches(bench, lambda: _exchange(bench, receive=(x, first)), [], whole)


def _round_trip(bench: Bench, elements: int) -> Checked:
    """A round trip: two latencies, which nothing hides."""
    first, second = bench.team
    sent, received = bench.empty(elements), bench.empty(elements)
    me, peer = (0, second) if bench.rank == first else (1, first)

    def act() -> None:
        if me:
            _exchange(bench, receive=(received, peer))
        _exchange(bench, send=(sent, peer))
        if not me:
            _exchange(bench, receive=(received, peer))

    return check_stretches(bench, act, [Stretch(sent, message(me))], [Stretch(received, message(1 - me))])


def _ring(bench: Bench, elements: int) -> Checked:
    """Every rank sends to the next one, and receives from the one before; of two ranks, both ways at once."""
    me, ranks = bench.team.index(bench.rank), len(bench.team)
    before, after = (me - 1) % ranks, (me + 1) % ranks
    sent, received = bench.empty(elements), bench.empty(elements)
    act = lambda: _exchange(bench, (sent, bench.team[after]), (received, bench.team[before]))  # noqa: E731
    return check_stretches(bench, act, [Stretch(sent, message(me))], [Stretch(received, message(before))])


_OF_PAIRS = {"one_way": _one_way, "both_ways": _ring, "round_trip": _round_trip}


def _exchange(bench: Bench, send: Message | None = None, receive: Message | None = None) -> None:
    """One group call of NCCL; the current stream waits for it, or the host for Gloo."""
    ends = [(op, end) for op, end in ((dist.isend, send), (dist.irecv, receive)) if end is not None]
    for work in dist.batch_isend_irecv([dist.P2POp(op, tensor, peer, bench.group) for op, (tensor, peer) in ends]):
        work.wait()
