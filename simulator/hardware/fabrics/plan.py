"""What a fabric is: the keys that describe one, and the plan of switches and links that its kind makes of them.

What each kind builds is a file of its own; what all kinds share (planes, sites, degraded links) is `build`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, Literal, NamedTuple

from ...base.errors import UserError, fault

Routing = Literal["hash", "spray", "adaptive"]
Cabling = Literal["rail", "leaf"]


@dataclass(frozen=True)
class Fabric:
    """The keys of a network between nodes; which of them a kind has is in its `Kind`.

    A leaf has `leaf_radix` ports, of which its uplinks take the share that `oversubscription` (NIC bandwidth over
    uplink bandwidth of one leaf) leaves them. `network` is its kind in data/networks.toml; empty if nothing is known
    of it. Counts of 0 take what the kind says. `degraded` has the factor of links by name, 0 for a link that is down.
    `flows` is how many flows (queue pairs) two NICs share their bytes out to. `sharp`: switches add what NICs send.
    """

    kind: str = "rail"
    oversubscription: float = 1.0
    leaf_radix: int = 64
    switch_latency_s: float = 0.0
    network: str = ""
    cabling: Cabling = "rail"
    spines: int = 0
    spine_radix: int = 0
    core_oversubscription: float = 1.0
    sizes: tuple[int, ...] = ()
    groups: int = 0
    group_routers: int = 0
    global_links: int = 0
    planes: int = 1
    degraded: tuple[tuple[str, float], ...] = ()
    sites: int = 1
    site_bytes_per_s: float = 0.0
    site_latency_s: float = 0.0
    routing: Routing = "hash"
    hash_seed: int = 0
    flows: int = 1
    sharp: bool = False

    @property
    def down_ports(self) -> int:
        """Ports of a leaf that face NICs."""
        return down_ports(self.leaf_radix, self.oversubscription)

    def inputs(self) -> dict[str, Any]:
        """Its keys as plain values, for hashing: the first five, and those that are not left as they are.

        `sharp` is left out: only algorithms that need it ask for it, by name.
        """
        usual = {one.name: one.default for one in fields(self)[5:]}
        return {key: x for key, x in asdict(self).items() if key != "sharp" and x != usual.get(key, _NO_DEFAULT)}


_NO_DEFAULT = object()


def down_ports(radix: int, oversubscription: float) -> int:
    """Ports of a switch that face down, if all of its ports are in use."""
    return max(1, int(radix * oversubscription / (1 + oversubscription)))


Rates = Sequence[Sequence[float]]
"""Per node the bytes/s that each of its NICs sends, in each direction."""

Leaves = tuple[tuple[str, ...], ...]
"""Per node, the switch in which the cable of each NIC ends."""


class Hop(NamedTuple):
    """One direction of the cables between two switches, as one link.

    `kind` is the link's (`leaf` up or across, `spine` down). Routes have the least sum of `cost`, and of several next
    hops take those of the lowest `order`. `ports` is the number of cables.
    """

    src: str
    dst: str
    kind: str
    bytes_per_s: float
    latency_s: float
    ports: int = 1
    cost: int = 1
    order: int = 0

    @property
    def name(self) -> str:
        """The name of its link."""
        return f"{self.src}>{self.dst}"


class Level(NamedTuple):
    """The part of a fabric in which each leaf lies, and the bytes/s of the links that leave each part, all even."""

    part: Mapping[str, str]
    bytes_per_s: Mapping[str, float]


Levels = Callable[[], Iterable[Level]]


def no_levels() -> Iterable[Level]:
    """Those of a fabric in which links that leave a part do not all carry as much."""
    return ()


@dataclass(frozen=True)
class Plan:
    """Where the cables of NICs end, and the links between switches.

    `beyond` is the rate in bytes/s at which all NICs under a leaf may send to other leaves at once, while all others
    do: that of the fabric's narrowest level. A leaf that is not in it has no other level. `levels` are all ways to part
    it of which one may be the narrowest.
    """

    leaves: Leaves
    hops: tuple[Hop, ...] = ()
    beyond: Mapping[str, float] = field(default_factory=dict)
    levels: Levels = no_levels


class FabricError(UserError):
    """A key of a fabric that does not go with its nodes or with its other keys."""

    def __init__(self, key: str, value: object, allowed: str):
        super().__init__(fault("cluster", key, value, allowed))
        self.key, self.value, self.allowed = key, value, allowed


@dataclass(frozen=True)
class Kind:
    """A kind of fabric: what it builds of nodes, and the keys that it has besides those of every fabric.

    `is_even` says whether a whole one slows no NIC, whatever they send to each other.
    """

    plan: Callable[[Fabric, Rates], Plan]
    keys: frozenset[str]
    is_even: Callable[[Fabric], bool] = lambda _: False


def sprays_without_loss(fabric: Fabric) -> bool:
    """Whether switches have as many ports up as down, and spread all bytes evenly over them."""
    return fabric.routing == "spray" and fabric.oversubscription == fabric.core_oversubscription == 1


def both_ways(src: str, dst: str, bytes_per_s: float, fabric: Fabric, ports: int = 1, **more: int) -> Iterable[Hop]:
    """The links of cables from a switch up to another one, and down again."""
    yield Hop(src, dst, "leaf", bytes_per_s, fabric.switch_latency_s, ports, **more)
    yield Hop(dst, src, "spine", bytes_per_s, fabric.switch_latency_s, ports, **more)


def across(src: str, dst: str, bytes_per_s: float, fabric: Fabric, ports: int = 1, **more: int) -> Hop:
    """A link between switches of one level, in one direction."""
    return Hop(src, dst, "leaf", bytes_per_s, fabric.switch_latency_s, ports, **more)


def port_rate(rates: Rates) -> float:
    """The rate of a switch's port: that of the fastest NIC."""
    return max((rate for each in rates for rate in each), default=0.0)


