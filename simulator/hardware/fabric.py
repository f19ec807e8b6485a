"""The network between nodes: which leaf switch each NIC's cable ends in, and the links from leaves to the spine.

All spine switches, and any tier above them, are one ideal vertex; a leaf's uplinks are one wide link each way. Hash
collisions between flows are not modelled.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .graph import Wire, oneway

FabricKind = Literal["rail", "leaf", "single"]


@dataclass(frozen=True)
class Fabric:
    """A leaf-spine network.

    `rail`: NIC k of every node in a pod ends in the pod's leaf k. `leaf`: all NICs of a node end in one leaf.
    `single`: no network. A leaf has `leaf_radix` ports, of which its uplinks take the share that `oversubscription`
    (NIC bandwidth over uplink bandwidth of one leaf) leaves them. `network` is its kind in data/networks.toml; empty if
    nothing is known of it.
    """

    kind: FabricKind = "rail"
    oversubscription: float = 1.0
    leaf_radix: int = 64
    switch_latency_s: float = 0.0
    network: str = ""

    @property
    def down_ports(self) -> int:
        """Ports of a leaf that face NICs."""
        return max(1, int(self.leaf_radix * self.oversubscription / (1 + self.oversubscription)))


Leaves = tuple[tuple[str, ...], ...]
"""Per node, the leaf in which the cable of each NIC ends."""


def cable(fabric: Fabric, nic_rates: Sequence[Sequence[float]]) -> tuple[Leaves, list[Wire]]:
    """Cable nodes together: where cables end, and the wires between leaves and spine.

    `nic_rates[node][k]` is NIC k's bytes/s per direction.
    """
    if fabric.kind == "single":
        return tuple(() for _ in nic_rates), []
    leaves = _leaves(fabric, [len(rates) for rates in nic_rates])
    load: dict[str, float] = defaultdict(float)
    for names, each in zip(leaves, nic_rates, strict=True):
        for leaf, rate in zip(names, each, strict=True):
            load[leaf] += rate
    if len(load) < 2:  # a lone leaf needs no spine
        return leaves, []
    rates = {leaf: total / fabric.oversubscription for leaf, total in load.items()}
    up = [oneway(leaf, "spine", "leaf", rate, fabric.switch_latency_s) for leaf, rate in rates.items()]
    down = [oneway("spine", leaf, "spine", rate, fabric.switch_latency_s) for leaf, rate in rates.items()]
    return leaves, up + down


def _leaves(fabric: Fabric, nics: Sequence[int]) -> Leaves:
    rails = max(nics, default=0)
    if fabric.kind == "rail":
        return tuple(
            tuple(f"leaf{node // fabric.down_ports * rails + k}" for k in range(n)) for node, n in enumerate(nics)
        )
    nodes_per_leaf = max(1, fabric.down_ports // max(1, rails))
    return tuple((f"leaf{node // nodes_per_leaf}",) * n for node, n in enumerate(nics))
