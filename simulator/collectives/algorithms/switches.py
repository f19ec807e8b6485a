"""In-network reduction: switches add what ranks send, and send the sum to all of them.

Graham et al., COMHPC 2016 (SHARP): `S/B + a`, as each rank sends and receives its data once. NVLS is the same inside an
NVSwitch domain. Data goes in pieces: a switch sends the sum of one while it receives the next.
"""

from collections.abc import Iterator

import numpy as np

from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed


def _chunks(group: Group) -> Chunks:
    """One switch, which all ranks reach."""
    switch = np.full(group.ranks, group.ranks)
    up, down = Pairs(group.everyone, switch), Pairs(switch, group.everyone)

    def rounds() -> Iterator[Round]:
        for piece in range(group.pieces):
            block = fixed(np.full(group.ranks, piece))
            yield Round(up, block, adds=True)
            yield Round(down, block, writes=1)

    return Chunks(group.pieces, rounds, streams=2, switches=1)


def _nvls_terms(group: Group, size: float) -> list[Term]:
    return [Term(group.pieces + 1, size / group.pieces, ("inside",))]


def _no_nvls(group: Group) -> str:
    return "" if group.islands == 1 else f"NVLS adds inside one NVSwitch domain (given: ranks of {group.islands})"


NVLS = Algorithm("all_reduce", "nvls", _nvls_terms, _chunks, refuses=_no_nvls, pipelined=True)
