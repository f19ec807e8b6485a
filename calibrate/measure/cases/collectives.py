"""Collectives of torch.distributed over NCCL or Gloo, of bf16, on every team, with their results checked.

They are timed in a row, as nccl-tests does. In a row an all-reduce in place adds sums to sums until they are infinite:
none is negative, so that none becomes NaN, and infinite ones take no longer to add (measured with Gloo on two ranks,
8 MiB: zeros, normal numbers and infinite ones alike; a GPU adds in constant time).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist

from ..case import Case, Facts, Team, all_teams
from ..timing import Bench, Checked, hot
from .exact import Stretch, check_stretches, message, summands, sums

_ELEMENT = 2  # bytes of bf16
_MANY = [1 << power for power in range(10, 31)]
_FEW = _MANY[::2]
_QUICK = [1 << power for power in range(10, 29, 3)]  # a curve goes through five sizes at least


@dataclass(frozen=True)
class Collective:
    """`start` makes one rank's part of a collective of so many elements, ready to run.

    `parts`: the elements must divide by the ranks. `buffers`: what a rank holds over the bytes, for n ranks.
    `sampled`: a sample of the class of its name.
    """

    start: Callable[[Bench, int], Checked]
    parts: bool
    buffers: Callable[[int], float]
    sampled: bool = True

    def cost_class(self, name: str, team: Team) -> str:
        """None for skewed ones, which no class knows, and for rails: a class over nodes counts all NICs of a node as
        one wire, of which one rank per node may use a part only.
        """
        if not self.sampled or team.layout == "rails":
            return ""
        return name if team.nodes == 1 else f"{name}.network"


def cases(facts: Facts) -> Iterator[Case]:
    """Every collective on every team; doublings of sizes where a class knows a whole team's, else fourfold sizes."""
    for team in all_teams(facts):
        for name, collective in COLLECTIVES.items():
            for size in _MANY if team.whole and collective.cost_class(name, team) else _FEW:
                elements = size // _ELEMENT
                if collective.parts:
                    elements -= elements % len(team.ranks)
                if elements:
                    yield _case(facts, name, team, elements, quick=size in _QUICK)


def _case(facts: Facts, name: str, team: Team, elements: int, quick: bool) -> Case:
    collective, gpus, size = COLLECTIVES[name], len(team.ranks), elements * _ELEMENT
    cost_class = collective.cost_class(name, team)
    features = {"bytes": float(size), "gpus": float(gpus)} | ({"nodes": float(team.nodes)} if team.nodes > 1 else {})
    return Case(
        "collectives",
        name,
        {**team.params, "bytes": size, "dtype": "bf16"},
        hot(collective.start, elements),
        team.ranks,
        cost_class,
        features if cost_class else {},
        facts.collectives,
        f"{gpus} GPUs on {team.nodes}",
        bytes=size,
        over="wire",
        footprint_bytes=size * collective.buffers(gpus),
        cache="hot",
        quick=quick and team.whole and bool(cost_class),
    )


def zipf(elements: int, ranks: int) -> list[int]:
    """So many elements over ranks, as 1, 1/2, 1/3, ...; the first one gets what does not divide."""
    whole = sum(1 / place for place in range(1, ranks + 1))
    others = [int(elements / whole / place) for place in range(2, ranks + 1)]
    return [elements - sum(others), *others]


def _place(bench: Bench) -> tuple[int, int]:
    """The how-many-th of how many ranks."""
    return bench.team.index(bench.rank), len(bench.team)


def _all_reduce(bench: Bench, elements: int) -> Checked:
    me, ranks = _place(bench)
    x = bench.empty(elements)
    inputs, results = [Stretch(x, summands(me, ranks))], [Stretch(x, sums(ranks))]
    return check_stretches(bench, lambda: dist.all_reduce(x, group=bench.group), inputs, results)


def _all_gather(bench: Bench, elements: int) -> Checked:
    me, ranks = _place(bench)
    mine, gathered = bench.empty(elements // ranks), bench.empty(elements)
    inputs = [Stretch(mine, message(me))]
    results = [Stretch(part, message(source)) for source, part in enumerate(gathered.chunk(ranks))]
    gather = _function("all_gather_single", "all_gather_into_tensor")
    return check_stretches(bench, lambda: gather(gathered, mine, group=bench.group), inputs, results)


def _reduce_scatter(bench: Bench, elements: int) -> Checked:
    me, ranks = _place(bench)
    x, mine = bench.empty(elements), bench.empty(elements // ranks)
    inputs, results = [Stretch(x, summands(me, ranks))], [Stretch(mine, sums(ranks), start=me * len(mine))]
    scatter = _function("reduce_scatter_single", "reduce_scatter_tensor")
    return check_stretches(bench, lambda: scatter(mine, x, group=bench.group), inputs, results)


def _function(new: str, old: str) -> Callable[..., object]:
    """torch 2.13 gave some collectives other names, and warns of the ones before."""
    return getattr(dist, new, None) or getattr(dist, old)


def _all_to_all(bench: Bench, elements: int, skewed: bool) -> Checked:
    """Skewed: every rank sends the most to the first one, as tokens go to the ranks of popular experts."""
    me, ranks = _place(bench)
    splits = zipf(elements, ranks) if skewed else [elements // ranks] * ranks  # what each rank sends to all,
    shares = [splits[me]] * ranks  # and so this one gets its own share from each
    sent, received = bench.empty(sum(splits)), bench.empty(sum(shares))
    inputs = [Stretch(part, message(me, to)) for to, part in enumerate(sent.split(splits))]
    results = [Stretch(part, message(source, me)) for source, part in enumerate(received.split(shares))]
    sizes = (shares, splits) if skewed else (None, None)
    act = lambda: dist.all_to_all_single(received, sent, *sizes, group=bench.group)  # noqa: E731
    return check_stretches(bench, act, inputs, results)


def _broadcast(bench: Bench, elements: int) -> Checked:
    x, root = bench.empty(elements), bench.team[0]
    whole = Stretch(x, message(0))
    act = lambda: dist.broadcast(x, src=root, group=bench.group)  # noqa: E731
    return check_stretches(bench, act, [whole] if bench.rank == root else [], [whole])


COLLECTIVES = {
    "all_reduce": Collective(_all_reduce, False, lambda _: 1.0),
    "all_gather": Collective(_all_gather, True, lambda ranks: 1 + 1 / ranks),
    "reduce_scatter": Collective(_reduce_scatter, True, lambda ranks: 1 + 1 / ranks),
    "all_to_all": Collective(partial(_all_to_all, skewed=False), True, lambda _: 2.0),
    "all_to_all_skewed": Collective(
        partial(_all_to_all, skewed=True),
        True,
        lambda ranks: 1 + ranks * zipf(1 << 20, ranks)[0] / (1 << 20),
        sampled=False,
    ),
    "broadcast": Collective(_broadcast, False, lambda _: 1.0),
}
