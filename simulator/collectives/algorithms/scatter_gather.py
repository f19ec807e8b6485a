"""A broadcast of large data: scatter it, then gather it everywhere round a ring (Thakur et al., IJHPCA 2005: ~2S/B)."""

from collections.abc import Iterator

from .binomial import part_terms, scatter_rounds
from .messages import Algorithm, Chunks, Group, Round, Term
from .ring import ring_round


def _chunks(group: Group) -> Chunks:
    """Block i belongs to the rank i places after the root."""

    def rounds() -> Iterator[Round]:
        yield from scatter_rounds(group)
        yield ring_round(group, -group.root, adds=False)

    return Chunks(group.ranks, rounds)


def _terms(group: Group, size: float) -> list[Term]:
    return [*part_terms(group, size), Term(group.ranks - 1, size / group.ranks, group.ring_hops)]


SCATTER_ALL_GATHER = Algorithm("broadcast", "scatter_all_gather", _terms, _chunks)
