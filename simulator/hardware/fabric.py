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
FABRICS: tuple[FabricKind, ...] = ("rail", "leaf", "single")


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


@dataclass(frozen=True)
class Cabling:
    """Where cables end: per node the leaf of each NIC, and the wires between leaves and spine."""

    leaf_of: tuple[tuple[str, ...], ...]
    wires: tuple[Wire, ...]


def cable(fabric: Fabric, nic_rates: Sequence[Sequence[float]]) -> Cabling:
    """Cable nodes together; `nic_rates[node][k]` is NIC k's bytes/s per direction."""
    if fabric.kind == "single":
        return Cabling(tuple(() for _ in nic_rates), ())
    leaf_of = _leaves(fabric, [len(rates) for rates in nic_rates])
    load: dict[str, float] = defaultdict(float)
    for names, rates in zip(leaf_of, nic_rates, strict=True):
        for leaf, rate in zip(names, rates, strict=True):
            load[leaf] += rate
    return Cabling(leaf_of, _uplinks(fabric, load))


def _leaves(fabric: Fabric, nics: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    rails = max(nics, default=0)
    if fabric.kind == "rail":
        return tuple(
            tuple(f"leaf{node // fabric.down_ports * rails + k}" for k in range(n)) for node, n in enumerate(nics)
        )
    nodes_per_leaf = max(1, fabric.down_ports // max(1, rails))
    return tuple((f"leaf{node // nodes_per_leaf}",) * n for node, n in enumerate(nics))


def _uplinks(fabric: Fabric, load: dict[str, float]) -> tuple[Wire, ...]:
    """One wide link each way between every leaf and the spine; a lone leaf needs none."""
    if len(load) < 2:
        return ()
    up = [
        oneway(leaf, "spine", "leaf", x / fabric.oversubscription, fabric.switch_latency_s) for leaf, x in load.items()
    ]
    down = [
        oneway("spine", leaf, "spine", x / fabric.oversubscription, fabric.switch_latency_s) for leaf, x in load.items()
    ]
    return (*up, *down)
