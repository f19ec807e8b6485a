"""The keys of a Cluster file that say what lies between its nodes, and the `Fabric` that they make."""

from typing import Annotated

from ..base.schema import MOST, Section, count, number, one_of, quantity
from .fabrics import KINDS, Cabling, Fabric, Routing

_MANY = 2**31 - 1


class DegradedLink(Section):
    """A link between switches, as `leaf0>spine1` or, both ways, `leaf0<>spine1`, and what is left of its rate."""

    link: str
    factor: Annotated[float, number(0, 1)]


class NetworkKeys(Section):
    """Every key of a network between nodes; which kind of fabric has which is in `fabrics`."""

    fabric: Annotated[str, one_of(lambda: KINDS)]
    oversubscription: Annotated[float, number(1, MOST)]
    leaf_radix: Annotated[int, count(2)]
    cabling: Cabling = "rail"
    spines: Annotated[int, count(1)] | None = None
    spine_radix: Annotated[int, count(2)] | None = None
    core_oversubscription: Annotated[float, number(1, MOST)] = 1.0
    sizes: tuple[Annotated[int, count(1)], ...] = ()
    groups: Annotated[int, count(1)] | None = None
    group_routers: Annotated[int, count(1)] | None = None
    global_links: Annotated[int, count(1)] | None = None
    planes: Annotated[int, count(1)] = 1
    degraded: tuple[DegradedLink, ...] = ()
    sites: Annotated[int, count(1)] = 1
    site_bandwidth: Annotated[float, quantity("bytes_per_s")] | None = None
    site_latency: Annotated[float, quantity("seconds")] | None = None
    routing: Routing = "hash"
    hash_seed: Annotated[int, count(0, _MANY)] = 0
    flows: Annotated[int, count(1)] = 1
    sharp: bool = False

    def as_fabric(self, switch_latency_s: float, network: str) -> Fabric:
        """The fabric of these keys, with the latency of a switch and the kind of network in data/networks.toml."""
        return Fabric(
            kind=self.fabric,
            oversubscription=self.oversubscription,
            leaf_radix=self.leaf_radix,
            switch_latency_s=switch_latency_s,
            network=network,
            cabling=self.cabling,
            spines=self.spines or 0,
            spine_radix=self.spine_radix or 0,
            core_oversubscription=self.core_oversubscription,
            sizes=self.sizes,
            groups=self.groups or 0,
            group_routers=self.group_routers or 0,
            global_links=self.global_links or 0,
            planes=self.planes,
            degraded=tuple((one.link, one.factor) for one in self.degraded),
            sites=self.sites,
            site_bytes_per_s=self.site_bandwidth or 0.0,
            site_latency_s=self.site_latency or 0.0,
            routing=self.routing,
            hash_seed=self.hash_seed,
            flows=self.flows,
            sharp=self.sharp,
        )
