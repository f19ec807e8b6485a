"""The share of a NIC's rate that oversubscribed leaf switches leave, when all ranks of a stage send at the same time.

Ranks of a stage act alike at the same time, so all of them that send beyond a leaf share its uplinks. The share of a
rank's bytes that leaves the leaf depends on the exchange: all bytes of a message to another pod; in a ring only those
of the last node under a leaf; in an all-to-all those for peers elsewhere. Traffic between rails first moves to another
GPU inside the node (NCCL's PXN), so a NIC's peers are on its own rail. Traffic of several stages at once is not added.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..hardware import Cluster


class Uplinks:
    """The uplinks of a cluster's leaf switches; `stage` maps a rank to the ranks that act alike, itself included."""

    def __init__(self, cluster: Cluster, stage: Mapping[int, tuple[int, ...]]):
        self.cluster, self.stage = cluster, stage

    def share_left(self, kind: str, group: Sequence[int], nearby: int) -> float:
        """The share of the NICs' rate that a group keeps; `nearby` is its number of ranks on each island."""
        if self.cluster.fabric.oversubscription == 1:
            return 1.0
        beyond = self._message(group) if kind == "send_recv" else self._collective(kind, group, nearby)
        sends: dict[str, float] = {}
        for rank, share in beyond.items():
            sends |= {nic: max(share, sends.get(nic, 0.0)) for nic in self.cluster.nics_of_gpu(rank)}
        load: dict[str, float] = defaultdict(float)
        for nic, share in sends.items():
            load[self.cluster.leaf_of(nic)] += share * float(self.cluster.capacity[self.cluster.nic_tx(nic)])
        return min([1.0, *(self.cluster.uplink_bytes_per_s(leaf) / asked for leaf, asked in load.items() if asked)])

    def _message(self, pair: Sequence[int]) -> dict[int, float]:
        """For each rank of the sender's stage, the share of its message that leaves its leaf: 1 or 0."""
        senders, receivers = self._alike(pair[0]), self._alike(pair[-1])
        pairs = zip(senders, receivers, strict=False)  # a rank of a hand-made Program may have no stage
        return {a: float(self._apart(a, b)) for a, b in pairs}

    def _collective(self, kind: str, group: Sequence[int], nearby: int) -> dict[int, float]:
        """For every rank of the stage the mean share of the group's members under its leaf."""
        own = self._in_all_to_all(group) if kind == "all_to_all" else self._in_ring(group, nearby)
        under: dict[str, list[float]] = {}
        for rank, share in own.items():
            under.setdefault(self._leaf(rank), []).append(share)
        means = {leaf: sum(shares) / len(shares) for leaf, shares in under.items()}
        return {rank: means.get(self._leaf(rank), 0.0) for rank in self._alike(group[0])}

    def _in_ring(self, group: Sequence[int], nearby: int) -> dict[int, float]:
        """For each rank the share of ring traffic that leaves its leaf; a NIC sends to the next node's same NIC."""
        return {a: float(self._apart(a, group[(i + nearby) % len(group)])) for i, a in enumerate(group)}

    def _in_all_to_all(self, group: Sequence[int]) -> dict[int, float]:
        """For each rank the share of all-to-all traffic that leaves its leaf; it sends equally to all other islands."""
        nodes = {rank: self.cluster.island(rank) for rank in group}
        found = {}
        for a in group:
            far = [b for b in group if nodes[b] != nodes[a]]
            found[a] = sum(self._apart(a, b) for b in far) / max(len(far), 1)
        return found

    def _apart(self, a: int, b: int) -> bool:
        """Whether the NIC of b's rail in a's node and b's own NIC are under different leaves."""
        theirs = self.cluster.nic_of(b)
        same_rail = f"n{self.cluster.node_of(a)}.{theirs.partition('.')[2]}"
        return self.cluster.leaf_of(same_rail) != self.cluster.leaf_of(theirs)

    def _alike(self, rank: int) -> tuple[int, ...]:
        return self.stage.get(rank, (rank,))

    def _leaf(self, rank: int) -> str:
        return self.cluster.leaf_of(self.cluster.nic_of(rank))
