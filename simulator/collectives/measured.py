"""Collectives and messages by the curves that a profile holds of them, measured or fitted, on one rank's links.

A rank stands for all of its stage, so an exchange asks for the links of that rank: its NICs and PCIe lanes, its NVLink
port.
"""

from dataclasses import dataclass

from ..profile import PROVENANCE, Estimate
from .collective import Collective, Price, Stages
from .machines import Machines
from .uplinks import Uplinks
from .wires import Sent, Wires, inside_bytes, sent_bytes

_NOTHING = Price(0.0, 0.0, PROVENANCE.index("exact"))


class Measured:
    """Exchanges of some stages of ranks; what several of them need of a group is found once."""

    def __init__(self, machines: Machines, stages: Stages):
        self._machines, self._cluster, self._stages = machines, machines.cluster, stages
        self._uplinks = Uplinks(machines.cluster, stages)
        self._reaches: dict[tuple[tuple[int, ...], int], _Reach] = {}
        self._kept: dict[tuple[str, tuple[int, ...]], float] = {}
        self._crossed: dict[tuple[bool, tuple[int, ...], int], Wires] = {}

    def price(self, collective: Collective, rank: int) -> Price:
        """See `Algorithm`."""
        op, group, size, beyond = collective
        if len(group) == 1:
            return _NOTHING
        reach = self._reach(group, rank)
        if op == "all_to_all" and beyond is not None and reach.islands > 1 and size:
            return self._passed_on(group, reach, beyond, size)
        return self._whole(op, group, reach, size)

    def _passed_on(self, group: tuple[int, ...], reach: "_Reach", remote: float, size: float) -> Price:
        """Bytes that go to each island once, and are passed on inside it meanwhile; a PCIe port may carry both."""
        near = tuple(other for other in group if self._machines.island(other) == self._machines.island(reach.rank))
        once = self._whole("all_to_all", group, reach, remote * len(group) / (len(group) - reach.nearby))
        inside = self._whole("all_to_all", near, self._reach(near, reach.rank), size * (len(near) > 1))
        port = sent_bytes("all_to_all", len(near), 1, len(near), size).port
        wires = self._wires("all_to_all", group, reach)
        return self._over(wires, Sent(port, remote, port), max(once, inside, key=lambda price: price.seconds))

    def _whole(self, kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Price:
        """Of all ranks of a group at once, as the machine of one of them would do it; `send_recv` is of two."""
        if not size:
            return _NOTHING
        wires, sent = self._wires(kind, group, reach), self._sent(kind, group, reach, size)
        found = self._slowest_part(kind, group, reach, size)
        seconds = float(found.seconds[0]) + self._stall_s(kind, reach)
        return self._over(wires, sent, Price(seconds, float(found.spread[0]), int(found.provenance[0])))

    def _over(self, wires: Wires, sent: Sent, alone: Price) -> Price:
        """A price with what it asks of its wires, and no less time than those take."""
        least = wires.least_s(sent.port_least, sent.nics, self._cluster.capacity)
        seconds = max(alone.seconds, least)
        # A link that it fills, it fills exactly: sums made by a switch send less than a ring.
        moved = wires.bytes(sent.port, sent.nics).items()
        demand = {link: min(moved_bytes / seconds, float(self._machines.capacity[link])) for link, moved_bytes in moved}
        return Price(seconds, alone.spread, alone.provenance, demand, least)

    @staticmethod
    def _sent(kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Sent:
        if kind == "send_recv":
            return Sent(size, size, size)
        return sent_bytes(kind, len(group), reach.islands, reach.nearby, size)

    def _slowest_part(self, kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Estimate:
        """Over several islands: between them, or inside each, whichever takes longer."""
        machine = self._machines.of(reach.rank)
        features = {"bytes": size} if kind == "send_recv" else {"bytes": size, "gpus": float(len(group))}
        if reach.islands == 1:
            return machine.inside(kind, features)
        features |= self._network(kind, group, reach)
        if kind == "send_recv":
            return machine.between("send_recv.network", features)
        between = machine.between(kind, features)
        if reach.nearby == 1:
            return between
        near = {"bytes": inside_bytes(kind, len(group), reach.nearby, size), "gpus": float(reach.nearby)}
        inside = machine.inside(kind, near)
        return max(between, inside, key=lambda part: float(part.seconds[0]))

    def _stall_s(self, kind: str, reach: "_Reach") -> float:
        """What software adds to a collective between nodes."""
        if reach.islands == 1 or kind in ("send_recv", "all_to_all"):
            return 0.0
        return self._machines.profile.value_or("exchange.s", 0.0)

    def _network(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> dict[str, float]:
        """Between islands: how many, and what the NICs that serve a group's ranks on one of them carry."""
        machine = self._machines.of(reach.rank)
        each = max(machine.limits.nics // machine.gpus, 1)
        nics = machine.limits.nics * reach.nodes / reach.alike
        nic = machine.limits.nic_bytes_per_s * self._beyond_leaves(kind, group, reach)
        if kind == "send_recv":
            return {"link_bytes_per_s": nic * min(each, nics)}
        return {"nodes": float(reach.islands), "network_bytes_per_s": nic * reach.nearby * min(each, nics)}

    def _beyond_leaves(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> float:
        """What uplinks leave of a NIC's rate."""
        key = (kind, group)
        if key not in self._kept:
            self._kept[key] = self._uplinks.kept(kind, group, reach.nearby)
        return self._kept[key]

    def _reach(self, group: tuple[int, ...], rank: int | None = None) -> "_Reach":
        """As one rank of a group sees it, the first if none is named."""
        key = group, group[0] if rank is None else rank
        if key not in self._reaches:
            self._reaches[key] = self._reach_of(*key)
        return self._reaches[key]

    def _reach_of(self, group: tuple[int, ...], rank: int) -> "_Reach":
        islands, here = [self._machines.island(one) for one in group], self._machines.island(rank)
        alike = [one for one in self._stages.get(rank, group) if self._machines.island(one) == here]
        nodes = len({self._cluster.node_of(one) for one in alike})
        return _Reach(rank, len(set(islands)), islands.count(here), nodes, len(alike))

    def _wires(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> Wires:
        """The links that one rank of a collective crosses (both ranks of a send)."""
        key = (kind == "send_recv", group, reach.rank)
        if key not in self._crossed:
            crossings = self._machines.crossings
            if kind == "send_recv":
                self._crossed[key] = crossings.of_message(group[0], group[-1], self._stages)
            else:
                stage = self._stages.get(reach.rank, (reach.rank,))
                self._crossed[key] = crossings.of_collective(group, reach.rank, stage, reach.islands)
        return self._crossed[key]


@dataclass(frozen=True)
class _Reach:
    """On how many islands a group lies, how many of its ranks are on that of one `rank`, and who else is there.

    `alike` are the ranks of its stage on that island, `nodes` those that they are in: what one group sends, the others
    send at the same time, through the same NICs.
    """

    rank: int
    islands: int
    nearby: int
    nodes: int
    alike: int
