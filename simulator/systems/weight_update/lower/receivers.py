"""P2P mode: which receiver reads which bucket from whose host memory. Pure arithmetic; NICs are names.

Source of the rules: MoonshotAI/checkpoint-engine, checkpoint_engine/ps.py at a291782. Before that commit one rank read
all buckets.
"""

from collections.abc import Sequence
from itertools import zip_longest

from .buckets import Buckets, sent_by


def assign_receivers(owner_nics: Sequence[str], local_nics: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Who reads what, as (receiver, bucket) in the order of dealing.

    `owner_nics[bucket]` is the NIC of the bucket's owner, buckets in the order of their owners; `local_nics` are the
    listed ranks, ascending, each with its own NIC. One rank per NIC receives, and no more than there are owner NICs.
    Buckets are dealt one from every owner NIC in turn, to the receivers pass after pass; a pass ends early when its
    next bucket comes from an owner NIC that it has used.
    """
    by_nic: dict[str, list[int]] = {}
    for bucket, nic in enumerate(owner_nics):
        by_nic.setdefault(nic, []).append(bucket)
    first: dict[str, int] = {}
    for rank, nic in local_nics:
        first.setdefault(nic, rank)
    receivers = list(first.values())[: len(by_nic)]
    flat = [bucket for column in zip_longest(*by_nic.values()) for bucket in column if bucket is not None]
    return _dealt(flat, owner_nics, receivers)


def _dealt(flat: Sequence[int], owner_nics: Sequence[str], receivers: Sequence[int]) -> list[tuple[int, int]]:
    dealt: list[tuple[int, int]] = []
    used: set[str] = set()
    turn = 0
    for bucket in flat:
        if turn == len(receivers) or owner_nics[bucket] in used:
            used, turn = set(), 0
        dealt.append((receivers[turn], bucket))
        used.add(owner_nics[bucket])
        turn += 1
    return dealt


def read_by(buckets: Buckets, nics: Sequence[str], listed: int, single: bool = False) -> Buckets:
    """The buckets with the receivers among the first `listed` ranks as their roots; `nics[rank]` is that rank's own.

    With `single`, the first rank reads everything, as before commit a291782.
    """
    by_owner = sorted(range(len(buckets)), key=lambda g: (buckets.owner[g], buckets.round[g]))
    local = [(rank, nics[rank]) for rank in range(1 if single else listed)]
    found = assign_receivers([nics[buckets.owner[g]] for g in by_owner], local)
    return sent_by(buckets, [(receiver, by_owner[i]) for receiver, i in found])
