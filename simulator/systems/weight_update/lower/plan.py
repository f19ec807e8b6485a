"""The plan of an update by parameter servers: owners, buckets, P2P readers, and classes of equal ranks.

Source of the rules of P2P mode: MoonshotAI/checkpoint-engine, checkpoint_engine/ps.py at a291782.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from .buckets import Buckets, BucketSize, fill_buckets, set_roots, split_by_count


@dataclass(frozen=True)
class UpdatePlan:
    """One update of the first `listed` of `ranks` ranks, each of which owns a share of the weights.

    Every listed rank receives all weights. Owners copy their buckets to their device and broadcast them; in P2P mode
    (`reads`) some listed ranks read them from the owners' host memory. An inference rank keeps `kept_fraction` of every
    bucket (1 / tensor-parallel size). `classes` are ranks that are simulated as one, all of them listed or none.
    """

    ranks: int
    buckets: Buckets
    size: BucketSize
    kept_fraction: float
    classes: tuple[tuple[int, ...], ...]
    dtype: str
    new_group: bool
    listed: int
    reads: bool

    @property
    def bucket_bytes(self) -> int:
        """The most bytes of a bucket."""
        return self.size.bytes

    @property
    def n_buckets(self) -> int:
        """Number of buckets."""
        return len(self.buckets)

    @property
    def rounds(self) -> int:
        """The largest number of buckets of one root."""
        return self.buckets.rounds

    @property
    def receivers(self) -> tuple[int, ...]:
        """The ranks that are updated."""
        return tuple(range(self.listed))

    @property
    def total_bytes(self) -> int:
        """Bytes of all buckets: the model with every tensor aligned."""
        return int(self.buckets.bytes.sum())


def make_plan(
    sizes_bytes: np.ndarray,
    ranks: int,
    size: BucketSize,
    *,
    tensor_parallel: int = 1,
    classes: Sequence[Sequence[int]] | None = None,
    dtype: str = "bf16",
    new_group: bool = True,
) -> UpdatePlan:
    """Split tensors of `sizes_bytes` (aligned, checkpoint order) over `ranks` owners by count, then into buckets."""
    buckets = fill_buckets(sizes_bytes, split_by_count(len(sizes_bytes), ranks), size.bytes)
    folded = tuple(tuple(ranks_) for ranks_ in classes) if classes is not None else single_ranks(ranks)
    return UpdatePlan(ranks, buckets, size, 1 / tensor_parallel, folded, dtype, new_group, ranks, False)


def assign_readers(plan: UpdatePlan, nics: Sequence[str], listed: int, *, single: bool = False) -> UpdatePlan:
    """The plan in P2P mode: the first `listed` ranks read from all owners; `nics[rank]` is a rank's own NIC.

    With `single`, the first rank reads all (the source before commit a291782).
    """
    buckets = plan.buckets
    by_owner = sorted(range(len(buckets)), key=lambda g: (buckets.owner[g], buckets.round[g]))
    local = [(rank, nics[rank]) for rank in range(1 if single else listed)]
    dealt = assign_receivers([nics[buckets.owner[g]] for g in by_owner], local)
    roots = [(receiver, by_owner[i]) for receiver, i in dealt]
    return replace(plan, buckets=set_roots(buckets, roots), listed=listed, reads=True)


def assign_receivers(owner_nics: Sequence[str], local_nics: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Who reads which bucket, as (receiver, bucket) in order.

    `owner_nics[bucket]` is the NIC of the bucket's owner, buckets in the order of their owners; `local_nics` are the
    listed ranks, ascending, each with its own NIC. One rank per NIC receives, and no more than there are owner NICs.
    Buckets are taken from every owner NIC in turn and go to the receivers in passes; a pass ends early when its next
    bucket comes from an owner NIC that it has used.
    """
    by_nic: dict[str, list[int]] = {}
    for bucket, nic in enumerate(owner_nics):
        by_nic.setdefault(nic, []).append(bucket)
    first: dict[str, int] = {}
    for rank, nic in local_nics:
        first.setdefault(nic, rank)
    receivers = list(first.values())[: len(by_nic)]
    flat = [bucket for column in zip_longest(*by_nic.values()) for bucket in column if bucket is not None]
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


def single_ranks(ranks: int) -> tuple[tuple[int, ...], ...]:
    """A class for each rank."""
    return tuple((rank,) for rank in range(ranks))


def group_alike(keys: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Classes of the ranks whose keys are equal."""
    classes: dict[object, list[int]] = {}
    for rank, key in enumerate(keys):
        classes.setdefault(key, []).append(rank)
    return tuple(tuple(ranks) for ranks in classes.values())
