"""Collectives of torch.distributed over NCCL or Gloo, of bf16, on every team, with their results checked.

They are timed in a row, as nccl-tests does. In a row an all-reduce in place adds sums to sums until they are infinite:
none is negative, so that none becomes NaN, and infinite ones take no longer to add (measured with Gloo on two ranks,
8 MiB: zeros, normal numbers and infinite ones alike; a GPU adds in constant time).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch.distributed as dist

from ..case import Case, Facts
from ..timing import Bench, Checked, hot
from .exact import Stretch, checked, message, summands, sums
from .teams import Team, all_teams, powers

_ELEMENT = 2  # bytes of bf16
_FEW, _MANY = powers(10, 30), powers(10, 30, step=1)
_QUICK = powers(10, 28, step=3)  # a curve goes through five sizes at least

Start = Callable[[Bench, int], Checked]
"""One rank's part of a collective of so many elements, ready to run."""


@dataclass(frozen=True)
class Collective:
    """`parts`: the elements must divide by the ranks. `buffers`: what a rank holds over the bytes, for n ranks.

    `sampled`: a sample of the class of its name.
    """

    start: Start
    parts: bool
    buffers: Callable[[int], float]
    sampled: bool = True


def cases(facts: Facts) -> Iterator[Case]:
    """Every collective on every team; doublings of sizes where a class knows a whole team's, else fourfold sizes."""
    for team in all_teams(facts):
        for name, collective in COLLECTIVES.items():
            for size in _MANY if team.whole and _cost_class(name, collective, team) else _FEW:
                elements = _elements(collective, len(team.ranks), size)
                if elements:
                    yield _case(facts, name, team, elements, quick=size in _QUICK)


def _case(facts: Facts, name: str, team: Team, elements: int, quick: bool) -> Case:
    collective, gpus, size = COLLECTIVES[name], len(team.ranks), elements * _ELEMENT
    cost_class = _cost_class(name, collective, team)
    features = {"bytes": float(size), "gpus": float(gpus)} | ({"nodes": float(team.nodes)} if team.nodes > 1 else {})
    return Case(
        "collectives",
        name,
        {**team.about, "bytes": size, "dtype": "bf16"},
        hot(lambda bench: collective.start(bench, elements)),
        team.ranks,
        cost_class,
        features if cost_class else {},
        facts.collectives,
        team.together,
        bytes=size,
        over="wire",
        footprint_bytes=size * collective.buffers(gpus),
        cache="hot",
        quick=quick and team.whole and bool(cost_class),
    )


def _cost_class(name: str, collective: Collective, team: Team) -> str:
    """None for skewed ones, which no class knows, and for rails: a class over nodes counts all NICs of a node as one
    wire, of which one rank per node may use a part only.
    """
    if not collective.sampled or team.layout == "rails":
        return ""
    return name if team.nodes == 1 else f"{name}.network"


def _elements(collective: Collective, gpus: int, size: int) -> int:
    """That fit in so many bytes; 0 if not every rank gets one."""
    elements = size // _ELEMENT
    return elements // gpus * gpus if collective.parts else elements


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
    given, due = Stretch(x, summands(me, ranks)), Stretch(x, sums(ranks))
    return checked(bench, lambda: dist.all_reduce(x, group=bench.group), [given], [due])


def _all_gather(bench: Bench, elements: int) -> Checked:
    me, ranks = _place(bench)
    mine, gathered = bench.empty(elements // ranks), bench.empty(elements)
    due = [Stretch(part, message(source)) for source, part in enumerate(gathered.chunk(ranks))]
    gather = _called("all_gather_single", "all_gather_into_tensor")
    return checked(bench, lambda: gather(gathered, mine, group=bench.group), [Stretch(mine, message(me))], due)


def _reduce_scatter(bench: Bench, elements: int) -> Checked:
    me, ranks = _place(bench)
    x, mine = bench.empty(elements), bench.empty(elements // ranks)
    due = Stretch(mine, sums(ranks), start=me * len(mine))
    given, scatter = Stretch(x, summands(me, ranks)), _called("reduce_scatter_single", "reduce_scatter_tensor")
    return checked(bench, lambda: scatter(mine, x, group=bench.group), [given], [due])


def _all_to_all(bench: Bench, elements: int) -> Checked:
    ranks = len(bench.team)
    return _to_all(bench, [elements // ranks] * ranks, even=True)


def _all_to_all_skewed(bench: Bench, elements: int) -> Checked:
    """Every rank sends the most to the first one, as tokens go to the ranks of popular experts."""
    return _to_all(bench, zipf(elements, len(bench.team)), even=False)


def _to_all(bench: Bench, splits: list[int], even: bool) -> Checked:
    """`splits` are what each rank sends to all, and so this one gets its own share from each."""
    me, ranks = _place(bench)
    shares = [splits[me]] * ranks
    sent, got = bench.empty(sum(splits)), bench.empty(sum(shares))
    given = [Stretch(part, message(me, to)) for to, part in enumerate(sent.split(splits))]
    due = [Stretch(part, message(source, me)) for source, part in enumerate(got.split(shares))]
    sizes = (None, None) if even else (shares, splits)
    return checked(bench, lambda: dist.all_to_all_single(got, sent, *sizes, group=bench.group), given, due)


def _broadcast(bench: Bench, elements: int) -> Checked:
    x, root = bench.empty(elements), bench.team[0]
    whole = Stretch(x, message(0))
    act = lambda: dist.broadcast(x, src=root, group=bench.group)  # noqa: E731
    return checked(bench, act, [whole] if bench.rank == root else [], [whole])


def _called(new: str, old: str) -> Callable[..., object]:
    """torch 2.13 gave some collectives other names, and warns of the ones before."""
    return getattr(dist, new, None) or getattr(dist, old)


def _once(_ranks: int) -> float:
    return 1.0


def _with_a_part(ranks: int) -> float:
    return 1 + 1 / ranks


COLLECTIVES = {
    "all_reduce": Collective(_all_reduce, False, _once),
    "all_gather": Collective(_all_gather, True, _with_a_part),
    "reduce_scatter": Collective(_reduce_scatter, True, _with_a_part),
    "all_to_all": Collective(_all_to_all, True, lambda _: 2.0),
    "all_to_all_skewed": Collective(
        _all_to_all_skewed, True, lambda n: 1 + n * zipf(1 << 20, n)[0] / (1 << 20), sampled=False
    ),
    "broadcast": Collective(_broadcast, False, _once),
}
