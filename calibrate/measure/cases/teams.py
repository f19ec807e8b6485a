"""Which ranks do something together: so many of one node, all of so many nodes, or one of each of so many nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..case import Facts


@dataclass(frozen=True)
class Team:
    """`layout` is `node` (first ranks of the first node), `nodes` (all ranks of the first nodes) or `rails` (the first
    rank of each). `whole`: there are no more such ranks.
    """

    ranks: tuple[int, ...]
    nodes: int
    layout: str
    whole: bool

    @property
    def about(self) -> dict[str, int | str]:
        """As parameters of a case."""
        return {"gpus": len(self.ranks), "nodes": self.nodes, "layout": self.layout}

    @property
    def together(self) -> str:
        """The same for all sizes on as many ranks, laid out alike."""
        return f"{len(self.ranks)} GPUs on {self.nodes}"


def in_node(facts: Facts) -> Iterator[Team]:
    """2, 4, 8, ... and all ranks of the first node."""
    node = facts.nodes[0]
    for count in doublings(len(node)):
        yield Team(node[:count], 1, "node", count == len(node))


def over_nodes(facts: Facts) -> Iterator[Team]:
    """All ranks of the first 2, 4, 8, ... and of all nodes."""
    for count in doublings(len(facts.nodes)):
        ranks = tuple(rank for node in facts.nodes[:count] for rank in node)
        yield Team(ranks, count, "nodes", count == len(facts.nodes))


def rails(facts: Facts) -> Iterator[Team]:
    """One rank of each of as many nodes, where nodes have several."""
    for team in over_nodes(facts):
        if len(team.ranks) > team.nodes:
            ranks = tuple(node[0] for node in facts.nodes[: team.nodes])
            yield Team(ranks, team.nodes, "rails", team.whole)


def all_teams(facts: Facts) -> Iterator[Team]:
    """Every team of two and more ranks, each once."""
    yield from in_node(facts)
    yield from over_nodes(facts)
    yield from rails(facts)


def doublings(count: int) -> Sequence[int]:
    """2, 4, 8, ... below the count, and the count itself: nothing for one."""
    below = [1 << power for power in range(1, count.bit_length()) if 1 << power < count]
    return [*below, count] if count > 1 else []


def powers(first: int, last: int, step: int = 2) -> list[int]:
    """2 to the powers from `first` to `last`, both included: every fourfold size, or every doubling with step 1."""
    return [1 << power for power in range(first, last + 1, step)]
