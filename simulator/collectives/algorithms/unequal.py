"""All-to-all-v: ranks send as an all-to-all does, but some receive more than others, as a rank with hot experts does.

Every rank sends the same bytes, of which a rank with w times the mean load receives w/N. The messages are those of the
all-to-all, in the same order. The most loaded rank receives in every round, and no message is longer than one to it. So
with w of that rank: direct and pairwise `(N-1)(a + w*S/N/B)`, `(N-1)/N*w*S/B` of it for the bytes. A hierarchical one
first waits for the place of all islands with the most load, then for the most loaded rank; if that rank is at another
place, this is too long.
"""

from dataclasses import replace

import numpy as np

from ...base.arrays import Floats
from .direct import DIRECT_ALL_TO_ALL, HIERARCHICAL, PAIRWISE
from .messages import Algorithm, Chunks, Group, Term


def loads(group: Group) -> Floats:
    """What each rank receives, over the mean."""
    given = np.array(group.loads or (1.0,) * group.ranks)
    return given / given.mean()


def _unequal(equal: Algorithm) -> Algorithm:
    """An all-to-all whose receivers have loads of their own."""

    def terms(group: Group, size: float) -> list[Term]:
        most = loads(group).max()
        by_place = loads(group).reshape(group.islands, group.near).mean(axis=0).max()
        inside = by_place if equal is HIERARCHICAL else most
        factors = {"inside": inside, "rail": most}
        return [term._replace(size=term.size * float(factors[term.hops[0]])) for term in equal.terms(group, size)]

    def chunks(group: Group) -> Chunks:
        return replace(equal.chunks(group), weights=loads(group))

    return Algorithm("all_to_all_v", equal.name, terms, chunks, equal.refuses)


UNEQUAL = tuple(map(_unequal, (DIRECT_ALL_TO_ALL, PAIRWISE, HIERARCHICAL)))
