"""Collectives and messages, priced by a profile's measured or fitted curves, on the links of one rank.

A rank represents all ranks of its stage, so an exchange uses the links of that rank: its NICs, PCIe lanes and NVLink
port.
"""

from dataclasses import replace

from ..profile import PROVENANCE, Estimate
from .collective import Collective, Price, Pricer, longest
from .layout import Layout, Reach
from .machines import Machines
from .wires import Sent, Wires, bytes_sent, inside_bytes

_ENDLESS = 1e24
"""Bytes of a message whose latency does not count."""

_NOTHING = Price(0.0, 0.0, PROVENANCE.index("exact"))


class Measured:
    """Prices exchanges by a profile's curves."""

    def __init__(self, machines: Machines, layout: Layout):
        self._machines, self._layout = machines, layout

    def price(self, collective: Collective, rank: int) -> Price:
        """As `Pricer.price`."""
        op, group, size, _ = collective
        if len(group) == 1:
            return _NOTHING
        reach = self._layout.reach(group, rank)
        if collective.is_forwarded and reach.islands > 1 and size:
            wires, left = self._layout.wires(op, group, reach), self._layout.share_left(op, group, reach)
            return price_forwarded(self, self._machines, collective, rank, wires, left)
        return self._whole(self._done_as(op), group, reach, size)

    def _done_as(self, op: str) -> str:
        """The op that the library does in place of one: some reduce all and keep a part."""
        reduces_all = self._machines.profile.value_or("reduce_scatter.all_reduce", 0.0)
        return "all_reduce" if op == "reduce_scatter" and reduces_all else op

    def _whole(self, kind: str, group: tuple[int, ...], reach: Reach, size: float) -> Price:
        """The price of one collective over a group on the machine of one of its ranks; `send_recv` has two ranks."""
        if not size:
            return _NOTHING
        wires, sent = self._layout.wires(kind, group, reach), self._sent(kind, group, reach, size)
        found = longest(_price_of(part) for part in self._parts(kind, group, reach, size))
        alone = replace(found, seconds=found.seconds + self._stall_s(kind, reach))
        left = self._layout.share_left(kind, group, reach) if reach.islands > 1 else 1.0
        return _add_latency(self._machines.on_links(alone, wires, sent, left), self._layout.site_latency_s(kind, group))

    def _sent(self, kind: str, group: tuple[int, ...], reach: Reach, size: float) -> Sent:
        if kind == "send_recv":
            return Sent(size, size, size)
        sent = bytes_sent(kind, len(group), reach.islands, reach.nearby, size)
        cluster = self._machines.cluster
        return sent if cluster.nodes[cluster.node_of(reach.rank)].nvls else replace(sent, port_least=sent.port)

    def _parts(self, kind: str, group: tuple[int, ...], reach: Reach, size: float) -> list[Estimate]:
        """The estimates between islands and inside each island, which go on at once; for one island, the latter."""
        if reach.islands == 1:
            return [self._inside(kind, group, reach, size)]
        between = self._between(kind, group, reach, size, self._rate(kind, group, reach))
        if kind == "send_recv" or reach.nearby == 1:
            return [between]
        near = inside_bytes(kind, len(group), reach.nearby, size)
        return [between, self._inside(kind, group, reach, near)]

    def _inside(self, kind: str, group: tuple[int, ...], reach: Reach, size: float) -> Estimate:
        """The estimate inside an island, over the links that join the ranks of the group there."""
        features = {"bytes": size, "link_bytes_per_s": self._layout.port_bytes_per_s(kind, group, reach)}
        gpus = {} if kind == "send_recv" else {"gpus": float(reach.nearby)}
        return self._machines.machine_of(reach.rank).price_inside(kind, features | gpus)

    def _between(self, kind: str, group: tuple[int, ...], reach: Reach, size: float, rate: float) -> Estimate:
        """The estimate between islands, whose ranks have NICs of this rate each, in bytes/s."""
        machine = self._machines.machine_of(reach.rank)
        if kind == "send_recv":
            return machine.price_between("send_recv.network", {"bytes": size, "link_bytes_per_s": rate})
        network = {"nodes": float(reach.islands), "network_bytes_per_s": rate * reach.nearby}
        return machine.price_between(kind, {"bytes": size, "gpus": float(len(group))} | network)

    def _stall_s(self, kind: str, reach: Reach) -> float:
        """Seconds that software adds to a collective between nodes."""
        if reach.islands == 1 or kind in ("send_recv", "all_to_all"):
            return 0.0
        return self._machines.profile.value_or("exchange.s", 0.0)

    def _rate(self, kind: str, group: tuple[int, ...], reach: Reach) -> float:
        """The rate in bytes/s that a rank's NICs and the lanes to them carry, while all ranks of its stage send.

        It is lower where links between switches leave less than the rank uses of it.
        """
        machines, wires = self._machines, self._layout.wires(kind, group, reach)
        left = self._layout.share_left(kind, group, reach)
        line = 1 / wires.least_s(0.0, 1.0, machines.cluster.capacity)
        if left == 1:
            return line
        left_bytes_per_s = left / wires.least_s(0.0, 1.0, machines.nic_lines)
        return min(line, left_bytes_per_s / self._used(kind, group, reach, line))

    def _used(self, kind: str, group: tuple[int, ...], reach: Reach, line: float) -> float:
        """The share of this rate that a rank uses for endless messages."""
        seconds = float(self._between(kind, group, reach, _ENDLESS, line).seconds[0])
        return self._sent(kind, group, reach, _ENDLESS).nics / (seconds * line)


def _price_of(estimate: Estimate) -> Price:
    """The price of one op's estimate, without its links."""
    return Price(float(estimate.seconds[0]), float(estimate.spread[0]), int(estimate.provenance[0]))


def _add_latency(price: Price, latency_s: float) -> Price:
    """The price with what links between sites add at least (`sites`), which is as exact as the cluster's numbers."""
    if not latency_s:
        return price
    seconds = price.seconds + latency_s
    return replace(price, seconds=seconds, spread=price.spread * price.seconds / seconds, latency_s=latency_s)


def price_forwarded(
    pricer: Pricer, machines: Machines, collective: Collective, rank: int, wires: Wires, left: float
) -> Price:
    """The price of an all-to-all that sends one copy to each island and forwards it there at the same time.

    The longer of both parts sets the time. A PCIe port may carry both. Links between switches leave the share `left` of
    what NICs could send.
    """
    op, group, size, beyond = collective
    assert beyond is not None
    near = machines.near(group, rank)
    once = Collective(op, group, beyond * len(group) / (len(group) - len(near)))
    inside = Collective(op, near, size * (len(near) > 1))
    alone = longest(pricer.price(part, rank) for part in (once, inside))
    port = bytes_sent(op, len(near), 1, len(near), size).port
    return machines.on_links(alone, wires, Sent(port, beyond, port), left)