def leaves_of(fabric: Fabric, cabling: Cabling, nics: Sequence[int]) -> Leaves:
    """The leaf of each NIC: a leaf per rail of a pod of nodes, or one for all NICs of a node.

    Raises:
        FabricError: a leaf has fewer ports that face down than a node has NICs that end in it.
    """
    rails, down = max(nics, default=0), fabric.down_ports
    if cabling == "rail":
        return tuple(tuple(f"leaf{node // down * rails + k}" for k in range(n)) for node, n in enumerate(nics))
    if down < rails and len(nics) > 1:  # a node alone needs no leaf
        allowed = f"a leaf has {down} of its ports for NICs; expected at least the {rails} of a node, which end in it"
        raise FabricError("leaf_radix", fabric.leaf_radix, allowed)
    nodes_per_leaf = max(1, down // max(1, rails))
    return tuple((f"leaf{node // nodes_per_leaf}",) * n for node, n in enumerate(nics))


def numbered(leaves: Leaves) -> list[str]:
    """The leaves that are there, in the order of their numbers."""
    return sorted({leaf for each in leaves for leaf in each}, key=lambda leaf: int(leaf.removeprefix("leaf")))


Above = Callable[[Fabric, Sequence[str], float], tuple[Sequence[Hop], float, Sequence[Level]]]
"""From the names of leaves and the rate of a port: the links above leaves, `Plan.beyond` of each leaf, the levels."""


def plan_of_leaves(fabric: Fabric, rates: Rates, above: Above) -> Plan:
    """Leaves cabled as the fabric says, and what is above them; a lone leaf needs nothing above."""
    leaves = leaves_of(fabric, fabric.cabling, [len(each) for each in rates])
    names = numbered(leaves)
    if len(names) < 2:
        return Plan(leaves)
    hops, beyond, levels = above(fabric, names, port_rate(rates))
    return Plan(leaves, tuple(hops), dict.fromkeys(names, beyond), partial(tuple, levels))


def uplinks(rates: Mapping[str, float]) -> Level:
    """The level of leaves, each with uplinks of this rate."""
    return Level({leaf: leaf for leaf in rates}, rates)
