"""What a fabric is made of: switches by level, cables, transceivers, and what the transceivers draw.

Every cable is taken for an optical one, with a transceiver at either end; racks with copper need less. A torus has a
cable for each NIC's worth of its links. Links that are degraded or down have their cables all the same. The spine of
`rail` and `leaf` is ideal: how many switches it takes is not known, so it is not counted, nor are the links between
sites.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from ...base.units import parse
from ..files import network_parts, plain
from .build import IDEAL, KINDS
from .network import Network
from .plan import Fabric, Rates, port_rate


@dataclass(frozen=True)
class Parts:
    """Counts by kind. `rate` is that of a port in bytes/s.

    `optics_w` is what all transceivers draw at most, in watts; None if nothing is known of that rate. `missing` says
    what the counts leave out.
    """

    rate: float
    switches: Mapping[str, int]
    cables: Mapping[str, int]
    optics: Mapping[str, int]
    optics_w: float | None
    missing: tuple[str, ...] = ()

    def facts(self) -> list[tuple[str, str]]:
        """Pairs of a name and what it is, for a reader."""
        switches = {several(level, count): count for level, count in self.switches.items()}
        counted = {"switches": switches, "cables": self.cables, "transceivers": self.optics}
        facts = [
            (name, ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "none")
            for name, counts in counted.items()
        ]
        watts = "not known" if self.optics_w is None else f"at most {self.optics_w / 1000:,.1f} kW of transceivers"
        return [*facts, ("power", watts), ("not counted", "; ".join(self.missing) or "nothing")]


def several(level: str, count: int = 2) -> str:
    """What so many vertices of a level are called."""
    one = {"agg": "aggregation switch"}.get(level, level)
    return one if count == 1 else {"leaf": "leaves", "agg": "aggregation switches"}.get(level, f"{level}s")


def parts_of(fabric: Fabric, rates: Rates) -> Parts:
    """The parts of a fabric between nodes whose NICs have these rates, `rates[node][k]` in bytes/s."""
    network = Network(replace(fabric, degraded=()), rates)
    rate, nics = port_rate(rates), sum(map(len, rates))
    own_routers = "sizes" in KINDS[fabric.kind].keys  # nodes of a torus pass bytes on themselves
    between = _cables(network, rate, own_routers)
    cables = {"from NICs": 0 if own_routers else nics, "between switches": between}
    if fabric.kind == "single" or not cables["from NICs"] + between:
        return Parts(rate, {}, {}, {}, 0.0)
    known = _optics(rate)
    at_switches = 0 if own_routers else cables["from NICs"] + 2 * between
    at_nics = 2 * between if own_routers else nics
    optics = {"at NICs": at_nics, "at switches": ceil(at_switches / (known[2] if known else 1))}
    power = optics["at NICs"] * known[0] + optics["at switches"] * known[1] if known else None
    return Parts(rate, _switches(network, own_routers), cables, optics, power, _missing(fabric, network, known))


def _cables(network: Network, rate: float, own_routers: bool) -> int:
    """Cables between switches; between the nodes of a torus as many as have the rate of its links."""
    if own_routers:
        carried = sum(hop.bytes_per_s for hop in network.hops if hop.ports)
        return ceil(carried / (2 * rate) * (1 - 1e-12)) if rate else 0
    return sum(hop.ports for hop in network.hops if not (_is_none(hop.src) or _is_none(hop.dst))) // 2


def _is_none(name: str) -> bool:
    """Whether a vertex stands for something else than a switch: the ideal spine, or the border of a site."""
    return re.fullmatch(r"(?:.*-)?(?:spine|border)", name) is not None


def _switches(network: Network, own_routers: bool) -> dict[str, int]:
    """How many switches there are of each level: the names without planes, sites and numbers."""
    names = {name for hop in network.hops for name in (hop.src, hop.dst)} | {
        leaf for leaves in network.leaves for leaf in leaves
    }
    counted = [name for name in names if not own_routers and not _is_none(name)]
    return dict(sorted(Counter(name.rpartition("-")[2].rstrip("0123456789") for name in counted).items()))


def _optics(rate: float) -> tuple[float, float, int] | None:
    """(watts of a NIC's transceiver, watts of a switch's, how many ports that one serves) for a port of this rate."""
    for name, table in plain(network_parts())["optics"].items():
        if parse(name, "bytes_per_s") == rate:
            return parse(table["nic"], "watts"), parse(table["switch"], "watts"), table["switch_ports"]
    return None


def _missing(fabric: Fabric, network: Network, known: object) -> tuple[str, ...]:
    said = {
        "switches of the ideal spine, and its cables": fabric.kind in IDEAL and bool(network.hops),
        "links between sites": fabric.sites > 1,
        "power of transceivers of this rate": known is None,
        "power of switches without transceivers": "sizes" not in KINDS[fabric.kind].keys,
        "prices": True,
    }
    return tuple(what for what, applies in said.items() if applies)
